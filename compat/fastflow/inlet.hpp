#pragma once

#include <memory>
#include <vector>

#include <ff/buffer.hpp>
#include <ff/config.hpp>

#include "turn_order.hpp"

namespace ff::detail {

/// Most items are none: looked at first.
inline bool is_mark(const void* item) {
    return item > FF_TAG_MIN;
}
inline bool is_end(const void* item) {
    if (!is_mark(item)) return false;
    return item == FF_EOS || item == FF_EOSW || item == FF_EOS_NOFREEZE;
}

/// The inputs of one thread.
struct inlet {
    struct input {
        std::shared_ptr<channel> queue;
        bool feedback = false;
        ssize_t id = 0;  // among its kind
        bool ended = false;
        bool silent = false;    // not ended, but nothing more will come
        bool outside = false;   // the program writes to it
        bool stale = false;     // what is left of a stream that the node ended early is dropped
        std::size_t until = 0;  // at most until so many were taken
        bool here() const { return !ended && !queue->empty(); }
        /// Up to the end of the stream that is left of. True: there is nothing more to drop.
        bool drop_stale();
        /// The same for what was there when the next stream began.
        void end_stale();
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// The next input that has an item and `takes` allows, in turns. none: there is none.
    template <typename Takes>
    std::size_t next(Takes takes) {
        for (std::size_t tried = 0; tried != inputs.size(); ++tried) {
            if (++last >= inputs.size()) last = 0;
            if (inputs[last].here() && takes(inputs[last])) return last;
        }
        return none;
    }
    /// The same, and takes the item.
    template <typename Takes>
    std::size_t take(Takes takes, void** item) {
        if (inputs.size() == 1) {
            const input& only = inputs.front();
            last = 0;
            return !only.ended && takes(only) && only.queue->try_pop(item) ? 0 : none;
        }
        for (std::size_t tried = inputs.size(); tried != 0; --tried) {
            if (++last >= inputs.size()) last = 0;
            input& each = inputs[last];
            if (!each.ended && takes(each) && each.queue->try_pop(item)) return last;
        }
        return none;
    }
    std::size_t left() const;
    /// Ends the run if each input has ended or is silent, and one is silent.
    void check_silent() const;
    std::size_t count(bool feedback) const;
    /// For a run: without what the last one has not taken.
    void reopen();
    /// Nobody reads any more.
    void close();
    /// Something is left of a stream that the node ended early.
    bool stale() const;
    /// Drops it as it comes. True: there is nothing more to drop.
    bool drop_stale();
    /// The next stream is what comes from now on.
    void mark_stale();
    /// Drops what is there of the last stream; the next one begins.
    void begin_stream();

    std::vector<input> inputs;          // feedback first
    std::shared_ptr<turn_order> turns;  // of an ordered farm's collector
    std::size_t last = none;
    std::size_t met_ends = 0;  // by svc(), in all_gather()
    bell news;
};

}  // namespace ff::detail

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include <ff/buffer.hpp>

namespace ff::detail {

/// Which worker of an ordered farm got each item: its emitter tells the turn before it sends the
/// item, its collector reads in that order. Workers take turns; only other choices are written
/// down, and the end of each stream.
///
/// Threads: tell() and end() are the emitter's, mark() is from any, the rest is the collector's.
/// Cost:    a store for each item. The collector looks at what the emitter writes only when it has
///          read all that it knew of.
class turn_order {
public:
    explicit turn_order(std::size_t workers) : workers_(workers) {}

    void tell(std::size_t worker) {
        const std::size_t number = told_.load(std::memory_order_relaxed);
        if (worker != told_next_) write_down(number, worker);
        told_next_ = after(worker);
        told_.store(number + 1, std::memory_order_release);
    }
    /// Of a stream: no turn of it comes after this. Needs no memory.
    void end();

    /// There is a turn that was not taken.
    bool here() { return number_ != known_ || look(); }
    std::size_t worker() const { return next_; }
    void take() {
        ++number_;
        next_ = after(next_);
    }

    /// The collector has ended its stream, and may have left turns.
    void leave() { stale_ = !ended_; }
    bool stale() const { return stale_; }
    /// Drops those up to the end of the stream. True: there is nothing more to drop.
    bool drop_stale();
    /// The next stream is what comes from now on.
    void mark() { marked_ = told_.load(std::memory_order_acquire); }
    void begin_stream();
    /// For a run, which has not begun.
    void reopen();
    /// Nobody reads any more.
    void close();

private:
    static constexpr std::size_t end_mark = static_cast<std::size_t>(-1);
    struct change {
        std::size_t number = 0;
        std::size_t worker = 0;
        bool read = false;
    };

    std::size_t after(std::size_t worker) const { return worker + 1 < workers_ ? worker + 1 : 0; }
    void write_down(std::size_t number, std::size_t worker);
    bool look();
    /// False: there is none.
    bool read_change();
    void skip_to(std::size_t number);
    /// What is there of the stream, but nothing after turn `bound`.
    void drop_to_end(std::size_t bound);

    const std::size_t workers_;
    channel changes_;  // two entries each: the turn's number and its worker, both + 1
    // The emitter's.
    alignas(64) std::size_t told_next_ = 0;
    std::atomic<std::size_t> told_{0};
    // The collector's.
    alignas(64) std::size_t number_ = 0;
    std::size_t known_ = 0;  // turns below this were told, and none of them is a change
    std::size_t next_ = 0;
    change change_;
    std::size_t number_read_ = 0;  // the first half of a change, + 1
    std::size_t marked_ = 0;
    bool ended_ = false;
    bool stale_ = false;
};

}  // namespace ff::detail

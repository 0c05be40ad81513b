#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/latency_histogram.hpp>
#include <amalgam/rpc/detail/handler.hpp>
#include <amalgam/rpc/engine.hpp>

#include "rpc/context/sampling.hpp"
#include "rpc/context/stream_counts.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

class stream_group;

/// Bytes of a procedure's arguments and results. Inline calls of numbers are not counted, as each
/// takes and gives what the one before did: see served_procedure::received_bytes().
struct served_bytes {
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
    std::uint64_t requests = 0;   ///< That `received` is of.
    std::uint64_t answers = 0;    ///< That `sent` is of, and those that were not sent.
    std::size_t flat_answer = 0;  ///< Known once one was measured, as the first is.
};

/// A served procedure. Lives until it is undefined and its last call ended.
struct served_procedure {
    std::uint64_t id = 0;
    std::uint64_t number = 0;  ///< Of this definition: another of the same name has another one.
    std::string name;
    std::string signature;
    procedure_options options;
    answer_form form = answer_form::result;
    std::shared_ptr<stream_group> streams;  ///< Streams of its own; or null.
    std::unique_ptr<handler_base> run;
    std::size_t running = 0;
    /// Calls until one is measured, counted down by each: the ordinary call pays for one number.
    std::int64_t until_measured = INT64_MAX;
    std::int64_t counted_to = INT64_MAX;  ///< How many there will have been by then.
    std::size_t flat_request = not_flat;  ///< Size of a request, if flat: see handler_base.
    bool defined = true;
    bool library = false;         ///< See is_library_procedure().
    bool streams_values = false;  ///< In either direction, so it cannot be posted.
    bool plain = false;           ///< Answered by a result; defined, not learned; for all.
    bool restricted = false;      ///< Only some peers may call it.
    bool learned = false;         ///< Served by the handler of what nobody defined.
    peer named_by;                ///< If learned: who brought the name, and has fewest such.
    std::string about;            ///< For people.
    std::atomic<std::uint64_t> failures{0};     ///< Of its handler; any thread.
    std::unique_ptr<latency_histogram> took{};  ///< Of its handler; null: nobody measures.
    sampling measured;
    served_bytes moved;
    stream_counts sent_values;  ///< Of streamed results.

    /// Passed to the handler so far.
    std::uint64_t calls() const noexcept {
        return static_cast<std::uint64_t>(counted_to - until_measured);
    }
    void count_request(std::size_t bytes) noexcept {
        moved.received += bytes;
        ++moved.requests;
    }
    void count_answer(std::size_t bytes) noexcept {
        moved.sent += bytes;
        ++moved.answers;
    }
    /// Of arguments.
    std::uint64_t received_bytes() const noexcept {
        if (!is_flat_inline()) return moved.received;
        return moved.received + (calls() - moved.requests) * (flat_request - request_bytes);
    }
    /// Of results that were sent, without values of streams.
    std::uint64_t sent_bytes() const noexcept {
        if (!is_flat_inline()) return moved.sent;
        return moved.sent + (calls() - running - moved.answers) * moved.flat_answer;
    }

private:
    bool is_flat_inline() const noexcept {
        return flat_request != not_flat && options.run == handler::inline_;
    }
};

/// The procedures of one engine, by wire id and provider.
///
/// Threads: the engine's stream.
/// Cost:    finding one takes a probe or two in a table at most half full.
class procedure_table {
public:
    /// Failure: throws error{invalid} if the name is taken or has an invalid length, or two names
    ///          share an id.
    void add(std::unique_ptr<served_procedure> fresh);
    /// Adds one of a name that nobody defined. Past limits::max_learned_names, the oldest names of
    /// the peers that brought most are forgotten; peers that are gone count as one.
    served_procedure& learn(std::unique_ptr<served_procedure> fresh, known_peers& peers);
    /// Another peer uses a learned name: it counts for the one with fewer.
    void share(served_procedure& learned, const peer& with) const noexcept;
    void forget_learned() noexcept;
    /// False: no such name and provider.
    bool remove(std::string_view name, std::uint16_t provider) noexcept;

    served_procedure* find(std::uint64_t id, std::uint16_t provider) const noexcept;
    /// If it is the one that find_for_again() found last, as most calls are of that; else null.
    served_procedure* same_again(std::uint64_t id, std::uint16_t provider) const noexcept {
        const bool same =
            last_ != nullptr && last_->id == id && last_->options.provider == provider;
        return same ? last_ : nullptr;
    }
    /// False: nobody serves it.
    bool find_for_again(std::uint64_t id, std::uint16_t provider) noexcept {
        last_ = find(id, provider);
        return last_ != nullptr;
    }
    /// One of that name, for any provider; not a learned one.
    served_procedure* find(std::string_view name) const noexcept;
    /// The one of that name and provider; not a learned one.
    served_procedure* find(std::string_view name, std::uint16_t provider) const noexcept;
    /// Calls `each(what)` for those that are defined and not learned, in the order of definition.
    template <typename Function>
    void for_each(Function each) const {
        for (const auto& one : all_) {
            if (one->defined && !one->learned) each(*one);
        }
    }
    /// The providers of this id: "0, 2".
    std::string providers_of(std::uint64_t id) const;
    /// A call to it has ended.
    void release(served_procedure& used) noexcept;

private:
    struct entry {
        std::uint64_t key = 0;
        served_procedure* what = nullptr;
    };
    /// Rebuilds the table in place.
    void fill() noexcept;
    void collect() noexcept;
    std::size_t learned_from(const peer& who) const noexcept;
    void make_room_for_learned(known_peers& peers);

    std::vector<std::unique_ptr<served_procedure>> all_;  // Includes undefined ones that still run.
    std::uint64_t numbers_ = 0;
    std::vector<entry> table_;          // Size is a power of two; linear probing.
    served_procedure* last_ = nullptr;  // Found last, and still in the table.
};

}  // namespace amalgam::detail

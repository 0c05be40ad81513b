#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/channel/channel_set.hpp"
#include "flow/channel/run_context.hpp"

namespace amalgam::detail {

/// A process that this one sends to or receives from.
struct neighbor {
    process_id who;
    std::string label;
    bool sends_to_us = false;
    bool joined = false;
    bool watched = false;
    peer at;
    future<std::string> stay;
    future<std::uint64_t> pulse;     ///< Liveness check in flight.
    unsigned unanswered_checks = 0;  ///< Liveness checks.
    ult watcher;
    event gone;  ///< Set once `stay` has ended; `last_words` says how.
    failure last_words;
};

/// The processes that this one exchanges items with: joining them, and noticing their loss.
///
/// Owner:   borrows everything; the engine must be stopped first.
/// Threads: set up by one; join_all() and close() by one ULT; the rest by the engine's ULTs.
/// Failure: a process that is unreachable, lost or failed ends the run here, with its name.
class neighbors {
public:
    neighbors(run_context& run, channel_set& channels);
    neighbors(const neighbors&) = delete;
    neighbors& operator=(const neighbors&) = delete;

    /// From here on others may join: everything else must serve already.
    void serve();
    /// Introduces this process to all its receivers, in whatever order they start. False: one did
    /// not answer in time; the run has failed.
    bool join_all(const address_book& addresses);
    /// Ends the run unless every sender has joined by `deadline`.
    void expect_senders(clock::time_point deadline);
    /// The run has failed: ends expect_senders().
    void stop_waiting();

    /// Checks until close() that the processes this one needs are alive: a suspended process keeps
    /// its connections, so losing those is not enough. Before each round asks `go_on`.
    void check_liveness(const std::function<bool(clock::duration pause)>& go_on);

    /// That neighbor, if it is the caller: others must not speak for it.
    /// Failure: throws error{denied}.
    const neighbor& caller(process_id who, bool sends_to_us) const;
    /// It sent something impossible, so nothing else from it can be trusted.
    void blame(const neighbor& one, const error& wrong);
    /// A channel lost that receiver: waits a moment for its own account of why.
    void lose_receiver(process_id who, const failure& why);

    /// The run has ended here: tells the others, and waits for none.
    void close();

private:
    void add(std::size_t group, bool sends_to_us);
    void take_join(const std::string& graph, process_id who);
    void check_key(const neighbor& one, const peer& at) const;
    std::string serve_stay();
    void join(neighbor& one, const std::string& address, clock::time_point deadline);
    void fail_to_join(const neighbor& one, const std::string& address, const failure& why);
    void watch(neighbor& one);
    void lose(const neighbor& one, const failure& why);
    bool exchanges_with(const neighbor& one) const;
    bool is_needed(const neighbor& one) const;
    neighbor& find(process_id who, bool sends_to_us) const;

    run_context& run_;
    channel_set& channels_;
    std::vector<std::unique_ptr<neighbor>> all_;
    mutable mutex lock_;  // Protects their states.
    condition_variable joined_;
    bool closed_ = false;
};

}  // namespace amalgam::detail

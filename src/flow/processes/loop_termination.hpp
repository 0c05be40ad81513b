#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/tasks/ult.hpp>

#include "flow/channel/run_context.hpp"

namespace amalgam::detail {

/// Groups with nodes in that loop of the graph, in order. If there are several, the first process
/// of the first one detects the end of the loop and tells all others.
std::vector<std::size_t> groups_of_loop(const graph_core& graph, std::size_t loop);

/// Finds out when loops that span processes have ended: see loop_rounds for how.
///
/// Owner:   borrows the context; the engine must be stopped first.
/// Threads: set up by one; watch_all() and join() by one ULT; the rest by the engine's ULTs.
class loop_termination {
public:
    /// Serves the questions about this process's counts.
    explicit loop_termination(run_context& run);
    loop_termination(const loop_termination&) = delete;
    loop_termination& operator=(const loop_termination&) = delete;

    /// Starts to watch those loops for which this process is responsible.
    void watch_all(const address_book& addresses);
    /// Whether the other loops are still being watched; call it once every `pause`. False: one was
    /// not for too long, and the run has failed.
    bool are_watched(clock::duration pause);
    /// The run has ended here: waits for the watchers.
    void join();

private:
    /// A loop with nodes in processes of several groups.
    struct shared_loop {
        std::uint32_t number = 0;
        std::vector<std::size_t> groups;
        ult watcher;
        bool asked = false;  ///< Its counts were requested since the last check.
        bool ever_asked = false;
        unsigned checks_without = 0;  ///< Checks since the last request.
    };

    std::vector<std::uint64_t> serve_counts(std::uint32_t number);
    loop_count& loop_of(std::uint32_t number);
    bool is_ours(const shared_loop& loop) const;
    bool is_watched(shared_loop& loop, clock::duration pause);
    void watch(const shared_loop& loop, const std::vector<std::string>& all);
    void fail_to_watch(const shared_loop& loop, const std::string& address, const failure& why);
    void end_everywhere(const shared_loop& loop, const std::vector<std::string>& all);

    run_context& run_;
    std::vector<shared_loop> loops_;
};

}  // namespace amalgam::detail

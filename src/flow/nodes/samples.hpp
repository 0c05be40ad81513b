#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>

#include <sys/types.h>

#include <amalgam/flow/report.hpp>

namespace amalgam::detail {

class local_nodes;

/// What a node was seen to do in the time in which it waited for no queue.
///
/// Threads: add() by one, divide() by any.
class busy_samples {
public:
    enum class doing { work, core, lock, outside };

    void add(doing what, double seconds) noexcept;
    /// Divides the node's busy time among the reasons, as in the samples.
    void divide(node_report& of) const noexcept;

private:
    std::atomic<double> seconds_[4] = {};
};

/// What threads of this process did since they were sampled last, by the kernel's account.
///
/// Threads: one.
class thread_times {
public:
    struct use {
        bool blocked = false;   ///< In a system call that waits.
        bool in_lock = false;   ///< And that is one of locks.
        double core_share = 0;  ///< Fraction of the time wanting a core in which it had none.
    };
    /// Empty if the kernel does not tell.
    std::optional<use> sample(pid_t thread);

private:
    struct spent {
        std::uint64_t running = 0, ready = 0;  // Nanoseconds.
    };
    std::map<pid_t, spent> before_;
};

/// Of all threads of this process, so far.
double processor_seconds() noexcept;
/// Memory of this process; 0 if unknown.
std::uint64_t resident_bytes() noexcept;

/// Has the nodes sampled while it lives, which takes at most 2 % of a core.
class sampler {
public:
    explicit sampler(local_nodes& of);

private:
    std::jthread thread_;
};

}  // namespace amalgam::detail

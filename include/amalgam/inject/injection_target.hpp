#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/inject/code_image.hpp>
#include <amalgam/inject/injection_policy.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

namespace detail {
class target_core;
}

/// Isolation of injected code.
struct confinement_options {
    /// Runs each call in a process of its own, with a copy of all private memory of this one and no
    /// files, sockets or shared memory. Its changes vanish with it; only its result comes back. A
    /// crash or an endless loop does not affect the target. Nothing of an image is run, or
    /// registered for unwinding, outside that process, which ends with this one.
    ///
    /// It can read this process's memory and reveal it to its caller. Keep secrets out of reach: on
    /// pages of their own with madvise(MADV_DONTFORK), or in another process. Functions exported by
    /// the target run in the copy, where a lock may be held forever by a thread that does not exist
    /// there.
    bool on = false;
    std::chrono::nanoseconds time = std::chrono::seconds(1);  ///< Time limit; then it is killed.
    std::size_t result_bytes = std::size_t{16} << 20;         ///< Longest result.
    /// Memory limit on top of what this process has; past it, allocations fail. Pages of its copy
    /// that it writes take memory in addition.
    std::size_t memory_bytes = std::size_t{256} << 20;
    /// Concurrent runs; others wait, as long as their callers do.
    std::size_t at_once = 8;
};

/// How a process accepts injected code. By default, nothing runs.
struct injection_options {
    injection_policy allows{};  ///< Which images may run, for whom. Default: none.
    /// Functions and objects that images may import, by name, in addition to those of the C and C++
    /// runtimes.
    std::map<std::string, void*, std::less<>> exports{};
    void* target_args = nullptr;  ///< Last argument of every image's main.
    /// Called each time for that argument; replaces target_args.
    std::function<void*()> target_args_of{};
    /// handler::inline_ is faster, but injected code must not wait then.
    handler run = handler::ult;
    confinement_options confined{};                       ///< Only with handler::ult.
    std::size_t max_image_bytes = std::size_t{16} << 20;  ///< Larger images are refused.
    std::size_t max_images = 256;  ///< Kept linked; the least recently used is dropped first.
    /// One-way messages waiting for their image to be fetched from the sender, and their payload
    /// bytes. One peer may use half of each. Further ones are dropped, counted (inject.refused) and
    /// logged.
    std::size_t max_waiting_messages = 2048;
    std::size_t max_waiting_bytes = std::size_t{16} << 20;  ///< Of all of them.
    /// Who this target is: images whose manifest names its audience run only where these are of it.
    /// Null: nobody, so such images are refused.
    std::shared_ptr<const credentials> trust{};
    /// File of the highest version accepted of each image name, so that lower ones are refused by
    /// later runs of this program, too; several targets may use one. Empty: remembered as long as
    /// this target lives.
    std::string versions{};
    /// What manifests' times are compared with. Empty: the system's clock. A target whose clock is
    /// behind accepts images that have expired; versions and revocations need no clock.
    std::function<std::chrono::system_clock::time_point()> time_of_day{};
};

/// Lets other processes run code in this one: see injector.
///
/// Unless confined, injected code can do anything this process can. It is checked before linking,
/// not supervised afterwards: anyone who can sign for a target can do anything there.
/// Owner:   borrows the engine, which must outlive it. After its destruction no new call starts;
///          images are unloaded once none of their code is running.
/// Threads: any.
/// Failure: the constructor throws error{invalid} if the engine already has a target, if
///          confinement is combined with inline handlers, or for a revocation list or file of
///          versions that is none; error{not_found}, {denied} for one that cannot be read.
///          Exceptions of injected code reach its
///          caller as `handler_failed`, with the message.
class injection_target {
public:
    explicit injection_target(engine& on, injection_options options = {});
    injection_target(const injection_target&) = delete;
    injection_target& operator=(const injection_target&) = delete;
    ~injection_target();

    /// Replaces the policy. Present images are checked again; rejected ones are unloaded once none
    /// of their code is running. That also happens by itself, within a second or so, when the
    /// revocation list changes or an image expires.
    /// Failure: throws error{not_found}, {invalid} for its revocation list; then nothing changes.
    void set_policy(injection_policy allows);
    /// Reads the revocation list again, and checks present images, now. On failure what was read
    /// before stays in force.
    result<void> reload();

    std::size_t images() const;  ///< Currently linked.
    std::uint64_t runs() const;  ///< Runs of injected code so far.

private:
    friend class injection_ring;
    std::shared_ptr<detail::target_core> core_;
};

}  // namespace amalgam

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/inject/code_image.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

namespace detail {
class target_core;
}

/// Which images may run somewhere. As it stands, those that a trusted signer has signed.
struct injection_policy {
    std::vector<signer_key> trusted{};  ///< Whose images run.
    bool unsigned_too = false;          ///< And those that nobody has signed.
    std::vector<std::string> names{};   ///< Only images of these names; empty: of any.
    /// What no image may import. A check against accidents, not against malice: code can make
    /// system calls by itself, and the runtimes have more ways than anybody lists. Confine what you
    /// do not trust: the system refuses it all of that there.
    std::vector<std::string> denied_imports{
        "system", "popen",   "fork",     "vfork",   "execve",  "execv",       "execl",
        "execvp", "execlp",  "execle",   "execvpe", "fexecve", "posix_spawn", "posix_spawnp",
        "dlopen", "dlmopen", "dlsym",    "dlvsym",  "syscall", "mprotect",    "kill",
        "ptrace", "_Fork",   "execveat", "wordexp", "clone"};
    /// Throws amalgam::error{denied} for an image that is not to run (what else it throws refuses
    /// it, too); asked last, and again whenever an image is brought that is there already.
    std::function<void(const code_image&)> check{};
};

/// Running injected code apart.
struct confinement_options {
    /// Each run has a process of its own, which has a copy of all private memory of this one, and
    /// no files, sockets or shared memory. What it changes is gone with it; what it gives as its
    /// result comes back. A crash, or a loop without end, costs the target nothing. Nothing of an
    /// image is run, or known to what unwinds, outside of that process. It ends with this one.
    ///
    /// It can read what this process has in memory, and tell it to its caller: keep out of its way
    /// what that must not learn, by madvise(MADV_DONTFORK) on pages of their own, or in another
    /// process. Functions that the target exports are called in the copy: what they lock may be
    /// locked there for ever, by a thread that is not there.
    bool on = false;
    std::chrono::nanoseconds time = std::chrono::seconds(1);  ///< Then it is ended.
    std::size_t result_bytes = std::size_t{16} << 20;
    /// More than this process has; beyond, allocations fail. What it writes of its copy takes
    /// memory, too.
    std::size_t memory_bytes = std::size_t{256} << 20;
    /// So many at once; others wait for them, until their callers do not.
    std::size_t at_once = 8;
};

/// How a process takes code in. Every field has a default; with those nothing runs.
struct injection_options {
    injection_policy allows{};
    /// Functions and objects that images may import, by name, beside those of the C and C++
    /// runtimes.
    std::map<std::string, void*, std::less<>> exports{};
    void* target_args = nullptr;  ///< What each image's main gets last.
    /// The same, asked for each time; instead of target_args.
    std::function<void*()> target_args_of{};
    /// handler::inline_ is faster; then nothing injected may wait.
    handler run = handler::ult;
    confinement_options confined{};  ///< With handler::ult only.
    std::size_t max_image_bytes = std::size_t{16} << 20;
    std::size_t max_images = 256;  ///< Kept linked; what was not used for longest goes first.
    /// One-way messages that wait until their image is fetched from who sent them, and the bytes of
    /// their payloads; of one peer half of it. Others are dropped, counted (inject.refused) and
    /// logged.
    std::size_t max_waiting_messages = 2048;
    std::size_t max_waiting_bytes = std::size_t{16} << 20;
};

/// Lets other processes run code in this one: see injector.
///
/// Injected code can do all that this process can, unless it is confined. It is checked before it
/// is linked, and not watched afterwards: whoever may sign for a target may do anything there.
/// Owner:   borrows the engine, which outlives it. At its end no new call begins; images go when
///          nothing of theirs runs any more.
/// Threads: any.
/// Failure: the constructor throws error{invalid} when the engine has one already, or code is to
///          be confined and run inline. What injected
///          code throws its caller gets as `handler_failed`, with its sentence.
class injection_target {
public:
    explicit injection_target(engine& on, injection_options options = {});
    injection_target(const injection_target&) = delete;
    injection_target& operator=(const injection_target&) = delete;
    ~injection_target();

    /// From now on these run, and no others. What is there already is checked again; what may not
    /// stay is gone when nothing of it runs any more.
    void set_policy(injection_policy allows);

    std::size_t images() const;  ///< That are linked now.
    std::uint64_t runs() const;  ///< Of injected code, so far.

private:
    friend class injection_ring;
    std::shared_ptr<detail::target_core> core_;
};

}  // namespace amalgam

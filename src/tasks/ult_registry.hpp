#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include <amalgam/tasks/inspect.hpp>

namespace amalgam::detail {

class stream;
class ult_core;
struct join_state;

/// All stacks that exist, in use or pooled, and all streams: for those who look from outside.
///
/// Threads: any. A lock, taken when a stack is mapped or a stream starts, not for each ULT.
class ult_registry {
public:
    static void add(ult_core& made) noexcept;
    static void remove(ult_core& unmapped) noexcept;
    static void add(stream& started);
    static void remove(stream& stopped) noexcept;
    /// All that have a stack, whether they live or wait for a body. `look` must not map or unmap.
    static void for_each(const std::function<void(ult_core&)>& look);
    /// What list_ults() gives, without the texts of traces.
    static std::vector<ult_info> list(bool with_traces);
    /// What a stream did when somebody looked.
    struct stream_seen {
        const stream* who;
        std::string name;
        pid_t thread;
        const ult_core* running;  ///< Or null.
        std::string running_name;
        std::uint64_t batch;  ///< This and
        std::size_t budget;   ///< this differ after every switch: see stream::progress.
        bool driven;
        bool asleep;
        bool has_timers;
        bool has_pollers;
    };
    static std::vector<stream_seen> list_streams();
    /// All streams; none begins or ends meanwhile, and no ULT loses its pool.
    static void with_streams(const std::function<void(std::span<stream* const>)>& look);
    /// Returns when no stream is in the middle of stream::end() for this; who begins that from now
    /// on sees what the caller has written.
    static void let_end(const join_state& what) noexcept;
    /// See forks.hpp. In the order in which they are taken.
    template <typename What>
    static void for_each_lock(What what) {
        what(lock_);
        what(lock_of_streams());
    }
    /// All streams, for who holds the locks.
    static std::span<stream* const> streams_locked() noexcept;
    /// Since a reading of cycles() that a stream took.
    static std::chrono::nanoseconds time_since(std::uint64_t ticks) noexcept;

    /// Keeps ULTs from running while it lives. Their stacks and waiters may be looked at.
    ///
    /// Cost: one system call for all; meanwhile no other hold, and no stream begins or ends.
    class hold {
    public:
        /// They must exist until it ends.
        explicit hold(std::span<ult_core* const> all) noexcept;
        ~hold();
        hold(const hold&) = delete;
        hold& operator=(const hold&) = delete;

        /// The stream that runs one of them right now. Null: it is suspended, and stays so.
        const stream* running(const ult_core& one) const noexcept;
        /// The stream whose main pool `home` is, or null. It stays while this lives.
        const stream* stream_of(const pool& home) const noexcept;
        /// It may run again.
        static void let_go(ult_core& one) noexcept;

    private:
        std::unique_lock<std::mutex> streams_stay_;
        std::span<ult_core* const> all_;
    };

private:
    struct listing;
    static std::mutex& lock_of_streams() noexcept;
    static void look(std::span<ult_core* const> at, bool with_traces, listing& into);

    // Hidden: each copy in a process, as that of a plug-in, has its own.
    [[gnu::visibility("hidden")]] static inline constinit std::mutex lock_;
    // scripts/gdb/amalgam.py reads it.
    [[gnu::visibility("hidden")]] static inline constinit ult_core* first_ = nullptr;
};

}  // namespace amalgam::detail

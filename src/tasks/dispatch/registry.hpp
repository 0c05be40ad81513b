#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include <amalgam/tasks/extension/ult_snapshot.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

class dispatcher;
class ult_core;
struct join_state;

/// All existing stacks, in use or pooled, and all streams: for inspection from outside.
///
/// Threads: any. Takes a lock when a stack is mapped or a stream starts, not for each ULT.
class ult_registry {
public:
    static void add(ult_core& made) noexcept;
    static void remove(ult_core& unmapped) noexcept;
    static void add(dispatcher& started);
    static void remove(dispatcher& stopped) noexcept;
    /// Visits all ULTs with a stack, running a body or waiting for one. `look` must not map or
    /// unmap.
    static void for_each(const std::function<void(ult_core&)>& look);
    /// Result of list_ults(), with traces as raw addresses.
    static std::vector<ult_info> list(bool with_traces);
    /// See snapshot_ults() and ults_at().
    static std::vector<ult_snapshot> list_some(std::span<const void* const> ids, std::size_t most);
    static std::vector<const void*> find_at(std::span<const void* const> addresses);
    /// Calls `look` with all streams. Meanwhile none starts or ends, and no ULT loses its pool.
    static void with_streams(const std::function<void(std::span<dispatcher* const>)>& look);
    /// The same, and meanwhile no stack is mapped or unmapped.
    static void with_streams_and_stacks(
        const std::function<void(std::span<dispatcher* const>)>& look);
    /// Returns once no stream is inside switcher::end() for `what`. A stream that enters it later
    /// sees what the caller has written.
    static void let_end(const join_state& what) noexcept;
    /// For one that is held and does not run.
    static bool is_parked(const ult_core& held) noexcept;
    /// See forks.hpp. In locking order.
    template <typename What>
    static void for_each_lock(What what) {
        what(lock_);
        what(lock_of_streams());
    }
    /// All streams, for callers that hold the locks.
    static std::span<dispatcher* const> streams_locked() noexcept;
    /// Time since a stream read cycles().
    static std::chrono::nanoseconds time_since(std::uint64_t ticks) noexcept;

    /// Keeps ULTs from running while it exists. Their stacks and waiters may be inspected.
    ///
    /// Cost: one system call for all. Excludes other holds, and the start and end of streams.
    class hold {
    public:
        /// They must exist until the hold is destroyed.
        explicit hold(std::span<ult_core* const> all) noexcept;
        ~hold();
        hold(const hold&) = delete;
        hold& operator=(const hold&) = delete;

        /// The stream that is running one of them. Null: it is suspended, and stays so.
        const dispatcher* running(const ult_core& one) const noexcept;
        /// The stream whose main pool `home` is, or null. It cannot end during the hold.
        const dispatcher* stream_of(const pool& home) const noexcept;
        /// Lets it run again.
        static void let_go(ult_core& one) noexcept;

    private:
        std::unique_lock<std::mutex> streams_stay_;
        std::span<ult_core* const> all_;
    };

private:
    struct listing;
    static std::mutex& lock_of_streams() noexcept;
    static void look(std::span<ult_core* const> at, bool with_traces, listing& into);
    static void look_at_wait(const waiter& what, ult_info& one, listing& into);
    static void find_awaited(listing& of, std::size_t first);

    // Hidden: each copy in a process, such as a plug-in's, has its own.
    [[gnu::visibility("hidden")]] static inline constinit std::mutex lock_;
    // scripts/gdb/amalgam.py reads it.
    [[gnu::visibility("hidden")]] static inline constinit ult_core* first_ = nullptr;
};

}  // namespace amalgam::detail

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/ult_ref.hpp>
#include <amalgam/tasks/ult_state.hpp>

#include "tasks/dispatch/ult_core.hpp"

namespace amalgam::detail {

/// What others know a ULT by, and what few ULTs need: its id, and whether it was resumed. On the
/// heap, because it outlives the ULT: ult_ref refers to it.
///
/// Owner:   the ULT until its stack is given back, and each ult_ref.
/// Threads: any.
class ult_record {
public:
    /// Makes one if there is none. The caller is the ULT, owns its handle, or holds its record.
    /// Throws std::bad_alloc.
    static ult_record& of(ult_core& core);
    /// The stack of the ULT is about to be reused or unmapped.
    static void end(ult_record& last) noexcept;

    void keep() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void let_go() noexcept;

    const std::uint64_t id;

    /// Calls `act(ult_core&)` unless the stack was given back; it is not meanwhile. `act` must not
    /// switch, and must not take or destroy another record.
    template <typename Act>
    void with_core(Act act) {
        const std::lock_guard hold(core_stays_);
        if (core_ != nullptr) act(*core_);
    }

    /// Parks the running ULT, whose record this is, until resume(). Throws error{canceled}.
    void suspend();
    /// Puts the running ULT in line for a resume(). False: it was resumed already.
    bool enlist(wait_node& me) noexcept;
    /// The suspended ULT, which the caller must unpark. Null: the next suspend() returns at once.
    wait_node* take_suspended() noexcept;
    /// For one in line. Throws error{canceled}.
    void wait_resumed(wait_node& me);
    void forget_resume() noexcept;

    /// `tell` runs after each migration. Empty: nothing does.
    void on_migrate(std::function<void()> tell);
    /// Queues a unit in the new home of its ULT that runs the callback, then makes the ULT ready.
    /// False: there is no callback.
    bool push_notice(ult_core& moved) noexcept;

private:
    struct notice final : work_unit {
        explicit notice(ult_record& from) noexcept : work_unit(&run_unit), of(from) {}
        static void run_unit(work_unit& self) noexcept;
        ult_record& of;
    };
    using callback = std::shared_ptr<const std::function<void()>>;

    explicit ult_record(ult_core& core) noexcept;
    ~ult_record() = default;

    std::atomic<std::size_t> users_{1};
    std::mutex core_stays_;
    ult_core* core_;
    wait_list waiting_;
    bool resumed_ = false;  // under the lock of waiting_
    std::atomic<bool> tells_{false};
    callback tell_;  // under core_stays_
    notice notice_;  // queued while its ULT is not
};

class dispatcher;

/// dispatcher::take() by name. Null: not taken. The caller is the stream.
ult_core* take_named(dispatcher& here, const ult_ref& next) noexcept;

/// What it is doing now.
ult_state state_of(ult_core& core) noexcept;

}  // namespace amalgam::detail

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/closure.hpp>
#include <amalgam/tasks/extension/exit_ult.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/work_unit.hpp>

#include "tasks/dispatch/join_state.hpp"
#include "tasks/dispatch/local_values.hpp"
#include "tasks/stacks/call_stack.hpp"
#include "tasks/stacks/memory.hpp"
#include "tasks/stacks/recycler.hpp"

namespace amalgam::detail {

class dispatcher;
class ult_record;

/// A ULT, stored at the top of its own stack. It outlives its body: finished ULTs wait in a pool,
/// suspended in the loop of dispatcher::ult_main(), ready for the next body.
///
/// From high to low addresses: this object, the closure, the stack, the guard.
class ult_core final : public work_unit, public free_node, public join_state {
public:
    struct of_thread {};
    /// For a thread whose own stack becomes a ULT's; see primary.
    ult_core(of_thread, std::string_view what) noexcept;
    /// Maps a stack. Throws error{no_memory}.
    static ult_core& map(std::size_t stack_bytes);
    /// In memory of a user's, which is large enough.
    static ult_core& borrow(std::span<std::byte> stack);
    /// Returns the stack to the system, or to the user.
    static void unmap(ult_core& core) noexcept;
    /// The calling thread's pool of default stacks; null while the thread ends.
    static free_stock* thread_stock() noexcept;
    static depot stack_depot;
    static ult_core& take(std::size_t stack_bytes, free_stock* from);
    static void give_back(ult_core& core, free_stock* to) noexcept {
        if (!core.plain_.load(std::memory_order_relaxed) || to == nullptr)
            return give_back_slowly(core, to);
        to->push(core, stack_depot);
    }

    ~ult_core();
    static void run_unit(work_unit& self) noexcept;  // from the stream's loop
    static bool is_ult(const work_unit& unit) noexcept { return unit.runs_by(&run_unit); }

    /// Returns a ULT with a body that is not in a pool yet. Throws error{invalid} if no stream
    /// serves `where`.
    static ult_core& prepare(pool& where, const closure_type& type, bool joinable,
                             std::size_t stack_bytes, std::span<std::byte> stack = {});
    /// Without options, in a stream's main pool. Null: use the general path.
    static ult_core* prepare_quickly(dispatcher& here, pool& where, const closure_type& type,
                                     bool joinable) noexcept;
    /// The same in a pool that is known to be served.
    static ult_core* prepare_served(dispatcher& here, pool& where, const closure_type& type,
                                    bool joinable) noexcept;
    void begin(pool& where, const closure_type& what, bool joinable) noexcept {
        type.store(&what, std::memory_order_relaxed);
        joiner.store(joinable ? nobody : detached_mark, std::memory_order_relaxed);
        priority = 0;
        set_home(&where);
    }
    void begin_in(pool& where) noexcept { set_home(&where); }
    /// Removes it from its home pool.
    void leave_home() noexcept { set_home(nullptr); }

    const stack_memory& memory() const noexcept { return memory_; }
    std::size_t stack_bytes() const noexcept { return stack_bytes_; }
    void* closure() noexcept { return closure_of(this); }
    /// Inlined: a return after a switch to anywhere but its call site is mispredicted.
    /// True: the stack has left and come back with another body, which is to be run.
    [[gnu::always_inline]] bool run_body() noexcept {
        const closure_type* const body = type.load(std::memory_order_relaxed);
        type.store(nullptr, std::memory_order_relaxed);
        try {
            if (requests.load(std::memory_order_relaxed) != 0 && take_cancel()) {
                cancel_unbegun(*body);
            } else {
                body->run(closure());
            }
        } catch (const exit_ult&) {
        } catch (...) {
            keep_thrown();
        }
        if (locals != nullptr) return end_locals();
        return false;
    }
    /// For the running ULT in a fork() child: the process ends where its body does.
    void end_with_child() noexcept;
    /// Destroys `locals`, and switches to what exit_to() has left there; see run_body().
    bool end_locals() noexcept;
    void log_lost_exception() noexcept;

    // requests: flags for the stream that runs it next, see dispatcher::heed().
    static constexpr std::uint8_t asked_to_move = 1;
    static constexpr std::uint8_t asked_to_end = 2;   ///< cancel(): for the ULT itself
    static constexpr std::uint8_t held = 4;           ///< See ult_registry::hold().
    static constexpr std::uint8_t left_for_good = 8;  ///< See left_behind.
    static constexpr std::uint8_t pinned = 16;        ///< Not a request: see ult_options.

    // With the bases, the two cache lines that a short life touches; then the rest.
    std::atomic<std::uint8_t> requests{0};

private:
    std::atomic<bool> plain_{false};  // give_back() has nothing to do but pool the stack

public:
    call_stack saved;
    std::atomic<const closure_type*> type{nullptr};  ///< Null: it has begun.
    local_values* locals = nullptr;                  ///< ult_local; null: none
    std::array<char, 24> name{};
    void rename(std::string_view to) noexcept;
    /// For callers that do not know whether it ends meanwhile.
    std::string name_seen() const;

    std::atomic<waiter*> waiting_on{nullptr};  ///< while it parks
    std::uint64_t parked_at = 0;               ///< with waiting_on; dispatcher::batch_seen()
    std::atomic<pool*> wanted_home{nullptr};   ///< with asked_to_move
    void* local = nullptr;                     ///< task_local()
    void* guest = nullptr;                     ///< guest()
    std::atomic<ult_record*> record{nullptr};  ///< Made on demand; see ult_record::of().
    void give_back_slowly_from_now_on() noexcept { plain_.store(false, std::memory_order_relaxed); }
    unsigned cancels_later = 0;  ///< live objects that forbid it; see cancel_later
    /// For a suspended ULT.
    bool may_be_canceled() const noexcept { return cancels_later == 0; }
    bool take_cancel() noexcept {
        return (requests.load(std::memory_order_relaxed) & asked_to_end) != 0 &&
               (requests.fetch_and(static_cast<std::uint8_t>(~asked_to_end)) & asked_to_end) != 0;
    }
    bool is_wanted_in(const pool& where) const noexcept {
        return (requests.load(std::memory_order_relaxed) & asked_to_move) != 0 &&
               wanted_home.load(std::memory_order_relaxed) == &where;
    }
    /// Whether the running ULT has nothing but its pool, as if it had just begun.
    bool is_as_new() const noexcept {
        return requests.load(std::memory_order_relaxed) == 0 &&
               plain_.load(std::memory_order_relaxed) && locals == nullptr && local == nullptr &&
               record.load(std::memory_order_relaxed) == nullptr && name[0] == '\0' &&
               cancels_later == 0 && saved.stack.floats.make_as_begun();
    }
    bool is_pinned() const noexcept {
        return (requests.load(std::memory_order_relaxed) & pinned) != 0;
    }
    /// It never runs again, and unmap() only accepts it if it has not begun.
    void leave_behind() noexcept;
    bool was_left_behind() const noexcept {
        return (requests.load(std::memory_order_relaxed) & left_for_good) != 0;
    }

private:
    friend class ult_registry;
    ult_core(stack_memory memory, std::size_t stack_bytes, bool borrowed) noexcept;
    static void give_back_slowly(ult_core& core, free_stock* to) noexcept;
    void end_record() noexcept;
    void cancel_unbegun(const closure_type& body) noexcept;
    void keep_thrown() noexcept;

    ult_core* next_known_ = nullptr;  // the registry's
    ult_core* prev_known_ = nullptr;
    stack_memory memory_;
    std::size_t stack_bytes_;
    bool borrowed_ = false;  // the stack is the user's
};

/// Throws error{closed} if only the process that forked this one has streams for `where`, else
/// error{invalid}.
[[noreturn]] void refuse_unserved(const pool& where);
/// In a fork() child, throws instead of waiting forever for a unit in `home`. Null means no pool.
void refuse_to_join(const pool* home);

// All throw error{invalid}.
[[noreturn]] void refuse_pinned();
/// `of`: the type of the handle; `act`: what was asked of it.
[[noreturn]] void refuse_empty_handle(std::string_view of, std::string_view act);
[[noreturn]] void refuse_empty_ref(std::string_view act);

/// What join() throws for a unit that was canceled before it began. Where nobody joins it is not
/// logged: it is what was asked for.
struct canceled_unbegun final : error {
    using error::error;
};
/// One of two objects that all such units share, so nothing is thrown until somebody joins, nor to
/// look at it. std::bad_alloc without memory for it.
std::exception_ptr ult_canceled_unbegun() noexcept;
std::exception_ptr tasklet_canceled_unbegun() noexcept;
bool is_canceled_unbegun(const std::exception_ptr& what) noexcept;

/// Logs the exception being handled.
void log_thrown(const char* what) noexcept;

/// For destructors of handles: calls join() and logs what it throws; detaches where waiting is
/// impossible (inside a tasklet).
template <typename Handle>
void join_or_detach(Handle& handle, const char* what) noexcept {
    if (!handle.joinable()) return;
    try {
        handle.join();
    } catch (const canceled_unbegun&) {
    } catch (...) {
        log_thrown(what);
    }
    if (handle.joinable()) handle.detach();
}

/// The text of the exception, for logs and failures.
std::string describe(const std::exception_ptr& what) noexcept;

}  // namespace amalgam::detail

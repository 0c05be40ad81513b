#include "tasks/dispatch/hooks.hpp"

#include <new>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/returned_child.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/ult_core.hpp"

namespace amalgam {

namespace detail {

namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local const task_hook::function* told_now =
    nullptr;

void call(const task_hook::function& tell, const task_event_info& what) noexcept {
    try {
        tell(what);
    } catch (...) {
        log_thrown("an exception escaped from a task_hook and is ignored");
    }
}

}  // namespace

bool hooks::telling() noexcept {
    return told_now != nullptr;
}

// The caller's ULT may have been left already, so the hook must not act as it: it is a plain thread
// meanwhile.
[[gnu::noinline]] void hooks::tell_all(task_event_info what) noexcept {
    if (telling()) return;
    dispatcher* const here = dispatcher::set_current(nullptr);
    const unsigned forks = forks_so_far();
    if (what.stream == nullptr && here != nullptr) what.stream = here->owner;
    const unsigned used = used_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if ((used >> i & 1) == 0) continue;
        hook_slot& each = slots_[i];
        // Of this and remove(), the later one sees the other.
        each.calls.fetch_add(1, std::memory_order_seq_cst);
        if (const auto* const tell = each.tell.load(std::memory_order_seq_cst)) {
            told_now = tell;
            call(*tell, what);
            told_now = nullptr;
        }
        each.calls.fetch_sub(1, std::memory_order_release);
    }
    if (here != nullptr && forks_so_far() != forks) end_returned_child();
    dispatcher::set_current(here);
}

[[gnu::noinline]] void hooks::tell(task_event what, const work_unit& of) noexcept {
    task_event_info event;
    event.what = what;
    event.kind = of.kind();
    event.id = &of;
    if (event.kind == unit_kind::ult) event.name = static_cast<const ult_core&>(of).name.data();
    tell_all(event);
}

[[gnu::noinline]] void hooks::tell_parked(const ult_core& who, const char* waits_for) noexcept {
    tell_all({.what = task_event::parked,
              .kind = unit_kind::ult,
              .id = &who,
              .name = who.name.data(),
              .waits_for = waits_for});
}

[[gnu::noinline]] void hooks::tell_ended(unit_kind kind, const void* id) noexcept {
    task_event_info event;
    event.what = task_event::ended;
    event.kind = kind;
    event.id = id;
    tell_all(event);
}

[[gnu::noinline]] void hooks::tell(task_event what, execution_stream& of) noexcept {
    task_event_info event;
    event.what = what;
    event.stream = &of;
    tell_all(event);
}

std::size_t hooks::add(const task_hook::function& tell) {
    if (telling()) {
        throw error(errc::invalid,
                    "a task_hook cannot be created in the function of a hook: "
                    "create it before, or in a ULT");
    }
    if (!tell) {
        throw error(errc::invalid,
                    "the function of this task_hook is empty; example: task_hook profile([](const "
                    "task_event_info& what) { … })");
    }
    count_forks();
    const std::lock_guard hold(lock_);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        hook_slot& each = slots_[i];
        if (each.tell.load() != nullptr || each.calls.load() != 0) continue;
        each.tell.store(&tell, std::memory_order_seq_cst);
        used_.fetch_or(1u << i, std::memory_order_release);
        return i;
    }
    throw error(errc::no_memory, fmt::format("{} hooks exist already, which is the most there can "
                                             "be: destroy one first",
                                             slots_.size()));
}

bool hooks::remove(std::size_t which) noexcept {
    hook_slot& gone = slots_[which];
    used_.fetch_and(~(1u << which), std::memory_order_release);
    gone.tell.store(nullptr, std::memory_order_seq_cst);
    if (telling()) {
        log(log_level::error, "tasks",
            "a task_hook was destroyed in the function of a hook, so its function is kept for "
            "ever: "
            "destroy it elsewhere",
            {});
        return false;
    }
    // seq_cst, as in tell_all(): an acquire load may be done before the store above is seen.
    while (gone.calls.load(std::memory_order_seq_cst) != 0)
        std::this_thread::yield();
    return true;
}

void hooks::keep(std::unique_ptr<task_hook::function> running) noexcept {
    struct kept {
        const task_hook::function* what;
        kept* next;
    };
    static kept* all = nullptr;  // Never freed, but found by who looks for leaks.
    const std::lock_guard hold(lock_);
    if (auto* const one = new (std::nothrow) kept{running.get(), all}) all = one;
    static_cast<void>(running.release());
}

void hooks::forget_others_in_child() noexcept {
    for (hook_slot& each : slots_) {
        const auto* const tell = each.tell.load(std::memory_order_relaxed);
        each.calls.store(tell != nullptr && tell == told_now ? 1 : 0, std::memory_order_relaxed);
    }
}

}  // namespace detail

const char* name(task_event what) noexcept {
    constexpr std::array names{"created", "running",  "yielded",        "parked",        "resumed",
                               "ended",   "canceled", "stream started", "stream stopped"};
    const auto at = static_cast<std::size_t>(what);
    return at < names.size() ? names[at] : "unknown";
}

task_hook::task_hook(function tell)
    : tell_(std::make_unique<function>(std::move(tell))), slot_(detail::hooks::add(*tell_)) {}

task_hook::~task_hook() {
    if (!detail::hooks::remove(slot_)) detail::hooks::keep(std::move(tell_));
}

}  // namespace amalgam

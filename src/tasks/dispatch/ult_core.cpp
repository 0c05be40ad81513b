#include "tasks/dispatch/ult_core.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/stacks_ahead.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/left_behind.hpp"
#include "tasks/dispatch/record.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/thread_store.hpp"
#include "tasks/limits.hpp"

namespace amalgam::detail {

namespace {

constexpr std::size_t default_stack_bytes =
    sanitized ? limits::sanitized_stack_bytes : limits::default_stack_bytes;
constexpr std::size_t closure_align = 64;

// Stacks of one size all start at the same offset in a page, so their hottest lines would compete
// for the same few cache sets. Each starts at a slightly different offset, but not so far down that
// a ULT which does little before it waits touches a second page.
constexpr std::size_t colours = 10;
constexpr std::size_t colour_bytes = 256;
std::atomic<std::size_t> next_colour{0};

void release_ult(free_node& node) noexcept {
    ult_core::unmap(static_cast<ult_core&>(node));
}

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) noexcept {
    return (bytes + to - 1) / to * to;
}

}  // namespace

constinit depot ult_core::stack_depot(release_ult);

ult_core::ult_core(stack_memory memory, std::size_t stack_bytes, bool borrowed) noexcept
    : work_unit(&ult_core::run_unit),
      free_node{nullptr},
      plain_(stack_bytes == default_stack_bytes && !borrowed),
      memory_(memory),
      stack_bytes_(stack_bytes),
      borrowed_(borrowed) {
    auto* const top = static_cast<std::byte*>(closure());
    const auto usable = static_cast<std::size_t>(top - memory.bottom());
    saved.owner = this;
    saved.stack = make_stack<&dispatcher::ult_main>(top, usable);
    saved.sanitizer.create(memory.bottom(), usable);
}

ult_core::ult_core(of_thread, std::string_view what) noexcept
    : work_unit(&ult_core::run_unit), free_node{nullptr}, stack_bytes_(0) {
    saved.owner = this;
    rename(what);
}

ult_core& ult_core::map(std::size_t stack_bytes) {
    static_assert(inline_closure_bytes % closure_align == 0);
    constexpr std::size_t own_bytes = round_up(sizeof(ult_core), closure_align);
    const std::size_t usable =
        stack_bytes + own_bytes + inline_closure_bytes + colours * colour_bytes;
    const stack_memory memory = !sanitized && stack_bytes == default_stack_bytes
                                    ? map_stack_of_many(usable)
                                    : map_stack(usable);
    const std::size_t colour = next_colour.fetch_add(1, std::memory_order_relaxed) % colours;
    std::byte* const at = memory.top() - own_bytes - colour * colour_bytes;
    ult_core& made = *::new (at) ult_core(memory, stack_bytes, false);
    ult_registry::add(made);
    return made;
}

ult_core& ult_core::borrow(std::span<std::byte> stack) {
    constexpr std::size_t own_bytes = round_up(sizeof(ult_core), closure_align);
    static_assert(limits::min_stack_bytes + own_bytes + inline_closure_bytes + 2 * closure_align <=
                  limits::min_borrowed_stack_bytes);
    // Down to the alignment of both.
    std::byte* const end = stack.data() + stack.size();
    std::byte* const at = end - own_bytes - reinterpret_cast<std::uintptr_t>(end) % closure_align;
    const auto usable = static_cast<std::size_t>(at - inline_closure_bytes - stack.data());
    ult_core& made = *::new (at) ult_core(borrow_stack(stack.data(), stack.size()), usable, true);
    ult_registry::add(made);
    return made;
}

void ult_core::leave_behind() noexcept {
    requests.fetch_or(left_for_good, std::memory_order_relaxed);
    plain_ = false;
    if (type.load() == nullptr) saved.sanitizer.keep();
}

void ult_core::unmap(ult_core& core) noexcept {
    if (core.was_left_behind()) {
        const closure_type* const unbegun = core.type.load();
        if (unbegun == nullptr) return;  // its stack may still be referred to
        unbegun->destroy(core.closure());
    }
    const stack_memory memory = core.memory_;
    const bool borrowed = core.borrowed_;
    ult_registry::remove(core);
    core.saved.sanitizer.destroy();
    core.~ult_core();
    borrowed ? return_stack(memory) : unmap_stack(memory);
}

void ult_core::end_record() noexcept {
    if (ult_record* const last = record.exchange(nullptr)) ult_record::end(*last);
}

ult_core::~ult_core() {
    end_record();
}

void ult_core::give_back_slowly(ult_core& core, free_stock* to) noexcept {
    core.end_record();
    const bool pooled =
        core.stack_bytes_ == default_stack_bytes && !core.borrowed_ && !core.was_left_behind();
    if (!pooled || to == nullptr) return unmap(core);
    core.plain_.store(true, std::memory_order_relaxed);
    to->push(core, stack_depot);
}

thread_store::~thread_store() {
    stacks.give_all(ult_core::stack_depot);
    blocks.give_all();
}

free_stock* ult_core::thread_stock() noexcept {
    thread_store* const own = thread_store::own::get();
    return own == nullptr ? nullptr : &own->stacks;
}

inline ult_core& ult_core::take(std::size_t stack_bytes, free_stock* from) {
    if (stack_bytes != default_stack_bytes || from == nullptr) return map(stack_bytes);
    if (free_node* node = from->pop(stack_depot)) return static_cast<ult_core&>(*node);
    return map(stack_bytes);
}

void map_stacks_ahead(std::size_t number) noexcept {
    rlimit space{};
    if (sanitized || ::getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur != RLIM_INFINITY) return;
    free_list made;
    try {
        for (; number > 0; --number) {
            made.push(ult_core::map(default_stack_bytes));
            if (!guards_share_mappings()) break;
            if (made.count == limits::free_list_blocks)
                ult_core::stack_depot.give_list(std::exchange(made, {}));
        }
    } catch (const std::exception&) {
        // Who needs one will ask, too.
    }
    ult_core::stack_depot.give_list(made);
}

void ult_core::cancel_unbegun(const closure_type& body) noexcept {
    body.destroy(closure());
    if (!is_detached()) failed = ult_canceled_unbegun();
}

// Never destroyed: a unit may end while the process does.
static const std::exception_ptr& keep_for_all(const char* sentence) {
    return *new std::exception_ptr(
        std::make_exception_ptr(canceled_unbegun(errc::canceled, sentence)));
}

std::exception_ptr ult_canceled_unbegun() noexcept {
    try {
        static const auto& one = keep_for_all("this ULT was canceled before it started");
        return one;
    } catch (...) {
        return std::current_exception();
    }
}

std::exception_ptr tasklet_canceled_unbegun() noexcept {
    try {
        static const auto& one = keep_for_all("this tasklet was canceled before it started");
        return one;
    } catch (...) {
        return std::current_exception();
    }
}

bool is_canceled_unbegun(const std::exception_ptr& what) noexcept {
    return what == ult_canceled_unbegun() || what == tasklet_canceled_unbegun();
}

void ult_core::keep_thrown() noexcept {
    failed = std::current_exception();
    if (is_detached()) log_lost_exception();
}

// Byte by byte and atomic: list_ults() may read the name of a ULT that is ending, and of the next
// one on its stack.
void ult_core::rename(std::string_view to) noexcept {
    const std::size_t kept = std::min(to.size(), name.size() - 1);
    for (std::size_t i = 0; i < kept; ++i)
        std::atomic_ref(name[i]).store(to[i], std::memory_order_relaxed);
    std::atomic_ref(name[kept]).store('\0', std::memory_order_relaxed);
}

std::string ult_core::name_seen() const {
    std::string seen;
    for (const char& each : name) {
        const char one = std::atomic_ref(const_cast<char&>(each)).load(std::memory_order_relaxed);
        if (one == '\0') break;
        seen += one;
    }
    return seen;
}

void ult_core::run_unit(work_unit& self) noexcept {
    dispatcher::current()->enter(static_cast<ult_core&>(self));
}

void ult_core::log_lost_exception() noexcept {
    const std::exception_ptr lost = std::exchange(failed, nullptr);
    if (is_canceled_unbegun(lost)) return;
    log(log_level::error, "tasks", "an exception escaped from a detached ULT",
        {{"ult", name[0] != '\0' ? name.data() : "unnamed"}, {"what", describe(lost)}});
}

void log_thrown(const char* what) noexcept {
    log(log_level::error, "tasks", what, {{"what", describe(std::current_exception())}});
}

void refuse_empty_handle(std::string_view of, std::string_view act) {
    throw error(errc::invalid,
                fmt::format("cannot {}: this {} is empty, as it was joined, detached, moved from "
                            "or never given a {}; check joinable() before",
                            act, of, of));
}

void refuse_empty_ref(std::string_view act) {
    throw error(errc::invalid,
                fmt::format("cannot {}: this ult_ref is empty and names no ULT; take it from "
                            "ult::ref() or this_task::self(), and check it by `if (ref)`",
                            act));
}

std::string describe(const std::exception_ptr& what) noexcept {
    try {
        try {
            std::rethrow_exception(what);
        } catch (const std::exception& known) {
            return text_of(known);
        } catch (...) {
            return "an exception not derived from std::exception";
        }
    } catch (...) {
        return {};  // Out of memory for the text.
    }
}

[[noreturn]] static void refuse_small_stack(std::size_t bytes) {
    throw error(errc::invalid,
                fmt::format("a ULT's stack of {} bytes is too small, expected at least {}, or "
                            "stack_bytes = 0 for the pooled default of {}",
                            bytes, limits::min_stack_bytes, default_stack_bytes));
}

[[noreturn]] static void refuse_large_stack(std::size_t bytes) {
    throw error(errc::invalid,
                fmt::format("a ULT's stack of {} bytes exceeds the address space, expected at most "
                            "{}, or stack_bytes = 0 for the pooled default of {}",
                            bytes, limits::max_stack_bytes, default_stack_bytes));
}

void refuse_unserved(const pool& where) {
    if (left_behind::is_left_to_parent(&where)) {
        throw error(errc::closed,
                    "the streams of this pool belong to the parent process and do not run after "
                    "fork(): create a new execution_stream in the child");
    }
    throw error(
        errc::invalid,
        "no stream serves this pool, so the ULT would never run: create an execution_stream whose "
        "scheduler serves the pool, and do not stop it before the ULT ends");
}

void refuse_to_join(const pool* home) {
    if (!left_behind::is_left_to_parent(home)) return;
    throw error(errc::closed,
                "this ULT or tasklet belongs to the parent process: after fork(), join only ULTs "
                "and tasklets created in the child");
}

void refuse_pinned() {
    throw error(errc::invalid,
                "a pinned ULT stays on one stream: create it in a pool that only one stream may "
                "serve, such as a stream's own, and do not migrate it");
}

ult_core& ult_core::prepare(pool& where, const closure_type& type, bool joinable,
                            std::size_t stack_bytes, std::span<std::byte> stack) {
    dispatcher* const here = dispatcher::current_in_line();
    if ((here == nullptr || !here->work().owns(&where)) && !where.served()) refuse_unserved(where);
    ult_core& core = stack.empty() ? take(stack_bytes, stock_of(here)) : borrow(stack);
    // A hold may exist that meant the previous ULT on this stack.
    if (core.requests.load(std::memory_order_relaxed) != 0) core.requests.fetch_and(held);
    core.saved.stack.floats.make_usual();
    core.begin(where, type, joinable);
    return core;
}

[[gnu::always_inline]] inline ult_core* ult_core::prepare_served(dispatcher& here, pool& where,
                                                                 const closure_type& type,
                                                                 bool joinable) noexcept {
    free_stock* const stock = stock_of(&here);  // null while the thread ends
    auto* const core = stock == nullptr ? nullptr : static_cast<ult_core*>(stock->first());
    if (core == nullptr || core->requests.load(std::memory_order_relaxed) != 0 ||
        !core->saved.stack.floats.is_usual() || core->name[0] != '\0') {
        return nullptr;
    }
    stock->pop_quickly();
    core->begin(where, type, joinable);
    return core;
}

ult_core* ult_core::prepare_quickly(dispatcher& here, pool& where, const closure_type& type,
                                    bool joinable) noexcept {
    if (!here.work().owns(&where) && ready_work::main_server_of(where) == nullptr) return nullptr;
    return prepare_served(here, where, type, joinable);
}

// Rare paths are separate and tail-called, so that common ones save no registers.
[[gnu::noinline]] ult_core& prepare_ult(pool& where, const closure_type& type, bool joinable) {
    if (dispatcher* const here = dispatcher::current_in_line()) {
        ult_core* const core = ult_core::prepare_quickly(*here, where, type, joinable);
        if (core != nullptr) return *core;
    }
    return prepare_ult(where, type, joinable, {});
}

[[gnu::noinline]] ult_core* prepare_ult_quickly(pool& where, const closure_type& type,
                                                bool joinable) noexcept {
    dispatcher* const here = dispatcher::current_in_line();
    return here == nullptr || !where.served()
               ? nullptr
               : ult_core::prepare_served(*here, where, type, joinable);
}

static void check_borrowed(const ult_options& options, bool joinable) {
    if (options.stack.data() == nullptr) {
        throw error(errc::invalid,
                    fmt::format("a ULT's stack is {} bytes at a null pointer, expected memory of "
                                "the caller's, for example {{memory.data(), memory.size()}}, or no "
                                ".stack for new memory",
                                options.stack.size()));
    }
    if (options.stack.size() < limits::min_borrowed_stack_bytes) {
        throw error(errc::invalid,
                    fmt::format("a ULT's stack in {} bytes of the caller's memory is too small, "
                                "expected at least {}, which is {} and its descriptor",
                                options.stack.size(), limits::min_borrowed_stack_bytes,
                                limits::min_stack_bytes));
    }
    if (options.stack_bytes != 0) {
        throw error(errc::invalid,
                    "a ULT's stack is either memory of the caller's, which has its size, or "
                    "stack_bytes of new memory: leave one of both options out");
    }
    if (!joinable) {
        throw error(errc::invalid,
                    "post() does not tell when a ULT has left its stack, so that cannot be memory "
                    "of the caller's: use spawn(), and keep the memory until join() has returned");
    }
}

[[gnu::noinline]] ult_core& prepare_ult(pool& where, const closure_type& type, bool joinable,
                                        const ult_options& options) {
    if (!options.stack.empty()) check_borrowed(options, joinable);
    const std::size_t stack_bytes =
        options.stack_bytes == 0 ? default_stack_bytes : options.stack_bytes;
    if (stack_bytes < limits::min_stack_bytes) refuse_small_stack(stack_bytes);
    if (stack_bytes > limits::max_stack_bytes) refuse_large_stack(stack_bytes);
    if (options.pinned && where.access() != pool_access::one_stream) refuse_pinned();
    ult_core& core = ult_core::prepare(where, type, joinable, stack_bytes, options.stack);
    core.priority = options.priority;
    if (options.pinned) core.requests.fetch_or(ult_core::pinned, std::memory_order_relaxed);
    core.rename(options.name);
    return core;
}

void check_revivable(ult_core* core, const pool& where) {
    if (core == nullptr) refuse_empty_handle("ult", "revive");
    if (core->was_left_behind()) {
        throw error(errc::invalid,
                    "a ULT whose pool was destroyed cannot be revived: spawn a new one");
    }
    if (!core->is_finished()) {
        throw error(errc::invalid,
                    "only a ULT that has ended can be revived: call wait() on its handle before");
    }
    if (core->is_pinned() && where.access() != pool_access::one_stream) refuse_pinned();
    if (!where.served()) refuse_unserved(where);
}

void restart_ult(ult_core& core, pool& where, const closure_type& type) noexcept {
    const std::exception_ptr lost = std::exchange(core.failed, nullptr);
    if (lost != nullptr && !is_canceled_unbegun(lost)) {
        log(log_level::error, "tasks", "a ULT was revived without join() after an exception",
            {{"ult", core.name[0] != '\0' ? core.name.data() : "unnamed"},
             {"what", describe(lost)}});
    }
    // A hold may exist that meant its life before.
    core.requests.fetch_and(ult_core::held | ult_core::pinned);
    core.saved.stack.floats.make_usual();
    if (ult_record* const known = core.record.load()) known->forget_resume();
    const auto priority = core.priority;
    core.begin(where, type, true);
    core.priority = priority;
    start_ult(core);
}

void drop_ult(ult_core& core) noexcept {
    core.leave_home();
    ult_core::give_back(core, stock_of(dispatcher::current()));
}

[[gnu::always_inline]] static inline void start_untold(ult_core& core) noexcept {
    dispatcher* const here = dispatcher::current_in_line();
    if (here != nullptr && here->work().start_own(core)) return;
    core.made_at_home = false;
    ready_work::count_ults(*core.home(), 1, here);
    core.home()->push(core);
}

[[gnu::noinline]] static void start_told(ult_core& core) noexcept {
    hooks::tell(task_event::created, core);
    start_untold(core);
}

[[gnu::noinline]] void start_ult(ult_core& core) noexcept {
    if (hooks::any()) [[unlikely]]
        return start_told(core);
    start_untold(core);
}

void start_ult_unpushed(ult_core& core) noexcept {
    if (hooks::any()) [[unlikely]]
        hooks::tell(task_event::created, core);
    core.made_at_home = false;
    ready_work::count_ults(*core.home(), 1, dispatcher::current_in_line());
}

void start_ult_first(ult_core& core) noexcept {
    if (hooks::any()) [[unlikely]]
        hooks::tell(task_event::created, core);
    core.priority = std::numeric_limits<decltype(core.priority)>::max();
    core.made_at_home = false;
    ready_work::count_ults(*core.home(), 1, dispatcher::current());
    core.home()->push_by_priority(core);
}

}  // namespace amalgam::detail

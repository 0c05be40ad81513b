#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/extension/local.hpp>
#include <amalgam/tasks/extension/plain_thread.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/local_values.hpp"
#include "tasks/dispatch/record.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/thread_store.hpp"

namespace amalgam::detail {

// They stay reachable meanwhile: a destructor may use, and so create, others.
bool ult_core::end_locals() noexcept {
    if (dispatcher::current() == nullptr) end_returned_child();
    ult_ref then = std::move(locals->then);
    {
        const cancel_later destructors_wait_in_peace;
        delete locals;
        locals = nullptr;
    }
    dispatcher* const here = dispatcher::current();
    if (here == nullptr) end_returned_child();
    if (!then) return false;
    ult_core* const successor = take_named(*here, then);
    then = {};  // the stack may be unmapped where it is left
    if (successor == nullptr) return false;
    here->end_for(*this, *successor);
    return true;
}

// Without `locals`, the check at the end of the body would be skipped.
void ult_core::end_with_child() noexcept {
    if (locals == nullptr) locals = new (std::nothrow) local_values;
}

local_values::~local_values() {
    // The youngest first.
    while (!entries_.empty()) {
        const entry last = entries_.back();
        entries_.pop_back();
        last.destroy(last.value);
    }
}

void* local_values::find(std::uint64_t key) const noexcept {
    for (const entry& each : entries_) {
        if (each.key == key) return each.value;
    }
    return nullptr;
}

void local_values::add(std::uint64_t key, void* value, void (*destroy)(void*) noexcept) {
    entries_.push_back({key, value, destroy});
}

namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local void* pointer_of_thread = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local void* guest_of_thread = nullptr;

/// Null: the thread has already destroyed its own.
local_values* of_thread() noexcept {
    thread_store* const own = thread_store::own::get();
    return own == nullptr || !own->locals ? nullptr : &*own->locals;
}

ult_core* running_one() noexcept {
    dispatcher* const here = dispatcher::current();
    return here == nullptr ? nullptr : here->running();
}

}  // namespace

// Not inlined: see dispatcher::current().
[[gnu::noinline]] void*& task_local() noexcept {
    asm volatile("");
    dispatcher* const here = dispatcher::current_in_line();
    if (here == nullptr || here->running() == nullptr) return pointer_of_thread;
    return here->running()->local;
}

[[gnu::noinline]] task_place task_here() noexcept {
    asm volatile("");
    dispatcher* const here = dispatcher::current_in_line();
    if (here == nullptr) return {nullptr, nullptr, &pointer_of_thread};
    ult_core* const self = here->running();
    return {here->owner, self, self == nullptr ? &pointer_of_thread : &self->local};
}

// Not inlined: see dispatcher::current().
[[gnu::noinline]] void*& guest() noexcept {
    asm volatile("");
    dispatcher* const here = dispatcher::current_in_line();
    if (here == nullptr) return guest_of_thread;
    ult_core* const self = here->running();
    return self == nullptr ? guest_of_thread : self->guest;
}

void*& guest_of(work_unit& ult) noexcept {
    return static_cast<ult_core&>(ult).guest;
}

void* guest_or_null(work_unit& unit) noexcept {
    return ult_core::is_ult(unit) ? static_cast<ult_core&>(unit).guest : nullptr;
}

void* stack_of(const work_unit* unit) noexcept {
    void* bottom = nullptr;
    ult_registry::for_each([&](ult_core& each) {
        if (static_cast<work_unit*>(&each) == unit) bottom = each.memory().bottom();
    });
    return bottom;
}

bool has_ended(const ult_core& ult) noexcept {
    return ult.is_finished();
}

void*& guest_of(ult_core& ult) noexcept {
    return ult.guest;
}

work_unit& unit_of(ult_core& ult) noexcept {
    return ult;
}

work_unit* running_unit() noexcept {
    return running_one();
}

as_plain_thread::as_plain_thread(bool really) noexcept
    : stream_(really ? dispatcher::set_current(nullptr) : nullptr) {}

as_plain_thread::~as_plain_thread() {
    if (stream_ != nullptr) dispatcher::set_current(stream_);
}

std::uint64_t new_local_key() noexcept {
    static std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
}

void* find_local(std::uint64_t key) noexcept {
    ult_core* const self = running_one();
    if (self == nullptr) {
        const local_values* const own = of_thread();
        return own == nullptr ? nullptr : own->find(key);
    }
    return self->locals == nullptr ? nullptr : self->locals->find(key);
}

namespace {

/// Calls `act(ult_core&)` while that ULT cannot run.
template <typename Act>
void with_still(const ult_ref& of, Act act) {
    ult_record* const named = record_of(of);
    if (named == nullptr) refuse_empty_ref("use its ult_local values");
    bool ended = true;
    named->with_core([&](ult_core& core) {
        ult_core* const one = &core;
        const ult_registry::hold still({&one, 1});
        if (running_one() != &core && still.running(core) != nullptr) {
            throw error(errc::invalid,
                        "the ult_local values of a ULT that runs are its own: change them while it "
                        "is parked or ready, and kept from running");
        }
        ended = core.home() == nullptr || core.was_left_behind();
        if (!ended) act(core);
    });
    if (ended) {
        throw error(errc::invalid,
                    "this ULT has ended, and its ult_local values were destroyed: read them before "
                    "it ends");
    }
}

}  // namespace

void* find_local_of(const ult_ref& of, std::uint64_t key) {
    void* found = nullptr;
    with_still(of, [&](const ult_core& core) {
        if (core.locals != nullptr) found = core.locals->find(key);
    });
    return found;
}

void add_local_of(const ult_ref& of, std::uint64_t key, void* value,
                  void (*destroy)(void*) noexcept) {
    with_still(of, [&](ult_core& core) {
        if (core.locals == nullptr) core.locals = new local_values;
        core.locals->add(key, value, destroy);
    });
}

ult_ref ref_of(const ult& of) {
    return of.ref();
}

void add_local(std::uint64_t key, void* value, void (*destroy)(void*) noexcept) {
    ult_core* const self = running_one();
    if (self == nullptr) {
        local_values* const own = of_thread();
        if (own == nullptr) throw std::bad_alloc();
        return own->add(key, value, destroy);
    }
    if (self->locals == nullptr) self->locals = new local_values;
    self->locals->add(key, value, destroy);
}

}  // namespace amalgam::detail

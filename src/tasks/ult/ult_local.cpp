#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include <amalgam/tasks/extension/local.hpp>
#include <amalgam/tasks/ult_local.hpp>

#include "tasks/ult/dispatcher.hpp"
#include "tasks/ult/local_values.hpp"
#include "tasks/ult/record.hpp"
#include "tasks/ult/thread_store.hpp"

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

/// Null: the thread has already destroyed its own.
local_values* of_thread() noexcept {
    thread_store* const own = thread_store::own::get();
    return own == nullptr || !own->locals ? nullptr : &*own->locals;
}

ult_core* running_ult() noexcept {
    dispatcher* const here = dispatcher::current();
    return here == nullptr ? nullptr : here->running();
}

}  // namespace

// Not inlined: see dispatcher::current().
[[gnu::noinline]] void*& task_local() noexcept {
    asm volatile("");
    dispatcher* const here = dispatcher::current();
    if (here == nullptr || here->running() == nullptr) return pointer_of_thread;
    return here->running()->local;
}

std::uint64_t new_local_key() noexcept {
    static std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
}

void* find_local(std::uint64_t key) noexcept {
    ult_core* const self = running_ult();
    if (self == nullptr) {
        const local_values* const own = of_thread();
        return own == nullptr ? nullptr : own->find(key);
    }
    return self->locals == nullptr ? nullptr : self->locals->find(key);
}

void add_local(std::uint64_t key, void* value, void (*destroy)(void*) noexcept) {
    ult_core* const self = running_ult();
    if (self == nullptr) {
        local_values* const own = of_thread();
        if (own == nullptr) throw std::bad_alloc();
        return own->add(key, value, destroy);
    }
    if (self->locals == nullptr) self->locals = new local_values;
    self->locals->add(key, value, destroy);
}

}  // namespace amalgam::detail

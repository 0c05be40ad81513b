#include <memory>

#include <amalgam/tasks/pool.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/left_behind.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/idle/bell.hpp"
#include "tasks/streams/stream.hpp"

namespace amalgam {

void work_unit::move_to(pool& where) noexcept {
    pool* const before = home();
    if (before == &where) return;
    if (detail::ult_core::is_ult(*this)) {
        where.count_ults(1);
        if (before != nullptr) before->count_ults(-1);
    }
    home_.store(&where, std::memory_order_relaxed);
}

unit_kind work_unit::kind() const noexcept {
    if (detail::ult_core::is_ult(*this)) return unit_kind::ult;
    return detail::is_tasklet(*this) ? unit_kind::tasklet : unit_kind::other;
}

void work_unit::make_ready() noexcept {
    pool* where = home();
    if (where == nullptr) {
        detail::dispatcher* const here = detail::dispatcher::current();
        if (here == nullptr) return run();
        where = &here->work().main_pool();
    }
    where->push(*this);
}

pool::~pool() {
    detail::left_behind::end_homeless(*this);
    for (server* each = own_.next.load(std::memory_order_relaxed); each != nullptr;) {
        const std::unique_ptr<server> freed(each);
        each = each->next.load(std::memory_order_relaxed);
    }
}

bool pool::served() const noexcept {
    for (const server* each = &own_; each != nullptr;
         each = each->next.load(std::memory_order_acquire)) {
        if (each->who.load(std::memory_order_relaxed) != nullptr) return true;
    }
    return false;
}

void pool::cancel_waiting() noexcept {
    detail::left_behind::cancel_waiting(*this);
}

void pool::drop_left() noexcept {
    for (server* each = &own_; each != nullptr; each = each->next.load()) {
        if (detail::dispatcher* const who = each->who.load()) who->of().lose_pool();
    }
    detail::left_behind::end_all(*this, {});
}

[[gnu::noinline]] bool pool::on_own_stream() const noexcept {
    return detail::dispatcher::calls_for(*this);
}

void pool::notify() noexcept {
    wake(claim_sleeper());
}

detail::bell* pool::claim_sleeper() noexcept {
    for (server* each = &own_; each != nullptr; each = each->next.load(std::memory_order_acquire)) {
        detail::bell* const bell = each->bell.load(std::memory_order_acquire);
        if (bell != nullptr && bell->claim()) return bell;
    }
    return nullptr;
}

void pool::wake(detail::bell* claimed) noexcept {
    if (claimed != nullptr) claimed->strike();
}

bool pool::attach(detail::dispatcher& who, detail::bell& bell, bool stays, bool as_main) {
    const auto take = [&](server& slot) {
        detail::dispatcher* expected = nullptr;
        if (!slot.who.compare_exchange_strong(expected, &who)) return false;
        slot.bell.store(&bell);
        slot.stays.store(stays);
        return true;
    };
    if ((as_main || access_ == pool_access::one_stream) && take(own_)) {
        server_changed();
        return true;
    }
    if (access_ == pool_access::one_stream) return false;
    std::atomic<server*>* end = &own_.next;
    for (server* each = end->load(); each != nullptr; each = end->load()) {
        if (take(*each)) return true;
        end = &each->next;
    }
    auto more = std::make_unique<server>();
    take(*more);
    server* last = nullptr;
    while (!end->compare_exchange_strong(last, more.get())) {
        end = &last->next;
        last = nullptr;
    }
    more.release();
    return true;
}

void pool::prepare_to_detach(const detail::dispatcher& who) noexcept {
    for (server* each = &own_; each != nullptr; each = each->next.load()) {
        if (each->who.load() == &who) each->stays.store(false);
    }
}

bool pool::served_on_after(const detail::dispatcher& who) const noexcept {
    for (const server* each = &own_; each != nullptr; each = each->next.load()) {
        const detail::dispatcher* const other = each->who.load();
        if (other != nullptr && other != &who && each->stays.load()) return true;
    }
    return false;
}

bool pool::served_by(const detail::dispatcher& who) const noexcept {
    for (const server* each = &own_; each != nullptr; each = each->next.load()) {
        if (each->who.load() == &who) return true;
    }
    return false;
}

void pool::detach(const detail::dispatcher& who) noexcept {
    for (server* each = &own_; each != nullptr; each = each->next.load()) {
        if (each->who.load() != &who) continue;
        each->bell.store(nullptr);  // a thread that has just read it may ring it: harmless
        server_changed();
        each->stays.store(false);
        each->who.store(nullptr);
        return;
    }
}

void pool::detach_in_child(const detail::dispatcher& who) noexcept {
    in_parent_.store(true, std::memory_order_relaxed);
    detach(who);
}

void pool::count_ults(std::ptrdiff_t more) noexcept {
    detail::ready_work::count_ults(*this, more, detail::dispatcher::current());
}

}  // namespace amalgam

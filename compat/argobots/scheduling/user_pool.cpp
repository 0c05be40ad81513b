#include <mutex>
#include <unordered_map>

#include "callback.hpp"
#include "runtime.hpp"

// Pools of the user's functions.

namespace amalgam::argobots {

namespace {

/// Which thread each user's unit stands for.
class unit_table {
public:
    void set(ABT_unit unit, ABT_thread_opaque& who) {
        const std::lock_guard hold(busy_);
        threads_[unit] = &who;
    }
    void erase(ABT_unit unit) noexcept {
        const std::lock_guard hold(busy_);
        threads_.erase(unit);
    }
    ABT_thread_opaque* find(ABT_unit unit) noexcept {
        const std::lock_guard hold(busy_);
        const auto at = threads_.find(unit);
        return at == threads_.end() ? nullptr : at->second;
    }

private:
    std::mutex busy_;
    std::unordered_map<ABT_unit, ABT_thread_opaque*> threads_;
};

unit_table& units() {
    static unit_table all;
    return all;
}

/// What the user's function returns; `otherwise` if it throws, which is logged.
template <typename Result, typename Call>
Result result_of(const char* message, Result otherwise, Call&& call) noexcept {
    Result result = otherwise;
    called(message, [&] { result = call(); });
    return result;
}

struct visit_units {
    void (*visit)(void*, ABT_thread_opaque&);
    void* arg;
};

}  // namespace

ABT_thread_opaque* thread_of(ABT_unit unit) noexcept {
    const auto bits = reinterpret_cast<std::uintptr_t>(unit);
    if ((bits & 1) != 0) return reinterpret_cast<ABT_thread_opaque*>(bits - 1);
    return unit == ABT_UNIT_NULL ? nullptr : units().find(unit);
}

user_pool::user_pool(const pool_functions& functions, bool automatically) noexcept
    : ABT_pool_opaque(ABT_POOL_ACCESS_MPMC, automatically), old_form_(false), now_(functions) {}

user_pool::user_pool(const ABT_pool_def& functions, bool automatically) noexcept
    : ABT_pool_opaque(functions.access, automatically), old_form_(true), old_(functions) {}

int user_pool::init(ABT_pool_config config) {
    const int error =
        result_of("an exception escaped from init() of a pool", ABT_ERR_OTHER, [&]() -> int {
            if (old_form_) return old_.p_init == nullptr ? ABT_SUCCESS : old_.p_init(this, config);
            return now_.init == nullptr ? ABT_SUCCESS : now_.init(this, config);
        });
    began_ = error == ABT_SUCCESS;
    return error;
}

user_pool::~user_pool() {
    turn_away();
    if (!began_) return;
    drop_left();
    called("an exception escaped from free() of a pool", [this] {
        if (old_form_) {
            if (old_.p_free != nullptr) old_.p_free(this);
        } else if (now_.free != nullptr) {
            now_.free(this);
        }
    });
}

user_pool::thread* user_pool::take(ABT_pool_context why) {
    const between_ults no_waits;
    return result_of("an exception escaped from pop() of a pool", static_cast<thread*>(nullptr),
                     [&] { return old_form_ ? thread_of(old_.p_pop(this)) : now_.pop(this, why); });
}

user_pool::thread* user_pool::take_wait(double seconds, ABT_pool_context why) {
    const bool theirs = old_form_ ? old_.p_pop_timedwait != nullptr : now_.pop_wait != nullptr;
    if (!theirs) return ABT_pool_opaque::take_wait(seconds, why);
    thread* found = nullptr;
    called_in_ult("an exception escaped from pop_wait() of a pool", [&] {
        found = old_form_ ? thread_of(old_.p_pop_timedwait(this, ABT_get_wtime() + seconds))
                          : now_.pop_wait(this, seconds, why);
    });
    return found;
}

std::size_t user_pool::take_many(thread** to, std::size_t most, ABT_pool_context why) {
    if (old_form_ || now_.pop_many == nullptr) return ABT_pool_opaque::take_many(to, most, why);
    std::size_t number = 0;
    called("an exception escaped from pop_many() of a pool",
           [&] { now_.pop_many(this, to, most, &number, why); });
    return number;
}

void user_pool::add_many(thread* const* which, std::size_t number, ABT_pool_context why) {
    if (old_form_ || now_.push_many == nullptr)
        return ABT_pool_opaque::add_many(which, number, why);
    std::vector<ABT_unit> units_of;
    for (std::size_t i = 0; i < number; ++i) {
        if (which[i] == nullptr) continue;
        which[i]->state.store(ABT_THREAD_STATE_READY, std::memory_order_release);
        units_of.push_back(which[i]->unit());
    }
    if (units_of.empty()) return;
    const bool done = called("an exception escaped from push_many() of a pool",
                             [&] { now_.push_many(this, units_of.data(), units_of.size(), why); });
    std::atomic_thread_fence(std::memory_order_seq_cst);
    notify();
    if (!done) throw failure{ABT_ERR_OTHER};
}

bool user_pool::remove_thread(thread& who) {
    if (!old_form_ || old_.p_remove == nullptr) return false;
    return result_of("an exception escaped from remove() of a pool", false, [&] {
        if (old_.u_is_in_pool != nullptr && old_.u_is_in_pool(who.unit()) == ABT_FALSE)
            return false;
        return old_.p_remove(this, who.unit()) == ABT_SUCCESS;
    });
}

void user_pool::for_each(void (*show)(void* arg, thread& who), void* arg) {
    visit_units each{show, arg};
    if (old_form_ && old_.p_print_all != nullptr) {
        old_.p_print_all(this, &each, [](void* what, ABT_unit unit) {
            const auto& to = *static_cast<visit_units*>(what);
            if (ABT_thread_opaque* const who = thread_of(unit)) to.visit(to.arg, *who);
        });
    } else if (!old_form_ && now_.print_all != nullptr) {
        now_.print_all(this, &each, [](void* what, ABT_thread who) {
            const auto& to = *static_cast<visit_units*>(what);
            if (who != nullptr) to.visit(to.arg, *who);
        });
    }
}

void user_pool::print_threads(void* arg, void (*print)(void* arg, ABT_thread)) {
    if (!old_form_ && now_.print_all != nullptr) return now_.print_all(this, arg, print);
    ABT_pool_opaque::print_threads(arg, print);
}

void user_pool::print_units(void* arg, void (*print)(void* arg, ABT_unit)) {
    if (old_form_ && old_.p_print_all != nullptr) {
        old_.p_print_all(this, arg, print);
    } else {
        ABT_pool_opaque::print_units(arg, print);
    }
}

ABT_unit user_pool::create_unit(thread& who) {
    ABT_unit const made = result_of(
        "an exception escaped from create_unit() of a pool", ABT_UNIT_NULL,
        [&] { return old_form_ ? old_.u_create_from_thread(&who) : now_.create_unit(this, &who); });
    if (made == ABT_UNIT_NULL) throw failure{ABT_ERR_OTHER};
    units().set(made, who);
    return made;
}

void user_pool::free_unit(ABT_unit unit) noexcept {
    units().erase(unit);
    called("an exception escaped from free_unit() of a pool", [&] {
        if (old_form_) {
            old_.u_free(&unit);
        } else {
            now_.free_unit(this, unit);
        }
    });
}

// The fences: see pool::empty(). A user's functions need not be ordered.
bool user_pool::empty() const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    auto* const me = const_cast<user_pool*>(this);
    return result_of("an exception escaped from is_empty() of a pool", true, [&] {
        return old_form_ ? old_.p_get_size(me) == 0 : now_.is_empty(me) != ABT_FALSE;
    });
}

std::size_t user_pool::size() const noexcept {
    auto* const me = const_cast<user_pool*>(this);
    return result_of("an exception escaped from get_size() of a pool", std::size_t{0},
                     [&]() -> std::size_t {
                         if (old_form_) return old_.p_get_size(me);
                         if (now_.get_size != nullptr) return now_.get_size(me);
                         return now_.is_empty(me) != ABT_FALSE ? 0 : 1;
                     });
}

void user_pool::put(thread& who, ABT_pool_context why) noexcept {
    called("an exception escaped from push() of a pool", [&] {
        const between_ults no_waits;  // who is woken is pushed in turn
        if (old_form_) {
            old_.p_push(this, who.unit());
        } else {
            now_.push(this, who.unit(), why);
        }
    });
    std::atomic_thread_fence(std::memory_order_seq_cst);
    notify();
}

}  // namespace amalgam::argobots

#include <cstddef>
#include <mutex>
#include <span>

#include <amalgam/tasks.hpp>

#include "task_features.hpp"

namespace amalgam::bench {

namespace {

template <typename Mutex>
double lock_unlock(const length& l) {
    Mutex one;
    return alone(l, [&](execution_stream&) {
        one.lock();
        one.unlock();
    });
}

double lock_shared(const length& l) {
    shared_mutex one;
    return alone(l, [&](execution_stream&) {
        one.lock_shared();
        one.unlock_shared();
    });
}

double lock_with_priority(const length& l) {
    mutex one;
    return alone(l, [&](execution_stream&) {
        one.lock(lock_priority::low);
        one.unlock();
    });
}

double unlock_and_yield(const length& l) {
    mutex one;
    return alone(l, [&](execution_stream&) {
        one.lock();
        one.unlock_and_yield();
    });
}

/// Two futures and their ends, with `wait` in between.
template <typename Wait>
double two_futures(const length& l, Wait wait) {
    return alone(l, [&](execution_stream&) {
        promise<int> a, b;
        future<int> first = a.get_future(), second = b.get_future();
        a.set_value(1);
        b.set_value(2);
        wait(first, second);
        (void)first.get();
        (void)second.get();
    });
}

double futures_alone(const length& l) {
    return two_futures(l, [](future<int>&, future<int>&) {});
}

double futures_wait_any(const length& l) {
    return two_futures(l, [](future<int>& a, future<int>& b) { (void)wait_any(a, b); });
}

double futures_wait_all(const length& l) {
    return two_futures(l, [](future<int>& a, future<int>& b) { wait_all(a, b); });
}

double futures_test_any(const length& l) {
    return two_futures(l, [](future<int>& a, future<int>& b) { (void)test_any(a, b); });
}

double futures_test_all(const length& l) {
    return two_futures(l, [](future<int>& a, future<int>& b) { (void)test_all(a, b); });
}

double one_eventual(const length& l) {
    return alone(l, [](execution_stream&) {
        eventual<int> value;
        value.set(1);
        (void)value.wait();
    });
}

double gate_of_two(const length& l) {
    return alone(l, [](execution_stream&) {
        and_gate<int> both(2);
        both.set(1);
        both.set(2);
        (void)both.wait();
    });
}

double meet_at_barrier(const length& l) {
    barrier both(2);
    const auto meet = [&](ult&) { both.arrive_and_wait(); };
    return beside(l, meet, meet, meet);
}

double barrier_resize(const length& l) {
    barrier both(2);
    std::size_t parties = 1;
    return alone(l, [&](execution_stream&) { both.resize(parties ^= 3); });
}

double hand_over_by_condition(const length& l) {
    mutex one;
    condition_variable changed;
    bool mine = true;
    const auto give = [&](bool to_me) {
        mine = to_me;
        changed.notify_one();
    };
    return beside(
        l,
        [&](ult&) {
            std::unique_lock hold(one);
            changed.wait(hold, [&] { return !mine; });
            give(true);
        },
        [&](ult&) {
            std::unique_lock hold(one);
            give(false);
            changed.wait(hold, [&] { return mine; });
        },
        [&](ult&) { give(false); });
}

double local(const length& l) {
    ult_local<int> number;
    return alone(l, [&](execution_stream&) { ++*number; });
}

double free_semaphore(const length& l) {
    semaphore one(1);
    return alone(l, [&](execution_stream&) {
        one.acquire();
        one.release();
    });
}

double through_channel(const length& l) {
    channel<int> room(4);
    return alone(l, [&](execution_stream&) {
        room.push(1);
        (void)room.pop();
    });
}

constexpr question questions[] = {
    {"mutex", lock_unlock<mutex>},
    {"recursive_mutex", lock_unlock<recursive_mutex>},
    {"shared_mutex-shared", lock_shared},
    {"shared_mutex-exclusive", lock_unlock<shared_mutex>},
    {"lock-with-priority", lock_with_priority},
    {"unlock_and_yield", unlock_and_yield},
    {"two-futures", futures_alone},
    {"two-futures-wait_any", futures_wait_any},
    {"two-futures-wait_all", futures_wait_all},
    {"two-futures-test_any", futures_test_any},
    {"two-futures-test_all", futures_test_all},
    {"eventual", one_eventual},
    {"and_gate", gate_of_two},
    {"barrier", meet_at_barrier},
    {"barrier-resize", barrier_resize},
    {"condition_variable", hand_over_by_condition},
    {"ult_local", local},
    {"semaphore", free_semaphore},
    {"channel", through_channel},
};

}  // namespace

std::span<const question> questions_of_waits() noexcept {
    return questions;
}

}  // namespace amalgam::bench

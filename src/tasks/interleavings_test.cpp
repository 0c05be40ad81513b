#include "tasks/interleavings.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/and_gate.hpp>
#include <amalgam/tasks/barrier.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/eventual.hpp>
#include <amalgam/tasks/latch.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/once.hpp>
#include <amalgam/tasks/recursive_mutex.hpp>
#include <amalgam/tasks/semaphore.hpp>
#include <amalgam/tasks/shared_mutex.hpp>

namespace amalgam {
namespace {

constexpr int steps = 6;

/// One of the three ways to lock, at random; `deadline` is near.
template <typename Lock, typename Try, typename Timed>
bool one_way(actor& who, Lock lock, Try attempt, Timed timed) {
    switch (who.below(3)) {
        case 0:
            lock();
            return true;
        case 1:
            return attempt();
        default:
            return timed(who.soon());
    }
}

/// Locks in one of the three ways and counts, with a pause in between; `inside` runs while locked.
template <typename Mutex, typename Inside>
void lock_and_count(actor& who, Mutex& guard, long& counter, std::atomic<long>& entered,
                    Inside inside) {
    for (int i = 0; i < steps; ++i) {
        if (!one_way(
                who, [&] { guard.lock(); }, [&] { return guard.try_lock(); },
                [&](auto time) { return guard.try_lock_for(time); })) {
            continue;
        }
        const long before = counter;
        who.pause();
        inside();
        counter = before + 1;
        guard.unlock();
        ++entered;
        who.pause();
    }
}

TEST_F(interleavings, a_mutex_lets_one_in_and_is_free_at_the_end) {
    for (int round = 0; round < rounds; ++round) {
        mutex guard;
        long counter = 0;
        std::atomic<long> entered = 0;
        crowd(
            some_actors(), [&](actor& who) { lock_and_count(who, guard, counter, entered, [] {}); },
            [&](actor& who) -> task<> {
                for (int i = 0; i < steps; ++i) {
                    co_await guard.start_lock();
                    const long before = counter;
                    if (who.chance(30)) co_await who.elsewhere();
                    counter = before + 1;
                    guard.unlock();
                    ++entered;
                }
            });
        EXPECT_EQ(counter, entered);
        ASSERT_TRUE(guard.try_lock());
        guard.unlock();
    }
}

TEST_F(interleavings, a_recursive_mutex_lets_one_in_as_often_as_it_likes) {
    for (int round = 0; round < rounds; ++round) {
        recursive_mutex guard;
        long counter = 0;
        std::atomic<long> entered = 0;
        crowd(
            some_actors(),
            [&](actor& who) {
                lock_and_count(who, guard, counter, entered, [&] {
                    EXPECT_TRUE(guard.try_lock());
                    who.pause();
                    guard.unlock();
                });
            },
            [&](actor& who) -> task<> {
                for (int i = 0; i < steps; ++i) {
                    co_await who.elsewhere();
                    if (!guard.try_lock()) continue;
                    ++counter;
                    guard.unlock();
                    ++entered;
                }
            });
        EXPECT_EQ(counter, entered);
        ASSERT_TRUE(guard.try_lock());
        guard.unlock();
    }
}

TEST_F(interleavings, a_shared_mutex_keeps_writers_apart_and_is_free_at_the_end) {
    for (int round = 0; round < rounds; ++round) {
        shared_mutex guard;
        long first = 0, second = 0;
        crowd(
            some_actors(),
            [&](actor& who) {
                for (int i = 0; i < steps; ++i) {
                    if (who.chance(40)) {
                        if (!one_way(
                                who, [&] { guard.lock(); }, [&] { return guard.try_lock(); },
                                [&](auto time) { return guard.try_lock_for(time); })) {
                            continue;
                        }
                        ++first;
                        who.pause();
                        ++second;
                        guard.unlock();
                    } else {
                        if (!one_way(
                                who, [&] { guard.lock_shared(); },
                                [&] { return guard.try_lock_shared(); },
                                [&](auto time) { return guard.try_lock_shared_for(time); })) {
                            continue;
                        }
                        const long before = first;
                        who.pause();
                        EXPECT_EQ(before, second);
                        guard.unlock_shared();
                    }
                }
            },
            [&](actor& who) -> task<> {
                for (int i = 0; i < steps; ++i) {
                    if (who.chance(40)) {
                        co_await guard.start_lock();
                        ++first;
                        if (who.chance(30)) co_await who.elsewhere();
                        ++second;
                        guard.unlock();
                    } else {
                        co_await guard.start_lock_shared();
                        const long before = first;
                        if (who.chance(30)) co_await who.elsewhere();
                        EXPECT_EQ(before, second);
                        guard.unlock_shared();
                    }
                }
            });
        EXPECT_EQ(first, second);
        ASSERT_TRUE(guard.try_lock());
        guard.unlock();
    }
}

TEST_F(interleavings, a_semaphore_keeps_its_permits) {
    for (int round = 0; round < rounds; ++round) {
        const std::size_t most = 1 + seeds() % 4;
        semaphore permits(most);
        std::atomic<std::size_t> taken = 0;
        const auto enter = [&](std::size_t count) { EXPECT_LE(taken += count, most); };
        const auto leave = [&](std::size_t count) {
            taken -= count;
            permits.release(count);
        };
        crowd(
            some_actors(),
            [&](actor& who) {
                for (int i = 0; i < steps; ++i) {
                    const std::size_t count = 1 + who.below(most);
                    if (!one_way(
                            who, [&] { permits.acquire(count); },
                            [&] { return permits.try_acquire(count); },
                            [&](auto time) { return permits.try_acquire_for(time, count); })) {
                        continue;
                    }
                    enter(count);
                    who.pause();
                    leave(count);
                }
            },
            [&](actor& who) -> task<> {
                for (int i = 0; i < steps; ++i) {
                    const std::size_t count = 1 + who.below(most);
                    co_await permits.start_acquire(count);
                    enter(count);
                    if (who.chance(30)) co_await who.elsewhere();
                    leave(count);
                }
            });
        ASSERT_EQ(permits.available(), most);
    }
}

TEST_F(interleavings, a_barrier_lets_nobody_through_before_all_have_come) {
    for (int round = 0; round < rounds; ++round) {
        const std::size_t actors = some_actors();
        barrier meet(actors);
        // Who drops out in which round is decided beforehand, and so how many each round expects.
        std::array<int, most_actors> last_meeting{};
        std::array<int, steps> expected{}, drops{};
        for (std::size_t i = 0; i < actors; ++i) {
            last_meeting[i] = static_cast<int>(seeds() % (2 * steps));
            for (int each = 0; each < steps && each <= last_meeting[i]; ++each)
                ++expected[static_cast<std::size_t>(each)];
            if (last_meeting[i] < steps) ++drops[static_cast<std::size_t>(last_meeting[i])];
        }
        std::array<std::atomic<int>, steps> arrived{}, lasts{};
        const auto through = [&](std::size_t each, bool was_last) {
            EXPECT_EQ(arrived[each], expected[each]);
            lasts[each] += was_last;
        };
        crowd(
            actors,
            [&](actor& who) {
                const int last = last_meeting[who.index];
                for (int i = 0; i < steps && i <= last; ++i) {
                    const auto each = static_cast<std::size_t>(i);
                    ++arrived[each];
                    who.pause();
                    if (i == last) return meet.arrive_and_drop();
                    through(each, meet.arrive_and_wait());
                }
            },
            [&](actor& who) -> task<> {
                const int last = last_meeting[who.index];
                for (int i = 0; i < steps && i <= last; ++i) {
                    const auto each = static_cast<std::size_t>(i);
                    ++arrived[each];
                    if (who.chance(30)) co_await who.elsewhere();
                    if (i == last) {
                        meet.arrive_and_drop();
                        break;
                    }
                    const bool was_last = co_await meet.start_arrive();
                    through(each, was_last);
                }
            });
        for (std::size_t each = 0; each < steps; ++each) {
            EXPECT_EQ(arrived[each], expected[each]);
            EXPECT_LE(lasts[each], 1);
            if (drops[each] == 0 && expected[each] != 0) {
                EXPECT_EQ(lasts[each], 1);
            }
        }
    }
}

/// Everything that is set once, by any number of setters, and that all wait for.
struct things_set_once {
    explicit things_set_once(std::size_t actors)
        : all_here(actors), gate(actors, [this](std::span<std::size_t> all) {
              for (const std::size_t each : all)
                  sum += each;
          }) {}

    void check(std::size_t actors, int value, std::size_t values) const {
        EXPECT_EQ(before, 1);
        EXPECT_EQ(value, 42);
        EXPECT_EQ(values, actors);
        EXPECT_EQ(sum, actors * (actors - 1) / 2);
    }

    int before = 0;
    event started;
    latch all_here;
    eventual<int> answer;
    std::size_t sum = 0;
    and_gate<std::size_t> gate;
};

TEST_F(interleavings, what_is_set_once_reaches_everybody) {
    for (int round = 0; round < rounds; ++round) {
        const std::size_t actors = some_actors();
        things_set_once things(actors);
        const auto wait = [](actor& who, auto& what) {
            while (who.chance(50)) {
                if (what.wait_for(who.soon())) return;
            }
            static_cast<void>(what.wait());
        };
        const std::size_t setter = seeds() % actors;
        const auto set = [&](actor& who) {
            if (who.index != setter) return;
            things.before = 1;
            things.started.set();
            things.answer.set(42);
        };
        crowd(
            actors,
            [&](actor& who) {
                who.pause();
                set(who);
                things.all_here.count_down();
                wait(who, things.started);
                EXPECT_EQ(things.before, 1);
                who.pause();
                things.gate.set(who.index);
                wait(who, things.gate);
                wait(who, things.answer);
                wait(who, things.all_here);
                things.check(actors, things.answer.wait(), things.gate.wait().size());
            },
            [&](actor& who) -> task<> {
                co_await who.elsewhere();
                set(who);
                things.all_here.count_down();
                co_await things.started.start_wait();
                EXPECT_EQ(things.before, 1);
                things.gate.set(who.index);
                co_await things.all_here.start_wait();
                const auto values = co_await things.gate.start_wait();
                const int answer = co_await things.answer.start_wait();
                things.check(actors, answer, values.size());
            });
    }
}

TEST_F(interleavings, what_is_called_once_succeeds_once) {
    for (int round = 0; round < rounds; ++round) {
        once_flag flag;
        int done = 0;
        const auto attempt = [&](actor& who) {
            try {
                call_once(flag, [&] {
                    if (who.chance(40)) throw std::runtime_error("not now");
                    ++done;
                });
                EXPECT_EQ(done, 1);
            } catch (const std::runtime_error&) {
                // Its own exception or, in a coroutine, the refusal to wait.
            }
        };
        crowd(
            some_actors(),
            [&](actor& who) {
                for (int i = 0; i < steps; ++i)
                    attempt(who);
            },
            [&](actor& who) -> task<> {
                for (int i = 0; i < steps; ++i) {
                    co_await who.elsewhere();
                    attempt(who);
                }
            });
        EXPECT_LE(done, 1);
    }
}

}  // namespace
}  // namespace amalgam

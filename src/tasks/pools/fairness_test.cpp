// The longest waiter is served first, whoever gives up meanwhile: random programs on a driven
// stream in virtual time, for everything that promises it.

#include <cstddef>
#include <set>
#include <utility>

#include <amalgam/core/random.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/semaphore.hpp>
#include <amalgam/tasks/shared_mutex.hpp>

#include "tasks/streams/stream_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct fairness : driven_stream_test {
    using time_point = execution_stream::time_point;
    static constexpr std::size_t arrivals = 3000;

    std::size_t below(std::size_t limit) { return dice() % limit; }

    /// Adds a waiter: a ULT, one that gives up, or a coroutine. `wait(deadline)` returns whether it
    /// succeeded; `start()` is the same as a task.
    template <typename Wait, typename Start>
    void arrive(Wait wait, Start start) {
        const std::size_t kind = below(3);
        if (kind == 0) {
            static_cast<void>(spawn_coroutine(stream, in_line(*this, start)));
        } else {
            const auto deadline =
                kind == 1 ? time_point::max() : time.now() + std::chrono::microseconds(below(60));
            post(stream, [=, this] {
                const turn mine(*this);
                wait(deadline) ? mine.came() : mine.gave_up();
            });
        }
        run();
    }
    /// May let time pass and others continue.
    void go_on() {
        ++happened;
        if (below(3) == 0) advance(std::chrono::microseconds(below(20)));
        if (below(2) == 0) run();
    }
    void TearDown() override {
        EXPECT_GT(waits, arrivals / 20);
        EXPECT_GT(late, arrivals / 20);
    }

    /// Placed around a wait. Whoever returns, at once or after waiting, must be the earliest
    /// arrival of those that have neither returned nor given up. Those served before a new one
    /// arrives have always run before it.
    class turn {
    public:
        explicit turn(fairness& line)
            : line_(line), ticket_(line.tickets++), happened_(++line.happened) {
            line.pending.insert(ticket_);
        }
        void came() const {
            if (line_.happened != happened_) ++line_.waits;
            ++line_.happened;
            EXPECT_EQ(ticket_, *line_.pending.begin());
            line_.pending.erase(ticket_);
        }
        void gave_up() const {
            ++line_.happened;
            ++line_.late;
            line_.pending.erase(ticket_);
        }

    private:
        fairness& line_;
        const std::size_t ticket_, happened_;
    };
    template <typename Start>
    static task<> in_line(fairness& line, Start start) {
        const turn mine(line);
        co_await start();
        mine.came();
    }

    seeded_random dice{7};
    std::size_t tickets = 0, happened = 0, waits = 0, late = 0;
    std::set<std::size_t> pending;
};

TEST_F(fairness, a_mutex_is_handed_over_in_the_order_of_arrival) {
    mutex guard;
    bool held = false;
    const auto unlock = [&] {
        if (!std::exchange(held, false)) return false;
        guard.unlock();
        return true;
    };
    for (std::size_t i = 0; i < arrivals; ++i) {
        arrive([&](time_point deadline) { return guard.try_lock_until(deadline) && (held = true); },
               [&]() -> task<> {
                   co_await guard.start_lock();
                   held = true;
               });
        if (below(4) != 0) unlock();
        go_on();
    }
    while (unlock())
        run();
    EXPECT_TRUE(guard.try_lock());
}

TEST_F(fairness, a_shared_mutex_is_entered_in_the_order_of_arrival) {
    shared_mutex guard;
    int readers = 0;
    bool writing = false;
    const auto unlock = [&] {
        if (std::exchange(writing, false)) {
            guard.unlock();
            return true;
        }
        if (readers == 0) return false;
        --readers;
        guard.unlock_shared();
        return true;
    };
    for (std::size_t i = 0; i < arrivals; ++i) {
        if (below(3) == 0) {
            arrive(
                [&](time_point deadline) {
                    return guard.try_lock_until(deadline) && (writing = true);
                },
                [&]() -> task<> {
                    co_await guard.start_lock();
                    writing = true;
                });
        } else {
            arrive(
                [&](time_point deadline) {
                    return guard.try_lock_shared_until(deadline) && ++readers != 0;
                },
                [&]() -> task<> {
                    co_await guard.start_lock_shared();
                    ++readers;
                });
        }
        EXPECT_FALSE(writing && readers != 0);
        if (below(4) != 0) unlock();
        go_on();
    }
    while (unlock())
        run();
    EXPECT_TRUE(guard.try_lock());
}

TEST_F(fairness, a_semaphore_serves_in_the_order_of_arrival) {
    semaphore permits(0);
    std::size_t given = 0, taken = 0;
    const auto release = [&](std::size_t count) {
        given += count;
        permits.release(count);
    };
    for (std::size_t i = 0; i < arrivals; ++i) {
        const std::size_t count = 1 + below(3);
        arrive(
            [&, count](time_point deadline) {
                const bool got = permits.try_acquire_until(deadline, count);
                if (got) taken += count;
                return got;
            },
            [&, count]() -> task<> {
                co_await permits.start_acquire(count);
                taken += count;
            });
        release(below(4));
        go_on();
    }
    release(3 * arrivals);
    run();
    EXPECT_EQ(permits.available(), given - taken);
}

TEST_F(fairness, a_channel_gives_items_in_order_to_poppers_in_order) {
    channel<std::size_t> items(2);
    std::size_t pushed = 0, popped = 0;
    for (std::size_t i = 0; i < arrivals; ++i) {
        arrive(
            [&](time_point deadline) {
                const auto item = items.pop_until(deadline);
                if (item) ++popped;
                return item.has_value();
            },
            [&]() -> task<> {
                if (co_await items.start_pop()) ++popped;
            });
        for (std::size_t more = below(3); more != 0; --more)
            pushed += items.try_push(pushed);
        go_on();
    }
    pushed -= items.size();
    items.close();
    run();
    while (items.try_pop())
        ++popped, ++pushed;
    EXPECT_EQ(popped, pushed);
}

TEST_F(fairness, a_channel_lets_pushers_in_in_the_order_of_arrival) {
    channel<std::size_t> items(2);
    std::size_t pushed = 0, popped = 0;
    for (std::size_t i = 0; i < arrivals; ++i) {
        arrive(
            [&, i](time_point deadline) {
                const bool done = items.push_until(i, deadline);
                pushed += done;
                return done;
            },
            [&, i]() -> task<> {
                co_await items.start_push(i);
                ++pushed;
            });
        for (std::size_t more = below(3); more != 0; --more)
            popped += items.try_pop().has_value();
        go_on();
    }
    for (; items.try_pop(); run())
        ++popped;
    EXPECT_EQ(popped, pushed);
}

}  // namespace
}  // namespace amalgam

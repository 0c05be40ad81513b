#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/semaphore.hpp>

#include "tasks/interleavings.hpp"

namespace amalgam {
namespace {

constexpr int items_each = 8;

/// Move-only; the number of living ones is checked.
class parcel {
public:
    parcel(std::size_t from, int number) : from_(from), number_(number) { ++alive; }
    parcel(parcel&& other) noexcept
        : from_(other.from_), number_(other.number_), full_(std::exchange(other.full_, false)) {
        ++alive;
    }
    ~parcel() { --alive; }

    bool full() const noexcept { return full_; }
    std::pair<std::size_t, int> content() const {
        EXPECT_TRUE(full_);
        return {from_, number_};
    }
    static inline std::atomic<int> alive = 0;

private:
    std::size_t from_;
    int number_;
    bool full_ = true;
};

TEST_F(interleavings, a_channel_loses_nothing_doubles_nothing_and_keeps_the_order) {
    for (int round = 0; round < rounds; ++round) {
        const std::size_t actors = some_actors();
        std::array<bool, most_actors> pushes{true, false};
        std::atomic<int> pushers = 1, count = 0;
        for (std::size_t i = 2; i < actors; ++i)
            pushers += pushes[i] = seeds() % 2 == 0;
        const int expected = pushers * items_each;

        channel<parcel> items(1 + seeds() % 4);
        using numbers = std::array<int, most_actors>;
        const auto popped = [&](numbers& last, const parcel& item) {
            const auto [from, number] = item.content();
            EXPECT_LT(std::exchange(last[from], number), number);
            ++count;
        };
        const auto push = [&](actor& who, int number) {
            parcel item(who.index, number);
            switch (who.below(3)) {
                case 0:
                    return items.push(std::move(item));
                case 1:
                    while (!items.try_push(std::move(item)))
                        this_task::yield();
                    return;
                default:
                    while (!items.push_for(std::move(item), who.soon()))
                        EXPECT_TRUE(item.full());
            }
        };
        const auto pop_all = [&](actor& who) {
            numbers last{};
            for (;;) {
                const auto way = who.below(3);
                const auto item = way == 0   ? items.pop()
                                  : way == 1 ? items.try_pop()
                                             : items.pop_for(who.soon());
                if (item) popped(last, *item);
                if (!item && way == 0) break;
                if (!item && way == 1) this_task::yield();
                who.pause();
            }
        };
        crowd(
            actors,
            [&](actor& who) {
                if (!pushes[who.index]) return pop_all(who);
                for (int i = 1; i <= items_each; ++i) {
                    push(who, i);
                    who.pause();
                }
                if (--pushers == 0) items.close();
            },
            [&](actor& who) -> task<> {
                numbers last{};
                for (int i = 1; pushes[who.index] && i <= items_each; ++i) {
                    co_await items.start_push(parcel(who.index, i));
                    if (who.chance(30)) co_await who.elsewhere();
                }
                if (pushes[who.index] && --pushers == 0) items.close();
                while (const auto item = co_await items.start_pop()) {
                    popped(last, *item);
                    if (who.chance(30)) co_await who.elsewhere();
                }
            });
        EXPECT_EQ(count, expected);
        EXPECT_EQ(items.size(), 0u);
        ASSERT_EQ(parcel::alive, 0);
    }
}

/// Cancels waiting ULTs, at any point of their wait.
struct cancelable {
    void spawn_some(interleavings& test, std::size_t count, const std::function<void()>& body) {
        for (std::size_t i = 0; i < count; ++i)
            waiting.push_back(spawn(test.streams[test.seeds() % 2], body));
    }
    void cancel_one(std::size_t which) { waiting[which % waiting.size()].cancel(); }
    void cancel_all() {
        for (ult& each : waiting) {
            each.cancel();
            try {
                each.join();
            } catch (const error& why) {
                EXPECT_EQ(why.code(), errc::canceled);
            }
        }
    }
    std::vector<ult> waiting;
};

TEST_F(interleavings, poppers_that_are_canceled_lose_no_item) {
    for (int round = 0; round < rounds / 4; ++round) {
        channel<int> items(1);
        std::atomic<int> popped = 0;
        cancelable poppers;
        poppers.spawn_some(*this, 1 + seeds() % 4, [&] {
            while (items.pop())
                ++popped;
        });
        int pushed = 0;
        for (int i = 0; i < items_each; ++i) {
            pushed += items.try_push(i);
            if (seeds() % 2 == 0) this_task::yield();
            if (seeds() % 4 == 0) poppers.cancel_one(seeds());
        }
        poppers.cancel_all();
        while (items.try_pop())
            ++popped;
        ASSERT_EQ(popped, pushed);
    }
}

TEST_F(interleavings, acquirers_that_are_canceled_lose_no_permit) {
    for (int round = 0; round < rounds / 4; ++round) {
        semaphore permits(0);
        std::atomic<std::size_t> taken = 0;
        cancelable acquirers;
        acquirers.spawn_some(*this, 1 + seeds() % 4, [&] {
            for (std::size_t i = 0;; ++i) {
                permits.acquire(1 + i % 2);
                taken += 1 + i % 2;
            }
        });
        std::size_t given = 0;
        for (int i = 0; i < items_each; ++i) {
            const std::size_t count = seeds() % 4;
            permits.release(count);
            given += count;
            if (seeds() % 2 == 0) this_task::yield();
            if (seeds() % 4 == 0) acquirers.cancel_one(seeds());
        }
        acquirers.cancel_all();
        ASSERT_EQ(permits.available() + taken, given);
    }
}

/// A hand-made channel: a queue of two, a mutex and two condition variables.
struct two_places {
    mutex guard;
    condition_variable filled, emptied;
    std::deque<std::pair<std::size_t, int>> items;
};

TEST_F(interleavings, condition_variables_miss_no_notice) {
    for (int round = 0; round < rounds; ++round) {
        const std::size_t actors = 2 * (1 + seeds() % 3);  // even ones push, odd ones pop
        two_places box;
        std::array<std::atomic<int>, 6 * items_each> came{};
        const auto at = [](std::size_t who, int number) {
            return who / 2 * items_each + static_cast<std::size_t>(number);
        };
        const auto has_room = [&] { return box.items.size() < 2; };
        const auto has_item = [&] { return !box.items.empty(); };
        const auto put = [&](actor& who, int number) {
            box.items.emplace_back(who.index, number);
            box.filled.notify_one();
        };
        const auto take = [&](actor& who) {
            const auto [from, number] = box.items.front();
            box.items.pop_front();
            ++came[at(from, number)];
            who.chance(50) ? box.emptied.notify_one() : box.emptied.notify_all();
        };
        crowd(
            actors,
            [&](actor& who) {
                for (int i = 0; i < items_each; ++i) {
                    const bool puts = who.index % 2 == 0;
                    const auto ready = [&] { return puts ? has_room() : has_item(); };
                    auto& changed = puts ? box.emptied : box.filled;
                    std::unique_lock hold(box.guard);
                    while (!ready()) {
                        if (who.chance(50)) {
                            changed.wait(hold, ready);
                        } else {
                            changed.wait_for(hold, who.soon());
                        }
                    }
                    puts ? put(who, i) : take(who);
                    who.pause();
                }
            },
            [&](actor& who) -> task<> {
                for (int i = 0; i < items_each; ++i) {
                    const bool puts = who.index % 2 == 0;
                    auto& changed = puts ? box.emptied : box.filled;
                    co_await box.guard.start_lock();
                    std::unique_lock hold(box.guard, std::adopt_lock);
                    while (puts ? !has_room() : !has_item())
                        co_await changed.start_wait(hold);
                    puts ? put(who, i) : take(who);
                    if (who.chance(30)) co_await who.elsewhere();
                }
            });
        for (std::size_t i = 0; i < actors / 2 * items_each; ++i)
            ASSERT_EQ(came[i], 1);
    }
}

}  // namespace
}  // namespace amalgam

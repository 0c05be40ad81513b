#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/looping_scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

struct lettered final : work_unit {
    explicit lettered(char which) noexcept : work_unit([](work_unit&) noexcept {}), letter(which) {}
    char letter;
};

/// As a user writes one: push, pop, empty and size only.
class users_pool final : public pool {
public:
    users_pool() : pool(pool_access::any_stream) {}
    ~users_pool() override { drop_left(); }
    void push(work_unit& unit) noexcept override {
        {
            const std::lock_guard hold(lock_);
            units_.push_back(&unit);
        }
        notify();
    }
    work_unit* pop() noexcept override {
        const std::lock_guard hold(lock_);
        if (units_.empty()) return nullptr;
        work_unit* const first = units_.front();
        units_.pop_front();
        return first;
    }
    bool empty() const noexcept override { return size() == 0; }
    std::size_t size() const noexcept override {
        const std::lock_guard hold(lock_);
        return units_.size();
    }

private:
    mutable std::mutex lock_;
    std::deque<work_unit*> units_;
};

std::string letters(std::span<work_unit* const> units) {
    std::string text;
    for (const work_unit* each : units)
        text += static_cast<const lettered*>(each)->letter;
    return text;
}
std::string seen_in(pool& where) {
    std::string text;
    where.visit([&](const work_unit& each) { text += static_cast<const lettered&>(each).letter; });
    return text;
}

template <typename Pool>
struct pool_batches : testing::Test {};
using fifo_kinds = testing::Types<fifo_pool, shared_fifo_pool, priority_pool, users_pool>;
TYPED_TEST_SUITE(pool_batches, fifo_kinds);

TYPED_TEST(pool_batches, push_pop_and_visit_many_in_order) {
    TypeParam tested;
    std::deque<lettered> units;
    std::vector<work_unit*> all;
    for (char each = 'a'; each < 'u'; ++each)
        all.push_back(&units.emplace_back(each));
    tested.push_many(std::span(all).first(3));
    tested.push_many({});
    tested.push_many(std::span(all).subspan(3));
    EXPECT_EQ(tested.size(), 20u);
    EXPECT_EQ(seen_in(tested), "abcdefghijklmnopqrst");

    std::vector<work_unit*> into(4);
    EXPECT_EQ(tested.pop_many({}), 0u);
    EXPECT_EQ(tested.pop_many(into), 4u);
    EXPECT_EQ(letters(into), "abcd");
    EXPECT_EQ(tested.size(), 16u);
    EXPECT_THROW(tested.visit([](const work_unit&) { throw std::runtime_error("seen enough"); }),
                 std::runtime_error);
    into.resize(100);
    EXPECT_EQ(tested.pop_many(into), 16u);
    EXPECT_EQ(letters(std::span(into).first(16)), "efghijklmnopqrst");
    EXPECT_TRUE(tested.empty());
    EXPECT_EQ(tested.pop_many(into), 0u);
    EXPECT_EQ(seen_in(tested), "");
}

TEST(pool_batches_of, lifo_and_stealing_pools_are_in_the_order_of_pop) {
    lettered a('a'), b('b'), c('c');
    const std::vector<work_unit*> all{&a, &b, &c};
    lifo_pool newest_first;
    newest_first.push_many(all);
    EXPECT_EQ(seen_in(newest_first), "cba");
    std::vector<work_unit*> into(3);
    EXPECT_EQ(newest_first.pop_many(into), 3u);
    EXPECT_EQ(letters(into), "cba");
    work_stealing_pool stolen_from;
    stolen_from.push_many(all);
    EXPECT_EQ(seen_in(stolen_from), "abc");
    EXPECT_EQ(stolen_from.pop_many(into), 3u);
    EXPECT_EQ(letters(into), "abc");
}

TEST(pool_batches_of, push_many_wakes_the_streams_that_sleep) {
    shared_fifo_pool all;
    const auto over = [&] { return std::make_unique<basic_scheduler>(std::vector<pool*>{&all}); };
    execution_stream one(over()), two(over());
    // Each waits for the other: one stream alone could not run both.
    struct meets final : work_unit {
        explicit meets(std::atomic<int>& met)
            : work_unit([](work_unit& unit) noexcept {
                  auto& of = static_cast<meets&>(unit).here;
                  ++of;
                  while (of < 2)
                      std::this_thread::yield();
              }),
              here(met) {}
        std::atomic<int>& here;
    };
    std::atomic<int> here{0};
    meets a(here), b(here);
    all.push_many(std::vector<work_unit*>{&a, &b});
    while (here < 2)
        std::this_thread::yield();
    one.stop();
    two.stop();
}

TEST(pool_batches_of, another_streams_own_pool_are_refused) {
    execution_stream stream;
    try {
        stream.main_pool().visit([](const work_unit&) {});
        ADD_FAILURE() << "it was not refused";
    } catch (const error& why) {
        EXPECT_EQ(why.code().code, errc::invalid);
    }
    EXPECT_THROW(stream.main_pool().pop_for(std::chrono::seconds(1)), error);
}

TEST(pop_until, returns_at_its_deadline_or_with_a_unit) {
    shared_fifo_pool mine;
    EXPECT_EQ(mine.pop_for(std::chrono::milliseconds(1)), nullptr);
    EXPECT_EQ(mine.pop_until(pool::time_point::min()), nullptr);
    lettered late('x');
    std::thread pusher([&] { mine.push(late); });
    EXPECT_EQ(mine.pop_until(pool::time_point::max()), &late);
    pusher.join();
    mine.push(late);
    EXPECT_EQ(mine.pop_until(pool::time_point::min()), &late);
}

TEST(pop_until, in_a_ult_parks_it) {
    shared_fifo_pool mine;
    execution_stream stream;
    lettered late('x');
    ult popper = spawn(stream, [&] { EXPECT_EQ(mine.pop_for(std::chrono::hours(1)), &late); });
    spawn(stream, [&] { mine.push(late); }).join();
    popper.join();
}

TEST(pop_until, in_a_tasklet_does_not_wait) {
    shared_fifo_pool mine;
    execution_stream stream;
    spawn_tasklet(stream, [&] { EXPECT_EQ(mine.pop_for(std::chrono::hours(1)), nullptr); }).join();
}

/// Its run() waits in pop_until() alone.
class popping final : public looping_scheduler {
public:
    popping(pool& mine, std::atomic<int>& at_deadline) : mine_(&mine), at_deadline_(at_deadline) {}
    void run(scheduler_loop& loop) override {
        while (!loop.should_stop()) {
            if (work_unit* const unit = mine_->pop_for(std::chrono::milliseconds(1))) {
                loop.run(*unit);
            } else {
                ++at_deadline_;
            }
        }
    }
    std::span<pool* const> pools() const noexcept override { return {&mine_, 1}; }

private:
    pool* mine_;
    std::atomic<int>& at_deadline_;
};

TEST(pop_until, in_a_schedulers_loop_sleeps_and_serves_timers) {
    for (const bool shared : {false, true}) {
        std::unique_ptr<pool> mine = std::make_unique<fifo_pool>();
        if (shared) mine = std::make_unique<shared_fifo_pool>();
        std::atomic<int> at_deadline{0};
        {
            execution_stream stream(std::make_unique<popping>(*mine, at_deadline));
            for (int i = 0; i < 20; ++i)
                spawn(stream, [] { this_task::yield(); }).join();
            spawn(stream, [] { this_task::sleep_for(std::chrono::milliseconds(5)); }).join();
            while (at_deadline == 0)
                std::this_thread::yield();
        }
    }
}

TEST(pop_until, on_a_driven_stream_does_not_wait) {
    fifo_pool mine;
    std::atomic<int> at_deadline{0};
    execution_stream stream(std::make_unique<popping>(mine, at_deadline),
                            execution_stream_options{.driven = true});
    int ran = 0;
    post(mine, [&] { ++ran; });
    stream.run_ready();
    EXPECT_EQ(ran, 1);
}

TEST(work_unit, knows_its_kind) {
    execution_stream stream(execution_stream_options{.driven = true});
    lettered own('o');
    std::vector<unit_kind> kinds;
    post(stream, [&] {
        post(stream, [] {});
        post_tasklet(stream, [] {});
        stream.main_pool().push(own);
        stream.main_pool().visit([&](const work_unit& each) { kinds.push_back(each.kind()); });
    });
    stream.run_ready();
    EXPECT_EQ(kinds,
              (std::vector<unit_kind>{unit_kind::ult, unit_kind::tasklet, unit_kind::other}));
}

}  // namespace
}  // namespace amalgam

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/extension/direct_yield.hpp>
#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/extension/local.hpp>
#include <amalgam/tasks/extension/plain_thread.hpp>
#include <amalgam/tasks/extension/run_another.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

TEST(task_local, every_ult_and_thread_has_its_own) {
    int of_thread = 0, of_first = 0, of_second = 0;
    detail::task_local() = &of_thread;
    execution_stream stream;
    auto keeps = [](int& mine) {
        return [&mine] {
            const bool fresh = detail::task_local() == nullptr;
            detail::task_local() = &mine;
            for (int i = 0; i < 10; ++i)
                this_task::yield();
            mine = fresh && detail::task_local() == &mine ? 1 : 2;
            detail::task_local() = nullptr;
        };
    };
    ult first = spawn(stream, keeps(of_first));
    ult second = spawn(stream, keeps(of_second));
    first.join();
    second.join();
    EXPECT_EQ(of_first, 1);
    EXPECT_EQ(of_second, 1);
    EXPECT_EQ(detail::task_local(), &of_thread);
    detail::task_local() = nullptr;
}

/// Notes which guest each pushed unit has.
class guest_noting_pool final : public pool {
public:
    guest_noting_pool() noexcept : pool(pool_access::any_stream) {}
    ~guest_noting_pool() override { drop_left(); }
    void push(work_unit& unit) noexcept override {
        seen = detail::guest_of(unit);
        units_.push(unit);
        notify();
    }
    work_unit* pop() noexcept override { return units_.pop(); }
    bool empty() const noexcept override { return units_.empty(); }
    std::size_t size() const noexcept override { return units_.size(); }

    void* seen = nullptr;

private:
    shared_fifo_pool units_;
};

TEST(guest, a_pool_finds_what_the_ult_has_set) {
    guest_noting_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            {.driven = true});
    int mine = 0;
    void* in_ult = nullptr;
    work_unit* unit = nullptr;
    ult one = spawn(pool, [&] {
        detail::guest() = &mine;
        unit = detail::running_unit();
        this_task::yield();
        in_ult = detail::guest();
        detail::guest() = nullptr;
    });
    EXPECT_EQ(pool.seen, nullptr);
    stream.run_ready();
    one.join();
    EXPECT_EQ(pool.seen, &mine);
    EXPECT_EQ(in_ult, &mine);
    EXPECT_NE(unit, nullptr);
    EXPECT_EQ(detail::guest(), nullptr);
    EXPECT_EQ(detail::running_unit(), nullptr);
}

/// A unit of another library.
struct own_unit final : work_unit {
    explicit own_unit(std::function<void()> what) : work_unit(&run_unit), body(std::move(what)) {}
    static void run_unit(work_unit& self) noexcept { static_cast<own_unit&>(self).body(); }
    std::function<void()> body;
};

TEST(guest, a_unit_that_is_no_ult_has_none) {
    own_unit unit([] {});
    EXPECT_EQ(detail::guest_or_null(unit), nullptr);
}

TEST(as_plain_thread, lets_code_on_a_stream_s_own_stack_wait) {
    execution_stream stream;
    event ready;
    bool waited = false;
    own_unit unit([&] {
        const detail::as_plain_thread meanwhile;
        ready.wait();  // refused otherwise
        waited = true;
    });
    stream.main_pool().push(unit);
    ready.set();
    spawn(stream, [] {}).join();
    EXPECT_TRUE(waited);
}

/// Yields to the next ULT or unit of `from` as another library's scheduler does.
bool yield_by_hand(pool& from) {
    if (!detail::may_yield_directly()) return false;
    work_unit* const next = from.pop();
    if (next == nullptr) return false;
    detail::yield_directly(*next);
    return true;
}

TEST(direct_yield, runs_a_ult_or_unit_that_the_caller_took_and_comes_back) {
    shared_fifo_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            {.driven = true});
    std::string order;
    EXPECT_FALSE(detail::may_yield_directly());  // no ULT
    own_unit unit([&] { order += 'c'; });
    ult first = spawn(pool, [&] {
        order += 'a';
        while (yield_by_hand(pool))
            order += '-';
        order += 'e';
    });
    ult second = spawn(pool, [&] {
        order += 'b';
        EXPECT_TRUE(yield_by_hand(pool));
        order += 'd';
    });
    pool.push(unit);
    stream.run_ready();
    first.join();
    second.join();
    EXPECT_EQ(order, "abc-d-e");
}

/// What a library does whose units follow each other on one ULT.
TEST(run_another, is_allowed_while_the_ult_is_as_new_and_the_batch_lasts) {
    shared_fifo_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            {.driven = true});
    EXPECT_FALSE(detail::may_run_another());  // no ULT
    int allowed = 0;
    bool with_id = true, with_local = true, again = false;
    spawn(pool, [&] {
        while (allowed < 10'000 && detail::may_run_another())
            ++allowed;
    }).detach();
    spawn(pool, [&] {
        again = detail::may_run_another();
        detail::task_local() = &again;
        with_local = detail::may_run_another();
        detail::task_local() = nullptr;
        this_task::id();
        with_id = detail::may_run_another();
    }).detach();
    while (stream.run_ready() != 0) {
    }
    EXPECT_GT(allowed, 0);
    EXPECT_LT(allowed, 10'000);
    EXPECT_TRUE(again);
    EXPECT_FALSE(with_local);
    EXPECT_FALSE(with_id);
}

TEST(run_another, a_pool_may_end_before_a_ult_of_it_that_has_left_it) {
    auto pool = std::make_unique<shared_fifo_pool>();
    execution_stream stream(
        std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{pool.get()}),
        {.driven = true});
    std::size_t before = 0, after = 1;
    post(*pool, [&] {
        before = pool->ults();
        detail::leave_pool_at_end();
        after = pool->ults();
    });
    stream.run_ready();
    EXPECT_EQ(before, 1u);
    EXPECT_EQ(after, 0u);
}

TEST(direct_yield, holding_clears_the_flag_once_the_ult_has_been_left) {
    shared_fifo_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            {.driven = true});
    std::atomic<bool> held{false};
    bool held_in_next = true, left = false, refused = false;
    ult first = spawn(pool, [&] {
        work_unit* const next = pool.pop();
        work_unit* const canceled = pool.pop();
        held = true;
        refused = !detail::yield_directly_holding(*canceled, held) && held;
        pool.push(*canceled);
        pool.push(*detail::running_unit());  // before it has been left
        left = detail::yield_directly_holding(*next, held);
    });
    ult second = spawn(pool, [&] { held_in_next = held; });
    ult third = spawn(pool, [] {});
    third.cancel();
    stream.run_ready();
    first.join();
    second.join();
    EXPECT_TRUE(refused);
    EXPECT_TRUE(left);
    EXPECT_FALSE(held_in_next);
    EXPECT_THROW(third.join(), error);
}

TEST(guest, of_a_ult_whose_pool_is_destroyed_is_told) {
    static std::atomic<void*> told;
    int mine = 0;
    told = nullptr;
    detail::tell_guests_left([](void* guest) noexcept { told = guest; });
    auto pool = std::make_unique<shared_fifo_pool>();
    event never;
    ult left;
    {
        execution_stream stream(
            std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{pool.get()}),
            {.driven = true});
        left = spawn(*pool, [&] {
            detail::guest() = &mine;
            never.wait();
        });
        stream.run_ready();
    }
    pool.reset();
    EXPECT_EQ(told, &mine);
    detail::tell_guests_left(nullptr);
    EXPECT_THROW(left.join(), error);
}

TEST(direct_yield, is_refused_once_a_batch_is_used_up_and_to_a_canceled_ult) {
    shared_fifo_pool pool;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<amalgam::pool*>{&pool}),
                            {.driven = true});
    std::size_t yields = 0;
    bool refused = false;
    const auto spin = [&] {
        for (int i = 0; i < 10'000 && !refused; ++i) {
            yield_by_hand(pool) ? ++yields : refused = true;
        }
    };
    ult first = spawn(pool, spin);
    ult second = spawn(pool, spin);
    stream.run_ready();
    first.join();
    second.join();
    EXPECT_TRUE(refused);
    EXPECT_GT(yields, 0u);
    bool allowed = true;
    ult last = spawn(pool, [&] {
        last.cancel();
        allowed = detail::may_yield_directly();
    });
    stream.run_ready();
    last.join();
    EXPECT_FALSE(allowed);
}

}  // namespace
}  // namespace amalgam

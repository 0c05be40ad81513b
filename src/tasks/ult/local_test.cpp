#include <gtest/gtest.h>

#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/extension/local.hpp>
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

}  // namespace
}  // namespace amalgam

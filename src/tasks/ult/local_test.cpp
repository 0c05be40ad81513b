#include <gtest/gtest.h>

#include <amalgam/tasks/extension/local.hpp>
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

}  // namespace
}  // namespace amalgam

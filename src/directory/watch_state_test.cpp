#include "directory/watch_state.hpp"

#include <gtest/gtest.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/context_core.hpp"

namespace amalgam::detail {
namespace {

TEST(watch_state, its_end_waits_while_its_function_runs) {
    execution_stream stream;
    event runs, may_end;
    int calls = 0;
    bool has_run = false;
    const auto watch = std::make_shared<watch_state>(std::weak_ptr<context_core>(), 1,
                                                     attribute_list(), [&](const resource_change&) {
                                                         ++calls;
                                                         runs.set();
                                                         may_end.wait();
                                                         has_run = true;
                                                     });
    for (int i = 0; i < 2; ++i)
        watch->note(stream.main_pool(), resource_change::kind::gone, {resource_id{1}, {}, {}});
    runs.wait();
    // On one stream: each runs until it waits, or has ended.
    ult ends = spawn(stream, [&] {
        watch->end();
        EXPECT_TRUE(has_run);
    });
    ult lets_it_end = spawn(stream, [&] { may_end.set(); });
    ends.join();
    lets_it_end.join();
    watch->note(stream.main_pool(), resource_change::kind::gone, {resource_id{1}, {}, {}});
    watch->end();
    EXPECT_EQ(calls, 1) << "what was not told by then is not told any more";
}

TEST(watch_state, its_function_may_end_it) {
    execution_stream stream;
    std::shared_ptr<watch_state> watch;
    event ended;
    watch = std::make_shared<watch_state>(std::weak_ptr<context_core>(), 1, attribute_list(),
                                          [&](const resource_change&) {
                                              watch->end();
                                              ended.set();
                                          });
    watch->note(stream.main_pool(), resource_change::kind::gone, {resource_id{1}, {}, {}});
    ended.wait();
    watch->end();
}

}  // namespace
}  // namespace amalgam::detail

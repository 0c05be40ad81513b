#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/tasks/describe.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "contains.hpp"

namespace amalgam {
namespace {

TEST(describe, says_what_pools_schedulers_units_and_streams_hold) {
    shared_fifo_pool mine;
    EXPECT_TRUE(contains(describe(mine), "shared_fifo_pool 0x")) << describe(mine);
    auto order = std::make_unique<basic_scheduler>(std::vector<pool*>{&mine});
    EXPECT_TRUE(contains(describe(*order), "basic_scheduler over shared_fifo_pool 0x"));
    execution_stream stream(std::move(order), {.name = "worker", .driven = true});
    post(mine, [] {}, {.name = "job"});
    post_tasklet(mine, [] {});
    EXPECT_TRUE(contains(describe(mine), ": 2 ready, 1 ULTs, served by 'worker'"))
        << describe(mine);
    std::vector<std::string> units;
    mine.visit([&](const work_unit& each) { units.push_back(describe(each)); });
    ASSERT_EQ(units.size(), 2u);
    EXPECT_TRUE(contains(units[0], "ULT 'job' (0x"));
    EXPECT_TRUE(contains(units[1], "tasklet (0x"));
    EXPECT_EQ(describe(stream), "stream 'worker' rank 0: asleep, driven, basic_scheduler");
    std::string inside;
    post(mine, [&] { inside = describe(stream); }, {.name = "looks"});
    stream.run_ready();
    EXPECT_EQ(inside, "stream 'worker' rank 0: running, driven, runs ULT 'looks', basic_scheduler");
}

TEST(list_streams, has_every_stream_by_rank_with_its_pools) {
    execution_stream first({.name = "first"});
    execution_stream second({.name = "second", .rank = 9});
    execution_stream third({.name = "third"});
    second.stop();
    const auto all = list_streams();
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].name, "first");
    EXPECT_EQ(all[1].name, "third");
    EXPECT_EQ(all[2].name, "second");
    EXPECT_EQ(all[2].state, stream_state::stopped);
    EXPECT_TRUE(all[2].pools.empty());
    ASSERT_EQ(all[0].pools.size(), 1u);
    EXPECT_TRUE(contains(all[0].pools[0], "fifo_pool 0x")) << all[0].pools[0];
    EXPECT_EQ(all[0].id, &first);
}

TEST(list_streams, counts_posted_schedulers) {
    shared_fifo_pool above;
    execution_stream stream(execution_stream_options{.driven = true});
    std::vector<stream_info> seen;
    post_tasklet(above, [&] { seen = list_streams(); });
    const future<void> ended = post_scheduler(
        stream.main_pool(), std::make_unique<priority_scheduler>(std::vector<pool*>{&above}));
    stream.run_ready();
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].posted, 1u);
    EXPECT_EQ(seen[0].scheduler, "priority_scheduler");
    EXPECT_EQ(seen[0].pools.size(), 2u);
}

std::string printed(const std::function<void(int)>& print) {
    int ends[2];
    if (::pipe(ends) != 0) return {};
    print(ends[1]);
    ::close(ends[1]);
    std::string text(4096, '\0');
    text.resize(static_cast<std::size_t>(::read(ends[0], text.data(), text.size())));
    ::close(ends[0]);
    return text;
}

TEST(print_pool, writes_what_a_pool_holds_unit_by_unit_in_its_order) {
    lifo_pool mine;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{&mine}),
                            {.name = "worker", .driven = true});
    std::string text;
    const auto print = [&] { text = printed([&](int fd) { print_pool(fd, mine); }); };
    print();
    EXPECT_EQ(text, describe(mine) + '\n');
    post(mine, [] {}, {.name = "first"});
    post_tasklet(mine, [] {});
    post(mine, [] {}, {.name = "last"});
    print();
    std::string expected = describe(mine) + '\n';
    mine.visit([&](const work_unit& each) { expected += "    " + describe(each) + '\n'; });
    EXPECT_EQ(text, expected);
    EXPECT_LT(text.find("ULT 'last' (0x"), text.find("tasklet (0x"));
    EXPECT_LT(text.find("tasklet (0x"), text.find("ULT 'first' (0x"));
    stream.run_ready();
    print();
    EXPECT_FALSE(contains(text, "first")) << text;
}

TEST(print_pool, tells_of_a_pool_that_only_its_stream_may_look_into_what_can_be_seen) {
    fifo_pool mine;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{&mine}));
    std::latch begun(1), looked(1);  // They block their threads.
    event go_on;
    std::string by_its_stream;
    post(mine, [&] { go_on.wait(); }, {.name = "parked"});
    ult holder = spawn(mine,
                       [&] {
                           post(mine, [] {}, {.name = "job"});
                           post_tasklet(mine, [] {});
                           by_its_stream = printed([&](int fd) { print_pool(fd, mine); });
                           begun.count_down();
                           looked.wait();
                       },
                       {.name = "holder"});
    begun.wait();
    const std::string from_outside = printed([&](int fd) { print_pool(fd, mine); });
    looked.count_down();
    holder.join();
    go_on.set();
    EXPECT_TRUE(contains(by_its_stream, "\n    ULT 'job' (0x")) << by_its_stream;
    EXPECT_TRUE(contains(by_its_stream, "\n    tasklet (0x")) << by_its_stream;
    EXPECT_TRUE(contains(from_outside, ": 2 ready, 3 ULTs")) << from_outside;
    EXPECT_TRUE(contains(from_outside, "\n    ULT 'job' (0x")) << from_outside;
    EXPECT_TRUE(
        from_outside.ends_with(")\n    and 1 more, seen only by a stream that serves the "
                               "pool\n"))
        << from_outside;
    for (const char* other : {"'parked'", "'holder'", "tasklet"})
        EXPECT_FALSE(contains(from_outside, other)) << from_outside;
}

TEST(print_streams, writes_a_line_for_each_and_its_pools) {
    execution_stream stream({.name = "printed"});
    const std::string text = printed(print_streams);
    EXPECT_TRUE(text.starts_with("stream 'printed' rank 0: ")) << text;
    EXPECT_TRUE(contains(text, "\n    fifo_pool 0x")) << text;
}

}  // namespace
}  // namespace amalgam

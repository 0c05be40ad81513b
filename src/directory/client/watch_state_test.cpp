#include "directory/client/watch_state.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/latch.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/client/context_core.hpp"
#include "directory/limits.hpp"

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
    for (const resource_id each : {resource_id{1}, resource_id{2}})
        watch->note(stream.main_pool(), resource_change::kind::appeared, {each, {}, {}});
    runs.wait();
    // On one stream: each runs until it waits or ends.
    ult ends = spawn(stream, [&] {
        watch->end();
        EXPECT_TRUE(has_run);
    });
    ult lets_it_end = spawn(stream, [&] { may_end.set(); });
    ends.join();
    lets_it_end.join();
    watch->note(stream.main_pool(), resource_change::kind::appeared, {resource_id{3}, {}, {}});
    watch->end();
    EXPECT_EQ(calls, 1) << "what was not told by then is not told any more";
}

TEST(watch_state, what_is_told_again_is_told_only_where_it_differs) {
    using kind = resource_change::kind;
    execution_stream stream;
    attribute_list query;
    query.ask("load");
    std::string told;
    const auto watch = std::make_shared<watch_state>(
        std::weak_ptr<context_core>(), 1, query, [&](const resource_change& change) {
            const char* const names[] = {"appeared", "gone", "changed", "ended"};
            told += std::string(names[static_cast<int>(change.what)]) + ' ' +
                    std::string(change.which.what.text("load")) + '\n';
        });
    const auto tell = [&](kind what, std::uint32_t id, const char* load) {
        watch->note(stream.main_pool(), what,
                    {resource_id{id}, resource_id{9}, attribute_list{{"load", load}}});
    };
    const auto is_told = [&] {
        spawn(stream, [] {}).join();
        return std::exchange(told, {});
    };
    tell(kind::appeared, 1, "10");
    tell(kind::appeared, 2, "20");
    tell(kind::appeared, 3, "30");
    EXPECT_EQ(is_told(), "appeared 10\nappeared 20\nappeared 30\n");
    const unsigned time = watch->doubt();
    tell(kind::appeared, 1, "10");
    tell(kind::appeared, 2, "25");
    tell(kind::gone, 4, "");
    EXPECT_EQ(is_told(), "changed 25\n");
    watch->settle(stream.main_pool(), time);
    EXPECT_EQ(is_told(), "gone 30\n");
    tell(kind::changed, 5, "50");
    EXPECT_EQ(is_told(), "appeared 50\n");
    watch->end();
}

TEST(watch_state, its_function_is_called_by_one_at_a_time_and_in_order) {
    shared_fifo_pool where;
    execution_stream one(std::make_unique<basic_scheduler>(std::vector<pool*>{&where}));
    execution_stream other(std::make_unique<basic_scheduler>(std::vector<pool*>{&where}));
    constexpr std::uint32_t count = 500;
    std::atomic<int> running{0};
    std::uint32_t last = 0;
    latch told(count);
    const auto watch = std::make_shared<watch_state>(
        std::weak_ptr<context_core>(), 1, attribute_list(), [&](const resource_change& change) {
            EXPECT_EQ(++running, 1);
            EXPECT_EQ(static_cast<std::uint32_t>(change.which.id), ++last);
            this_task::yield();
            --running;
            told.count_down();
        });
    for (std::uint32_t i = 1; i <= count; ++i) {
        watch->note(where, resource_change::kind::appeared, {resource_id{i}, {}, {}});
        if (i % 50 == 0) std::this_thread::yield();
    }
    told.wait();
    watch->end();
    EXPECT_EQ(last, count);
}

TEST(watch_state, it_ends_when_too_much_is_not_told) {
    using kind = resource_change::kind;
    constexpr std::size_t long_values = 1 << 18;
    const std::size_t most = detail::limits::max_undelivered_change_bytes / long_values;
    execution_stream stream;
    attribute_list query;
    query.ask("load");
    event runs, may_go_on, ended;
    std::vector<kind> told;
    const auto watch = std::make_shared<watch_state>(std::weak_ptr<context_core>(), 1, query,
                                                     [&](const resource_change& change) {
                                                         told.push_back(change.what);
                                                         runs.set();
                                                         may_go_on.wait();
                                                         if (change.what == kind::ended)
                                                             ended.set();
                                                     });
    const auto tell = [&](std::size_t id) {
        watch->note(stream.main_pool(), kind::appeared,
                    {resource_id{static_cast<std::uint32_t>(id)}, resource_id{9},
                     attribute_list{{"load", std::string(long_values, 'x')}}});
    };
    tell(1);
    runs.wait();
    for (std::size_t i = 2; i < most + 4; ++i)
        tell(i);
    may_go_on.set();
    ended.wait();
    tell(1);
    watch->end();
    EXPECT_EQ(told, (std::vector{kind::appeared, kind::ended}));
}

TEST(watch_state, whatever_its_function_throws_it_is_called_again) {
    struct of_no_standard {};
    const std::vector<std::function<void()>> all_throws{
        [] { throw std::runtime_error("broken"); }, [] { throw 7; }, [] { throw of_no_standard(); },
        [] { this_task::exit(); }};
    execution_stream stream;
    for (const auto& throws : all_throws) {
        int calls = 0;
        const auto watch = std::make_shared<watch_state>(
            std::weak_ptr<context_core>(), 1, attribute_list(), [&](const resource_change&) {
                ++calls;
                throws();
            });
        for (std::uint32_t i = 1; i <= 3; ++i) {
            watch->note(stream.main_pool(), resource_change::kind::appeared,
                        {resource_id{i}, {}, {}});
            if (i == 2) spawn(stream, [] {}).join();
        }
        spawn(stream, [] {}).join();
        EXPECT_EQ(calls, 3);
        watch->end();
    }
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
    watch->note(stream.main_pool(), resource_change::kind::appeared, {resource_id{3}, {}, {}});
    ended.wait();
    watch->end();
}

}  // namespace
}  // namespace amalgam::detail

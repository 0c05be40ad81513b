#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

TEST(migrate_to_any, the_caller_goes_on_on_another_stream) {
    execution_stream here, there;
    spawn(here, [&] {
        for (int i = 0; i < 100; ++i) {
            execution_stream* const before = execution_stream::current();
            this_task::migrate();
            EXPECT_NE(execution_stream::current(), before);
        }
    }).join();
    EXPECT_EQ(here.main_pool().ults() + there.main_pool().ults(), 0u);
}

TEST(migrate_to_any, a_handle_or_name_sends_its_ult_to_another_stream) {
    execution_stream here, there;
    event go;
    for (int by_name = 0; by_name < 2; ++by_name) {
        go.reset();
        ult one = spawn(here, [&] {
            go.wait();
            this_task::yield();
            EXPECT_EQ(execution_stream::current(), &there);
        });
        by_name == 1 ? one.ref().migrate() : one.migrate();
        go.set();
        one.join();
    }
}

TEST(migrate_to_stream, is_by_its_main_pool) {
    execution_stream here, there;
    event go;
    ult one = spawn(here, [&] {
        go.wait();
        this_task::yield();
        EXPECT_EQ(execution_stream::current(), &there);
        this_task::migrate(here);
        EXPECT_EQ(execution_stream::current(), &here);
    });
    one.ref().migrate(there);
    one.migrate(there);
    go.set();
    one.join();
    EXPECT_EQ(code_of([&] { ult_ref().migrate(there); }), errc::invalid);
}

TEST(migrate_to_stream, moves_a_ult_that_yields_alone_in_its_pool) {
    execution_stream here, there;
    spawn(here, [&] {
        this_task::self().migrate(there);
        this_task::yield();
        EXPECT_EQ(execution_stream::current(), &there);
    }).join();
}

TEST(migrate_to_any, takes_a_stream_that_does_not_serve_the_pool_and_has_a_thread) {
    shared_fifo_pool shared;
    execution_stream one(std::make_unique<basic_scheduler>(std::vector<pool*>{&shared}));
    execution_stream two(std::make_unique<basic_scheduler>(std::vector<pool*>{&shared}));
    execution_stream driven(execution_stream_options{.driven = true});
    errc alone{};
    spawn(shared, [&] { alone = code_of([] { this_task::migrate(); }); }).join();
    EXPECT_EQ(alone, errc::invalid);
    execution_stream other;
    spawn(shared, [&] {
        this_task::migrate();
        EXPECT_EQ(execution_stream::current(), &other);
    }).join();
}

TEST(migrate_to_any, is_refused_without_another_stream_and_for_pinned_ones) {
    execution_stream here(execution_stream_options{.driven = true});
    ult one = spawn(here, [] {}), empty;
    EXPECT_EQ(code_of([&] { one.migrate(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { empty.migrate(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { ult_ref().migrate(); }), errc::invalid);
    EXPECT_EQ(code_of([] { this_task::migrate(); }), errc::invalid);
    execution_stream there;
    ult pinned = spawn(here, [] {}, {.pinned = true});
    EXPECT_EQ(code_of([&] { pinned.migrate(); }), errc::invalid);
    here.run_ready();
}

struct on_migrate : testing::Test {
    execution_stream from{execution_stream_options{.driven = true}};
    execution_stream to{execution_stream_options{.driven = true}};
    std::string order;
};

TEST_F(on_migrate, runs_in_the_new_pool_before_the_ult_each_time) {
    ult one = spawn(from, [&] {
        order += 'a';
        this_task::migrate(to.main_pool());
        order += 'b';
        this_task::yield();
        order += 'c';
    });
    one.on_migrate([&] {
        EXPECT_FALSE(this_task::in_ult());
        order += execution_stream::current() == &to ? 't' : 'f';
    });
    from.run_ready();
    EXPECT_EQ(order, "a");
    EXPECT_EQ(one.state(), ult_state::ready);
    to.run_ready(2);
    EXPECT_EQ(order, "atb");
    one.migrate(from.main_pool());
    to.run_ready();
    EXPECT_EQ(order, "atb");
    from.run_ready();
    EXPECT_EQ(order, "atbfc");
    one.join();
}

TEST_F(on_migrate, can_be_set_by_the_ult_itself_and_taken_back) {
    ult one = spawn(from, [&] {
        this_task::self().on_migrate([&] { order += 'x'; });
        this_task::migrate(to.main_pool());
        this_task::self().on_migrate({});
        this_task::migrate(from.main_pool());
        order += '.';
    });
    from.run_ready();
    to.run_ready();
    from.run_ready();
    EXPECT_EQ(order, "x.");
}

TEST_F(on_migrate, what_it_throws_or_a_wait_in_it_harms_nobody) {
    ult one = spawn(from, [&] {
        this_task::migrate(to.main_pool());
        order += 'a';
        this_task::migrate(from.main_pool());
        order += 'b';
    });
    one.on_migrate([&] {
        if (execution_stream::current() == &to) throw std::runtime_error("told to the log");
        event().wait();  // throws
    });
    from.run_ready();
    to.run_ready();
    from.run_ready();
    EXPECT_EQ(order, "ab");
    EXPECT_NO_THROW(one.join());
    ult empty;
    EXPECT_EQ(code_of([&] { empty.on_migrate({}); }), errc::invalid);
    EXPECT_EQ(code_of([&] { ult_ref().on_migrate({}); }), errc::invalid);
}

TEST(on_migrate_between_threads, is_told_once_for_each) {
    execution_stream left, right;
    std::atomic<int> told = 0;
    ult one = spawn(left, [&] {
        this_task::self().on_migrate([&] { ++told; });
        for (int i = 0; i < 1000; ++i)
            this_task::migrate(i % 2 == 0 ? right.main_pool() : left.main_pool());
    });
    one.join();
    EXPECT_EQ(told, 1000);
}

TEST(ult_local_of_another, is_set_before_it_begins_and_read_while_it_is_parked) {
    execution_stream stream(execution_stream_options{.driven = true});
    ult_local<int> mine([] { return 5; });
    ult one = spawn(stream, [&] {
        EXPECT_EQ(*mine, 7);
        *mine = 8;
        this_task::suspend();
        EXPECT_EQ(*mine, 9);
        EXPECT_EQ(&mine.get_of(this_task::self()), &*mine);
    });
    EXPECT_EQ(mine.find_of(one), nullptr);
    EXPECT_EQ(mine.get_of(one), 5);
    mine.get_of(one) = 7;
    stream.run_ready();
    EXPECT_EQ(*mine.find_of(one.ref()), 8);
    mine.get_of(one.ref()) = 9;
    one.resume();
    stream.run_ready();
    one.join();
    EXPECT_EQ(*mine, 5);  // this thread's
}

TEST(ult_local_of_another, is_destroyed_with_its_ult) {
    execution_stream stream(execution_stream_options{.driven = true});
    auto held = std::make_shared<int>(0);
    ult_local<std::shared_ptr<int>> mine;
    ult one = spawn(stream, [] {});
    mine.get_of(one) = held;
    EXPECT_EQ(held.use_count(), 2);
    stream.run_ready();
    EXPECT_EQ(held.use_count(), 1);
}

TEST(ult_local_of_another, is_refused_while_it_runs_after_its_end_and_for_nobody) {
    execution_stream stream;
    ult_local<int> mine;
    std::atomic<bool> begun = false, end = false;
    ult busy = spawn(stream, [&] {
        begun = true;
        while (!end)
            std::this_thread::yield();
    });
    while (!begun)
        std::this_thread::yield();
    EXPECT_EQ(code_of([&] { mine.get_of(busy); }), errc::invalid);
    end = true;
    busy.wait();
    EXPECT_EQ(code_of([&] { mine.get_of(busy); }), errc::invalid);
    EXPECT_EQ(code_of([&] { mine.find_of(busy); }), errc::invalid);
    EXPECT_EQ(code_of([&] { mine.get_of(ult()); }), errc::invalid);
    EXPECT_EQ(code_of([&] { mine.find_of(ult_ref()); }), errc::invalid);
}

}  // namespace
}  // namespace amalgam

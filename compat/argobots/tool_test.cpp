#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "abt_testing.hpp"

using namespace amalgam::argobots_testing;

namespace {

struct told {
    uint64_t event;
    ABT_xstream stream;
    ABT_sync_event_type kind;
    void* object;
    ABT_thread caller;
    int depth;
};

const char* name_of(uint64_t event) {
    constexpr std::array names{"create", "join",   "free",  "revive",  "run",
                               "finish", "cancel", "yield", "suspend", "resume"};
    std::size_t at = 0;
    while ((event >> at) > 1)
        ++at;
    return at < names.size() ? names[at] : "unknown";
}

/// A tool that notes all events of each unit.
class notes {
public:
    explicit notes(uint64_t events = ABT_TOOL_EVENT_THREAD_ALL) {
        EXPECT_EQ(ABT_tool_register_thread_callback(&note, events, this), ABT_SUCCESS);
    }
    ~notes() { stop(); }
    notes(const notes&) = delete;
    notes& operator=(const notes&) = delete;
    void stop() { EXPECT_EQ(ABT_tool_register_thread_callback(nullptr, 0, nullptr), ABT_SUCCESS); }

    std::vector<told> of(ABT_thread unit) {
        const std::lock_guard hold(busy_);
        return all_[unit];
    }
    /// "create run finish", for example.
    std::string names_of(ABT_thread unit) {
        std::string text;
        for (const told& each : of(unit))
            text += (text.empty() ? "" : " ") + std::string(name_of(each.event));
        return text;
    }
    /// The only one of that kind. Of another event if there is none.
    told only(ABT_thread unit, uint64_t event) {
        told found{};
        int number = 0;
        for (const told& each : of(unit)) {
            if (each.event != event) continue;
            found = each;
            ++number;
        }
        EXPECT_EQ(number, 1) << name_of(event) << " in: " << names_of(unit);
        return found;
    }

private:
    template <typename T>
    static T asked(ABT_tool_context of, uint64_t event, ABT_tool_query_kind what) {
        T value{};
        EXPECT_EQ(ABT_tool_query_thread(of, event, what, &value), ABT_SUCCESS);
        return value;
    }
    static void note(ABT_thread unit, ABT_xstream stream, uint64_t event, ABT_tool_context of,
                     void* to) {
        const told one{event,
                       stream,
                       asked<ABT_sync_event_type>(of, event, ABT_TOOL_QUERY_KIND_SYNC_OBJECT_TYPE),
                       asked<void*>(of, event, ABT_TOOL_QUERY_KIND_SYNC_OBJECT_HANDLE),
                       asked<ABT_thread>(of, event, ABT_TOOL_QUERY_KIND_CALLER_HANDLE),
                       asked<int>(of, event, ABT_TOOL_QUERY_KIND_STACK_DEPTH)};
        auto& me = *static_cast<notes*>(to);
        const std::lock_guard hold(me.busy_);
        me.all_[unit].push_back(one);
    }

    std::mutex busy_;
    std::map<ABT_thread, std::vector<told>> all_;
};

ABT_thread current() {
    ABT_thread me = nullptr;
    EXPECT_EQ(ABT_self_get_thread(&me), ABT_SUCCESS);
    return me;
}

ABT_thread start(ABT_pool pool, void (*function)(void*), void* arg) {
    ABT_thread made = nullptr;
    EXPECT_EQ(ABT_thread_create(pool, function, arg, nullptr, &made), ABT_SUCCESS);
    return made;
}

void finish(ABT_thread unit) {
    EXPECT_EQ(ABT_thread_free(&unit), ABT_SUCCESS);
}

constexpr const char* waited_once = "create run suspend resume run finish join free";

/// A ULT waits in `wait(what)` until the primary one has called `wake(what)`. What a tool is told
/// of it.
void expect_told_of_wait(void (*wait)(void*), void (*wake)(void*), void* what,
                         ABT_sync_event_type kind) {
    ABT_pool pool = nullptr;
    ASSERT_EQ(ABT_self_get_last_pool(&pool), ABT_SUCCESS);
    notes tool;
    const ABT_thread unit = start(pool, wait, what);
    ABT_thread_yield();  // it waits now
    wake(what);
    finish(unit);
    EXPECT_EQ(tool.names_of(unit), waited_once) << kind;
    const told wait_told = tool.only(unit, ABT_TOOL_EVENT_THREAD_SUSPEND);
    EXPECT_EQ(wait_told.kind, kind);
    EXPECT_EQ(wait_told.object, what) << kind;
    EXPECT_EQ(tool.only(unit, ABT_TOOL_EVENT_THREAD_RESUME).caller, current()) << kind;
}

}  // namespace

TEST(argobots_tool, a_tool_is_told_what_a_ult_waits_for_and_who_resumes_it) {
    const program here;

    ABT_eventual eventual = nullptr;
    ASSERT_EQ(ABT_eventual_create(0, &eventual), ABT_SUCCESS);
    expect_told_of_wait(
        [](void* on) { ABT_eventual_wait(static_cast<ABT_eventual>(on), nullptr); },
        [](void* on) { ABT_eventual_set(static_cast<ABT_eventual>(on), nullptr, 0); }, eventual,
        ABT_SYNC_EVENT_TYPE_EVENTUAL);
    ABT_eventual_free(&eventual);

    ABT_future future = nullptr;
    ASSERT_EQ(ABT_future_create(1, nullptr, &future), ABT_SUCCESS);
    expect_told_of_wait([](void* on) { ABT_future_wait(static_cast<ABT_future>(on)); },
                        [](void* on) { ABT_future_set(static_cast<ABT_future>(on), nullptr); },
                        future, ABT_SYNC_EVENT_TYPE_FUTURE);
    ABT_future_free(&future);

    ABT_barrier barrier = nullptr;
    ASSERT_EQ(ABT_barrier_create(2, &barrier), ABT_SUCCESS);
    const auto arrive = [](void* on) { ABT_barrier_wait(static_cast<ABT_barrier>(on)); };
    expect_told_of_wait(arrive, arrive, barrier, ABT_SYNC_EVENT_TYPE_BARRIER);
    ABT_barrier_free(&barrier);

    const auto unlock = [](void* on) { ABT_mutex_unlock(static_cast<ABT_mutex>(on)); };
    ABT_mutex mutex = nullptr;
    ASSERT_EQ(ABT_mutex_create(&mutex), ABT_SUCCESS);
    ABT_mutex_lock(mutex);
    expect_told_of_wait(
        [](void* on) {
            ABT_mutex_lock(static_cast<ABT_mutex>(on));
            ABT_mutex_unlock(static_cast<ABT_mutex>(on));
        },
        unlock, mutex, ABT_SYNC_EVENT_TYPE_MUTEX);
    ABT_mutex_free(&mutex);

    ABT_rwlock rwlock = nullptr;
    ASSERT_EQ(ABT_rwlock_create(&rwlock), ABT_SUCCESS);
    ABT_rwlock_wrlock(rwlock);
    expect_told_of_wait(
        [](void* on) {
            ABT_rwlock_rdlock(static_cast<ABT_rwlock>(on));
            ABT_rwlock_unlock(static_cast<ABT_rwlock>(on));
        },
        [](void* on) { ABT_rwlock_unlock(static_cast<ABT_rwlock>(on)); }, rwlock,
        ABT_SYNC_EVENT_TYPE_RWLOCK);
    ABT_rwlock_free(&rwlock);

    static ABT_mutex of_cond = nullptr;
    ABT_cond cond = nullptr;
    ASSERT_EQ(ABT_mutex_create(&of_cond), ABT_SUCCESS);
    ASSERT_EQ(ABT_cond_create(&cond), ABT_SUCCESS);
    expect_told_of_wait(
        [](void* on) {
            ABT_mutex_lock(of_cond);
            ABT_cond_wait(static_cast<ABT_cond>(on), of_cond);
            ABT_mutex_unlock(of_cond);
        },
        [](void* on) { ABT_cond_signal(static_cast<ABT_cond>(on)); }, cond,
        ABT_SYNC_EVENT_TYPE_COND);
    ABT_cond_free(&cond);
    ABT_mutex_free(&of_cond);
}

TEST(argobots_tool, a_suspended_ult_is_told_as_the_users_wish) {
    const program here;
    notes tool;
    const ABT_thread unit = start(
        here.pool, [](void*) { ABT_self_suspend(); }, nullptr);
    ABT_thread_yield();
    ASSERT_EQ(ABT_thread_resume(unit), ABT_SUCCESS);
    finish(unit);
    EXPECT_EQ(tool.names_of(unit), waited_once);
    const told wait = tool.only(unit, ABT_TOOL_EVENT_THREAD_SUSPEND);
    EXPECT_EQ(wait.kind, ABT_SYNC_EVENT_TYPE_USER);
    EXPECT_EQ(wait.object, nullptr);
}

TEST(argobots_tool, a_join_is_a_wait_for_the_unit_and_told_once_that_has_ended) {
    const program here;
    notes tool;
    const ABT_thread unit = start(
        here.pool, [](void*) { ABT_thread_yield(); }, nullptr);
    static ABT_thread joined = nullptr;
    joined = unit;
    const ABT_thread joiner = start(
        here.pool, [](void*) { ABT_thread_join(joined); }, nullptr);
    finish(joiner);
    EXPECT_EQ(tool.names_of(unit), "create run yield run finish join");
    EXPECT_EQ(tool.names_of(joiner), waited_once);
    const told wait = tool.only(joiner, ABT_TOOL_EVENT_THREAD_SUSPEND);
    EXPECT_EQ(wait.kind, ABT_SYNC_EVENT_TYPE_THREAD_JOIN);
    EXPECT_EQ(wait.object, unit);
    finish(unit);
}

TEST(argobots_tool, the_primary_ult_waits_once_for_a_stream_that_it_joins_until_that_has_ended) {
    program here(1);
    notes tool;
    const ABT_xstream stream = here.streams.front();
    ASSERT_EQ(ABT_xstream_join(stream), ABT_SUCCESS);
    const std::vector<told> events = tool.of(current());
    ASSERT_GE(events.size(), 3u);
    for (std::size_t i = 0; i < events.size(); ++i) {
        constexpr std::array expected{ABT_TOOL_EVENT_THREAD_SUSPEND, ABT_TOOL_EVENT_THREAD_RESUME,
                                      ABT_TOOL_EVENT_THREAD_RUN};
        EXPECT_EQ(events[i].event, static_cast<uint64_t>(expected[i % 3])) << i;
        if (i % 3 != 0) continue;
        EXPECT_EQ(events[i].kind, ABT_SYNC_EVENT_TYPE_XSTREAM_JOIN);
        EXPECT_EQ(events[i].object, stream);
    }
}

TEST(argobots_tool, a_yield_is_told_once_and_so_is_that_its_ult_runs_again) {
    const program here;
    notes tool;
    const ABT_thread unit = start(
        here.pool, [](void*) { ABT_thread_yield(); }, nullptr);
    ABT_thread_yield();  // of the primary ULT, which looks at its stream more than once
    finish(unit);
    EXPECT_EQ(tool.names_of(unit), "create run yield run finish join free");
    EXPECT_EQ(tool.only(unit, ABT_TOOL_EVENT_THREAD_YIELD).kind, ABT_SYNC_EVENT_TYPE_USER);
    EXPECT_EQ(tool.only(unit, ABT_TOOL_EVENT_THREAD_YIELD).depth, 1);
    EXPECT_EQ(tool.names_of(current()).substr(0, 9), "yield run");
}

TEST(argobots_tool, a_canceled_ult_is_told_as_canceled_in_place_of_run_and_finish) {
    const program here;
    notes tool;
    const ABT_thread fresh = start(
        here.pool, [](void*) {}, nullptr);
    const ABT_thread begun = start(
        here.pool, [](void*) { ABT_thread_yield(); }, nullptr);
    const ABT_thread asleep = start(
        here.pool, [](void*) { ABT_self_suspend(); }, nullptr);
    ASSERT_EQ(ABT_thread_cancel(fresh), ABT_SUCCESS);
    EXPECT_EQ(tool.names_of(fresh), "create") << "told once it ends";
    ABT_thread_yield();
    ASSERT_EQ(ABT_thread_cancel(begun), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_cancel(asleep), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_resume(asleep), ABT_SUCCESS);
    finish(fresh);
    finish(begun);
    finish(asleep);
    EXPECT_EQ(tool.names_of(fresh), "create cancel join free");
    EXPECT_EQ(tool.names_of(begun), "create run yield cancel join free");
    EXPECT_EQ(tool.names_of(asleep), "create run suspend resume cancel join free");
}

TEST(argobots_tool, a_tasklet_is_told_to_run_and_end_and_never_to_wait) {
    const program here(1);
    notes tool;
    static ABT_mutex mutex = nullptr;
    ASSERT_EQ(ABT_mutex_create(&mutex), ABT_SUCCESS);
    ABT_mutex_lock(mutex);
    ABT_task task = nullptr;
    ASSERT_EQ(ABT_task_create(
                  here.pool_of(0),
                  [](void*) {
                      ABT_mutex_lock(mutex);  // which blocks its stream
                      ABT_mutex_unlock(mutex);
                  },
                  nullptr, &task),
              ABT_SUCCESS);
    while (tool.names_of(task) != "create run")
        ABT_thread_yield();
    ABT_mutex_unlock(mutex);
    const ABT_task freed = task;
    ASSERT_EQ(ABT_task_free(&task), ABT_SUCCESS);
    EXPECT_EQ(tool.names_of(freed), "create run finish join free");
    ABT_mutex_free(&mutex);
}

TEST(argobots_tool, events_not_asked_for_are_not_told) {
    const program here;
    notes tool(ABT_TOOL_EVENT_THREAD_YIELD | ABT_TOOL_EVENT_THREAD_FINISH);
    const ABT_thread unit = start(
        here.pool, [](void*) { ABT_thread_yield(); }, nullptr);
    finish(unit);
    EXPECT_EQ(tool.names_of(unit), "yield finish");
}

TEST(argobots_tool, a_wait_that_began_before_the_tool_came_ends_as_the_tool_expects) {
    const program here;
    ABT_eventual eventual = nullptr;
    ASSERT_EQ(ABT_eventual_create(0, &eventual), ABT_SUCCESS);
    const ABT_thread unit = start(
        here.pool, [](void* on) { ABT_eventual_wait(static_cast<ABT_eventual>(on), nullptr); },
        eventual);
    ABT_thread_yield();
    notes tool;
    ABT_eventual_set(eventual, nullptr, 0);
    finish(unit);
    EXPECT_EQ(tool.names_of(unit), "run finish join free");
    ABT_eventual_free(&eventual);
}

namespace {

/// What the last event allows as the next one.
bool may_follow(uint64_t before, const told& now) {
    switch (now.event) {
        case ABT_TOOL_EVENT_THREAD_CREATE:
            return before == 0 || before == ABT_TOOL_EVENT_THREAD_FREE;
        case ABT_TOOL_EVENT_THREAD_RUN:
            return before == ABT_TOOL_EVENT_THREAD_CREATE ||
                   before == ABT_TOOL_EVENT_THREAD_YIELD || before == ABT_TOOL_EVENT_THREAD_RESUME;
        case ABT_TOOL_EVENT_THREAD_RESUME:
            return before == ABT_TOOL_EVENT_THREAD_SUSPEND;
        case ABT_TOOL_EVENT_THREAD_JOIN:
            return before == ABT_TOOL_EVENT_THREAD_FINISH || before == ABT_TOOL_EVENT_THREAD_JOIN;
        case ABT_TOOL_EVENT_THREAD_FREE:
            return before == ABT_TOOL_EVENT_THREAD_JOIN;
        default:
            return before == ABT_TOOL_EVENT_THREAD_RUN;
    }
}

struct crowd {
    ABT_mutex mutex = nullptr;
    ABT_barrier barrier = nullptr;
    ABT_eventual eventual = nullptr;
    int sum = 0;
};

void mingle(void* arg) {
    auto& all = *static_cast<crowd*>(arg);
    for (int i = 0; i < 20; ++i) {
        ABT_mutex_lock(all.mutex);
        ++all.sum;
        if (i % 4 == 0) ABT_thread_yield();
        ABT_mutex_unlock(all.mutex);
        ABT_thread_yield();
    }
    ABT_barrier_wait(all.barrier);
    ABT_eventual_wait(all.eventual, nullptr);
}

}  // namespace

TEST(argobots_tool, what_is_told_of_each_unit_is_in_order_whatever_streams_it_runs_on) {
    const program here(2);
    constexpr uint32_t number = 24;
    crowd all;
    ASSERT_EQ(ABT_mutex_create(&all.mutex), ABT_SUCCESS);
    ASSERT_EQ(ABT_barrier_create(number, &all.barrier), ABT_SUCCESS);
    ASSERT_EQ(ABT_eventual_create(0, &all.eventual), ABT_SUCCESS);
    notes tool;
    std::vector<ABT_thread> units;
    for (uint32_t i = 0; i < number; ++i)
        units.push_back(start(i % 3 == 0 ? here.pool : here.pool_of(i % 3 - 1), &mingle, &all));
    ABT_thread_yield();
    ABT_eventual_set(all.eventual, nullptr, 0);
    for (const ABT_thread each : units) {
        ASSERT_EQ(ABT_thread_join(each), ABT_SUCCESS);
        finish(each);
    }
    tool.stop();
    EXPECT_EQ(all.sum, static_cast<int>(number) * 20);
    for (const ABT_thread each : units) {
        uint64_t before = 0;
        ABT_xstream ran_on = nullptr;
        for (const told& now : tool.of(each)) {
            EXPECT_TRUE(may_follow(before, now))
                << name_of(now.event) << " in: " << tool.names_of(each);
            if (now.event == ABT_TOOL_EVENT_THREAD_RUN) ran_on = now.stream;
            EXPECT_TRUE(before != ABT_TOOL_EVENT_THREAD_RUN || now.stream == ran_on);
            before = now.event;
        }
        EXPECT_EQ(before, static_cast<uint64_t>(ABT_TOOL_EVENT_THREAD_FREE));
    }
    ABT_mutex_free(&all.mutex);
    ABT_barrier_free(&all.barrier);
    ABT_eventual_free(&all.eventual);
}

TEST(argobots_tool, that_there_is_a_tool_interface_is_told) {
    const program here;
    ABT_bool enabled = ABT_FALSE;
    ASSERT_EQ(ABT_info_query_config(ABT_INFO_QUERY_KIND_ENABLED_TOOL, &enabled), ABT_SUCCESS);
    EXPECT_EQ(enabled, ABT_TRUE);
}

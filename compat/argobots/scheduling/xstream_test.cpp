#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include <amalgam/tasks/inspect.hpp>

#include "abt_testing.hpp"

// What streams are bound to, and what others do with them while they come and go.
namespace amalgam::argobots_testing {
namespace {

std::vector<int> cpus_of_caller() {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    std::vector<int> all;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) all.push_back(cpu);
    }
    return all;
}

std::vector<int> affinity_of(ABT_xstream stream) {
    std::vector<int> all(CPU_SETSIZE);
    int number = 0;
    EXPECT_EQ(ABT_xstream_get_affinity(stream, CPU_SETSIZE, all.data(), &number), ABT_SUCCESS);
    all.resize(static_cast<std::size_t>(number));
    return all;
}

std::vector<int> runs_on(ABT_pool pool) {
    std::vector<int> found;
    run_and_free(
        pool, [](void* to) { *static_cast<std::vector<int>*>(to) = cpus_of_caller(); }, &found);
    return found;
}

TEST(argobots_xstream, the_affinity_of_joined_ones_is_told_and_set_for_when_they_are_revived) {
    const std::vector<int> all = cpus_of_caller();
    const std::vector<int> last{all.back()};
    const program here(20);
    for (ABT_xstream each : here.streams)
        ASSERT_EQ(ABT_xstream_join(each), ABT_SUCCESS);
    for (ABT_xstream each : here.streams) {
        EXPECT_EQ(affinity_of(each), all);
        EXPECT_EQ(ABT_xstream_set_cpubind(each, CPU_SETSIZE - 1), ABT_ERR_CPUID);
        ASSERT_EQ(ABT_xstream_set_cpubind(each, last[0]), ABT_SUCCESS);
        EXPECT_EQ(affinity_of(each), last);
    }
    EXPECT_EQ(cpus_of_caller(), all);
    for (std::size_t i = 0; i < here.streams.size(); ++i) {
        ASSERT_EQ(ABT_xstream_revive(here.streams[i]), ABT_SUCCESS);
        EXPECT_EQ(runs_on(here.pool_of(i)), last);
    }
}

TEST(argobots_xstream, a_revived_one_is_bound_as_before) {
    const std::vector<int> last{cpus_of_caller().back()};
    const program here(1);
    ASSERT_EQ(ABT_xstream_set_cpubind(here.streams[0], last[0]), ABT_SUCCESS);
    EXPECT_EQ(runs_on(here.pool_of(0)), last);
    ASSERT_EQ(ABT_xstream_join(here.streams[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_revive(here.streams[0]), ABT_SUCCESS);
    EXPECT_EQ(runs_on(here.pool_of(0)), last);
    EXPECT_EQ(affinity_of(here.streams[0]), last);
}

/// Where the streams are printed to.
class nowhere {
public:
    FILE* file() const noexcept { return file_.get(); }

private:
    struct closer {
        void operator()(FILE* which) const noexcept { std::fclose(which); }
    };
    std::unique_ptr<FILE, closer> file_{std::fopen("/dev/null", "w")};
};

int number_of_streams() {
    int number = 0;
    EXPECT_EQ(ABT_xstream_get_num(&number), ABT_SUCCESS);
    return number;
}

/// A stream that another thread frees while somebody looks at all of them.
struct freed_meanwhile {
    ABT_xstream which = nullptr;
    ABT_xstream* left = nullptr;  // the other one
    std::atomic<bool> freed{false};
    bool freed_too_soon = false;
    std::thread by;

    /// Of the one who looks. The stream is in no list any more then, but must not be freed yet.
    void look() {
        if (by.joinable()) return;
        const int before = number_of_streams();
        by = std::thread([this] {
            EXPECT_EQ(ABT_xstream_free(&which), ABT_SUCCESS);
            freed = true;
        });
        while (number_of_streams() == before)
            std::this_thread::yield();
        for (int i = 0; i < 100 && !freed; ++i)
            std::this_thread::yield();
        freed_too_soon = freed;
    }
    void expect_later() {
        ASSERT_TRUE(by.joinable());
        by.join();
        EXPECT_FALSE(freed_too_soon);
    }
};
freed_meanwhile* seen = nullptr;

/// A pool of the program's functions that is empty, and whose size is looked at.
ABT_pool watched_pool() {
    ABT_pool_user_def functions = nullptr;
    EXPECT_EQ(ABT_pool_user_def_create(
                  [](ABT_pool, ABT_thread) -> ABT_unit { return nullptr; },
                  [](ABT_pool, ABT_unit) {}, [](ABT_pool) -> ABT_bool { return ABT_TRUE; },
                  [](ABT_pool, ABT_pool_context) -> ABT_thread { return nullptr; },
                  [](ABT_pool, ABT_unit, ABT_pool_context) {}, &functions),
              ABT_SUCCESS);
    EXPECT_EQ(ABT_pool_user_def_set_get_size(functions,
                                             [](ABT_pool) -> std::size_t {
                                                 if (seen != nullptr) seen->look();
                                                 return 0;
                                             }),
              ABT_SUCCESS);
    ABT_pool made = nullptr;
    EXPECT_EQ(ABT_pool_create(functions, nullptr, &made), ABT_SUCCESS);
    EXPECT_EQ(ABT_pool_user_def_free(&functions), ABT_SUCCESS);
    return made;
}

TEST(argobots_xstream, one_is_not_freed_while_it_is_printed) {
    const nowhere out;
    const program here;
    ABT_pool pool = watched_pool();
    ABT_xstream first = nullptr;
    ASSERT_EQ(ABT_xstream_create_basic(ABT_SCHED_BASIC, 1, &pool, nullptr, &first), ABT_SUCCESS);
    freed_meanwhile second;
    ASSERT_EQ(ABT_xstream_create(nullptr, &second.which), ABT_SUCCESS);
    seen = &second;
    EXPECT_EQ(ABT_info_print_all_xstreams(out.file()), ABT_SUCCESS);
    seen = nullptr;
    second.expect_later();
    ASSERT_EQ(ABT_xstream_free(&first), ABT_SUCCESS);
    ASSERT_EQ(ABT_pool_free(&pool), ABT_SUCCESS);
}

struct two_of_the_program {
    std::array<ABT_xstream, 2> streams{};
    std::array<ABT_sched, 2> scheds{};
};
two_of_the_program* asked = nullptr;

/// Its get_migr_pool() has none, and has the other stream freed.
ABT_sched reluctant_sched() {
    ABT_sched_def functions{};
    functions.run = [](ABT_sched sched) {
        for (ABT_bool stop = ABT_FALSE; !stop; ABT_sched_has_to_stop(sched, &stop))
            ABT_xstream_check_events(sched);
    };
    functions.get_migr_pool = [](ABT_sched sched) -> ABT_pool {
        const std::size_t mine = sched == asked->scheds[0] ? 0 : 1;
        if (!seen->by.joinable()) {
            seen->which = asked->streams[1 - mine];
            seen->left = &asked->streams[mine];
        }
        seen->look();
        return nullptr;
    };
    ABT_sched made = nullptr;
    EXPECT_EQ(ABT_sched_create(&functions, 1, nullptr, nullptr, &made), ABT_SUCCESS);
    return made;
}

TEST(argobots_xstream, one_is_not_freed_while_it_may_be_migrated_to) {
    const program here;
    two_of_the_program both;
    for (std::size_t i = 0; i < 2; ++i) {
        both.scheds[i] = reluctant_sched();
        ASSERT_EQ(ABT_xstream_create(both.scheds[i], &both.streams[i]), ABT_SUCCESS);
    }
    freed_meanwhile other;
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool, [](void*) {}, nullptr, nullptr, &made),
              ABT_SUCCESS);
    seen = &other;
    asked = &both;
    EXPECT_EQ(ABT_thread_migrate(made), ABT_ERR_MIGRATION_NA);
    other.expect_later();
    seen = nullptr;
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_free(other.left), ABT_SUCCESS);
    for (ABT_sched& each : both.scheds)
        ASSERT_EQ(ABT_sched_free(&each), ABT_SUCCESS);
}

/// Calls `look` for as long as another thread makes and frees streams.
template <typename Look>
void while_streams_come_and_go(Look look) {
    constexpr int rounds = 200;
    std::atomic<bool> done{false};
    std::thread maker([&done] {
        for (int i = 0; i < rounds; ++i) {
            ABT_xstream made[3] = {};
            for (ABT_xstream& each : made)
                EXPECT_EQ(ABT_xstream_create(nullptr, &each), ABT_SUCCESS);
            for (ABT_xstream& each : made)
                EXPECT_EQ(ABT_xstream_free(&each), ABT_SUCCESS);
        }
        done = true;
    });
    while (!done)
        look();
    maker.join();
}

TEST(argobots_xstream, all_are_printed_while_they_come_and_go) {
    const nowhere out;
    const program here;
    while_streams_come_and_go(
        [&] { EXPECT_EQ(ABT_info_print_all_xstreams(out.file()), ABT_SUCCESS); });
}

TEST(argobots_xstream, a_ult_migrates_to_any_while_they_come_and_go) {
    const program here(1);
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool, [](void*) { ABT_self_suspend(); }, nullptr, nullptr, &made),
              ABT_SUCCESS);
    ABT_thread_yield();
    while_streams_come_and_go([&] {
        const int error = ABT_thread_migrate(made);
        EXPECT_TRUE(error == ABT_SUCCESS || error == ABT_ERR_MIGRATION_NA) << error;
    });
    ASSERT_EQ(ABT_thread_migrate_to_pool(made, here.pool_of(0)), ABT_SUCCESS);  // which stays
    ASSERT_EQ(ABT_thread_resume(made), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
}

std::atomic<int> answered{0};
void count_answer(ABT_bool, void*) {
    ++answered;
}

TEST(argobots_xstream, all_stacks_are_printed_while_they_come_and_go) {
    const nowhere out;
    const program here;
    while_streams_come_and_go([&] {
        const int before = answered;
        ASSERT_EQ(ABT_info_trigger_print_all_thread_stacks(out.file(), -1, count_answer, nullptr),
                  ABT_SUCCESS);
        while (answered == before)
            ABT_thread_yield();
    });
}

TEST(argobots_xstream, main_schedulers_are_printed_while_they_are_replaced) {
    const nowhere out;
    const program here(1);
    struct replacing {
        std::atomic<bool> done{false};
    } what;
    ABT_thread replaces = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool_of(0),
                  [](void* arg) {
                      ABT_xstream mine = nullptr;
                      EXPECT_EQ(ABT_self_get_xstream(&mine), ABT_SUCCESS);
                      for (int i = 0; i < 500; ++i)
                          EXPECT_EQ(
                              ABT_xstream_set_main_sched_basic(mine, ABT_SCHED_BASIC, 1, nullptr),
                              ABT_SUCCESS);
                      static_cast<replacing*>(arg)->done = true;
                  },
                  &what, nullptr, &replaces),
              ABT_SUCCESS);
    while (!what.done) {
        EXPECT_EQ(ABT_info_print_all_xstreams(out.file()), ABT_SUCCESS);
        EXPECT_EQ(ABT_info_print_xstream(out.file(), here.streams[0]), ABT_SUCCESS);
        ABT_sched seen_now = nullptr;  // It may be gone already.
        EXPECT_EQ(ABT_xstream_get_main_sched(here.streams[0], &seen_now), ABT_SUCCESS);
        EXPECT_NE(seen_now, nullptr);
    }
    ASSERT_EQ(ABT_thread_free(&replaces), ABT_SUCCESS);
}

TEST(argobots_xstream,
     one_request_to_print_all_stacks_waits_for_a_busy_one_and_others_are_dropped) {
    const nowhere out;
    const program here(1);
    struct busy_until {
        std::atomic<bool> begun{false};
        std::atomic<bool> go{false};
    } what;
    ABT_thread busy = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool_of(0),
                  [](void* arg) {
                      auto& mine = *static_cast<busy_until*>(arg);
                      mine.begun = true;
                      while (!mine.go)
                          std::this_thread::yield();
                  },
                  &what, nullptr, &busy),
              ABT_SUCCESS);
    while (!what.begun)
        std::this_thread::yield();
    answered = 0;
    const std::size_t before = list_ults(false).size();
    for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(ABT_info_trigger_print_all_thread_stacks(out.file(), -1, count_answer, nullptr),
                  ABT_SUCCESS);
        ABT_thread_yield();
    }
    EXPECT_LE(list_ults(false).size(), before + 1);
    EXPECT_EQ(answered, 0);
    what.go = true;
    while (answered == 0)
        ABT_thread_yield();
    ASSERT_EQ(ABT_thread_free(&busy), ABT_SUCCESS);
    ASSERT_EQ(ABT_info_trigger_print_all_thread_stacks(out.file(), -1, count_answer, nullptr),
              ABT_SUCCESS);
    while (answered < 2)
        ABT_thread_yield();
    EXPECT_EQ(answered, 2);
}

}  // namespace
}  // namespace amalgam::argobots_testing

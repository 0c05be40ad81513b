#include <array>
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>

#include "abt_testing.hpp"

// GCC defines a macro, clang has __has_feature.
#if defined(__SANITIZE_ADDRESS__)
#define ARGOBOTS_ADDRESSES_CHECKED 1
#elif defined(__has_feature)
#define ARGOBOTS_ADDRESSES_CHECKED __has_feature(address_sanitizer)
#else
#define ARGOBOTS_ADDRESSES_CHECKED 0
#endif

// A ULT gets its stack when it begins; those that end follow each other on one.
namespace amalgam::argobots_testing {
namespace {

/// A stream of its own with one private pool, whose main ULT runs `body(arg)`.
void run_on_private_pool(void (*body)(void*), void* arg, ABT_pool& pool) {
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_PRIV, ABT_TRUE, &pool),
              ABT_SUCCESS);
    ABT_xstream stream = nullptr;
    ASSERT_EQ(ABT_xstream_create_basic(ABT_SCHED_BASIC, 1, &pool, nullptr, &stream), ABT_SUCCESS);
    ABT_thread main = nullptr;
    ASSERT_EQ(ABT_thread_create(pool, body, arg, nullptr, &main), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_free(&main), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_free(&stream), ABT_SUCCESS);
}

struct many {
    static constexpr std::size_t number = 200;
    ABT_pool pool = nullptr;
    std::array<ABT_thread, number> made{};
    std::array<void*, number> frames{};
    std::size_t ran = 0;
};

void create_all(many& what, void (*function)(void*), void* arg) {
    for (ABT_thread& each : what.made)
        ASSERT_EQ(ABT_thread_create(what.pool, function, arg, nullptr, &each), ABT_SUCCESS);
}

void free_all(many& what) {
    for (ABT_thread& each : what.made)
        ASSERT_EQ(ABT_thread_free(&each), ABT_SUCCESS);
}

void note_frame(void* arg) {
    auto& mine = *static_cast<many*>(arg);
    mine.frames[mine.ran++] = __builtin_frame_address(0);
}

TEST(argobots_stack, is_that_of_who_ended_before) {
    const program here;
    many what;
    run_on_private_pool(
        [](void* arg) {
            auto& mine = *static_cast<many*>(arg);
            create_all(mine, note_frame, arg);
            free_all(mine);
        },
        &what, what.pool);
    EXPECT_EQ(what.ran, many::number);
    const std::set<void*> stacks(what.frames.begin(), what.frames.end());
    EXPECT_LT(stacks.size(), many::number / 10);  // a few: a batch ends now and then
}

TEST(argobots_stack, of_a_ult_that_waits_is_its_own) {
    const program here;
    many what;
    run_on_private_pool(
        [](void* arg) {
            auto& mine = *static_cast<many*>(arg);
            create_all(
                mine,
                [](void* all) {
                    note_frame(all);
                    ABT_thread_yield();
                },
                arg);
            free_all(mine);
        },
        &what, what.pool);
    const std::set<void*> stacks(what.frames.begin(), what.frames.end());
    EXPECT_EQ(stacks.size(), many::number);
}

struct handles {
    bool tasklets = false;
    ABT_pool pool = nullptr;
    std::vector<ABT_thread> seen = {};
};

[[maybe_unused]] void note_handle(void* arg) {
    ABT_thread self = nullptr;
    ABT_self_get_thread(&self);
    static_cast<handles*>(arg)->seen.push_back(self);
}

#if !ARGOBOTS_ADDRESSES_CHECKED  // which keeps freed memory from use for a while
TEST(argobots_stack, and_the_memory_of_a_unit_without_a_name_serves_the_next_one) {
    constexpr int rounds = 20, each_round = 50;
    for (const bool tasklets : {false, true}) {
        const program here;
        handles what{.tasklets = tasklets};
        run_on_private_pool(
            [](void* arg) {
                auto& mine = *static_cast<handles*>(arg);
                for (int i = 0; i < rounds; ++i) {
                    for (int k = 0; k < each_round; ++k) {
                        ASSERT_EQ(
                            mine.tasklets
                                ? ABT_task_create(mine.pool, note_handle, arg, nullptr)
                                : ABT_thread_create(mine.pool, note_handle, arg, nullptr, nullptr),
                            ABT_SUCCESS);
                    }
                    ABT_thread_yield();
                }
            },
            &what, what.pool);
        EXPECT_EQ(what.seen.size(), std::size_t{rounds * each_round});
        const std::set<ABT_thread> different(what.seen.begin(), what.seen.end());
        EXPECT_LE(different.size(), 2u * each_round);
    }
}
#endif

/// Its own stream and others create units without names in a private pool.
TEST(argobots_stack, units_without_names_come_from_everywhere_into_a_private_pool) {
    program here(1);
    ABT_pool pool = nullptr;
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_PRIV, ABT_TRUE, &pool),
              ABT_SUCCESS);
    ABT_xstream stream = nullptr;
    ASSERT_EQ(ABT_xstream_create_basic(ABT_SCHED_BASIC, 1, &pool, nullptr, &stream), ABT_SUCCESS);
    struct both {
        ABT_pool pool;
        std::atomic<int> ran{0};
    } what{.pool = pool};
    const auto create = [](void* arg) {
        for (int i = 0; i < 2000; ++i) {
            const auto count = [](void* of) { ++static_cast<both*>(of)->ran; };
            ABT_pool to = static_cast<both*>(arg)->pool;
            if (i % 3 == 0) {
                ABT_task_create(to, count, arg, nullptr);
            } else {
                ABT_thread_create(to, count, arg, nullptr, nullptr);
            }
            if (i % 64 == 0) ABT_thread_yield();
        }
    };
    ABT_thread creators[2] = {};
    ASSERT_EQ(ABT_thread_create(pool, create, &what, nullptr, &creators[0]), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_create(here.pool_of(0), create, &what, nullptr, &creators[1]),
              ABT_SUCCESS);
    for (ABT_thread& each : creators)
        ASSERT_EQ(ABT_thread_free(&each), ABT_SUCCESS);
    ASSERT_EQ(ABT_xstream_free(&stream), ABT_SUCCESS);
    EXPECT_EQ(what.ran, 4000);
}

struct unlike {
    ABT_pool pool = nullptr;
    std::vector<std::uint64_t> ids;
    int roundings_kept = 0;
    int locals_kept = 0;
};

ult_local<int>& local() {
    static ult_local<int> one;
    return one;
}

TEST(argobots_stack, shows_nothing_of_who_had_it_before) {
    const program here;
    unlike what;
    run_on_private_pool(
        [](void* arg) {
            auto& mine = *static_cast<unlike*>(arg);
            ABT_thread made[40];
            for (ABT_thread& each : made) {
                ASSERT_EQ(ABT_thread_create(
                              mine.pool,
                              [](void* of) {
                                  auto& all = *static_cast<unlike*>(of);
                                  if (std::fegetround() != FE_TONEAREST) ++all.roundings_kept;
                                  if (*local() != 0) ++all.locals_kept;
                                  // Some leave something, the others find out.
                                  if (all.ids.size() % 4 == 0) std::fesetround(FE_UPWARD);
                                  if (all.ids.size() % 4 == 2) *local() = 1;
                                  all.ids.push_back(this_task::id());
                              },
                              arg, nullptr, &each),
                          ABT_SUCCESS);
            }
            for (ABT_thread& each : made)
                ASSERT_EQ(ABT_thread_free(&each), ABT_SUCCESS);
        },
        &what, what.pool);
    EXPECT_EQ(what.roundings_kept, 0);
    EXPECT_EQ(what.locals_kept, 0);
    EXPECT_EQ(std::set<std::uint64_t>(what.ids.begin(), what.ids.end()).size(), 40u);
}

TEST(argobots_stack, of_who_exits_or_throws_is_left_to_the_next) {
    const program here;
    many what;
    run_on_private_pool(
        [](void* arg) {
            auto& mine = *static_cast<many*>(arg);
            create_all(
                mine,
                [](void* all) {
                    const std::size_t which = static_cast<many*>(all)->ran++;
                    if (which % 3 == 0) ABT_self_exit();
                    if (which % 3 == 1) throw 1;  // logged
                },
                arg);
            free_all(mine);
        },
        &what, what.pool);
    EXPECT_EQ(what.ran, many::number);
}

/// Of a stream of its own, which creates and runs units while others join them.
struct shared_ends {
    static constexpr int number = 300;
    ABT_pool pool = nullptr;
    std::atomic<ABT_thread> last{nullptr};
    std::atomic<int> ran{0};
};

TEST(argobots_stack, a_joiner_elsewhere_sees_each_end_of_a_private_pool) {
    const program here;
    shared_ends what;
    std::thread joins([&] {
        for (int i = 0; i < shared_ends::number; ++i) {
            ABT_thread one = nullptr;
            while ((one = what.last.exchange(nullptr)) == nullptr)
                std::this_thread::yield();
            ASSERT_EQ(ABT_thread_free(&one), ABT_SUCCESS);
        }
    });
    run_on_private_pool(
        [](void* arg) {
            auto& mine = *static_cast<shared_ends*>(arg);
            for (int i = 0; i < shared_ends::number; ++i) {
                const auto count = [](void* of) { ++static_cast<shared_ends*>(of)->ran; };
                ABT_thread made = nullptr;
                if (i % 2 == 0) {
                    ASSERT_EQ(ABT_thread_create(mine.pool, count, arg, nullptr, &made),
                              ABT_SUCCESS);
                } else {
                    ASSERT_EQ(ABT_task_create(mine.pool, count, arg, &made), ABT_SUCCESS);
                }
                mine.last = made;
                while (mine.last.load() != nullptr)
                    ABT_thread_yield();
            }
        },
        &what, what.pool);
    joins.join();
    EXPECT_EQ(what.ran, shared_ends::number);
}

TEST(argobots_stack, a_joiner_of_a_ult_whose_pool_is_gone_does_not_wait_for_ever) {
    const program here;
    logged_lines lines;
    ABT_pool apart = nullptr;
    ASSERT_EQ(ABT_pool_create_basic(ABT_POOL_FIFO, ABT_POOL_ACCESS_MPMC, ABT_FALSE, &apart),
              ABT_SUCCESS);
    ABT_thread waits = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  apart, [](void*) { ABT_self_suspend(); }, nullptr, nullptr, &waits),
              ABT_SUCCESS);
    run_and_free(
        here.pool,
        [](void* arg) {
            ABT_thread next = nullptr;
            ASSERT_EQ(ABT_pool_pop_thread(static_cast<ABT_pool>(arg), &next), ABT_SUCCESS);
            ASSERT_EQ(ABT_self_schedule(next, ABT_POOL_NULL), ABT_SUCCESS);
        },
        apart);
    ABT_thread_state is = ABT_THREAD_STATE_READY;
    ASSERT_EQ(ABT_thread_get_state(waits, &is), ABT_SUCCESS);
    ASSERT_EQ(is, ABT_THREAD_STATE_BLOCKED);
    ASSERT_EQ(ABT_pool_free(&apart), ABT_SUCCESS);
    EXPECT_TRUE(lines.have("a pool was destroyed with work left in it"));
    EXPECT_EQ(ABT_thread_free(&waits), ABT_SUCCESS);
}

TEST(argobots_stack, the_primary_ult_goes_on_after_all_that_was_ready_when_it_joined) {
    const program here;
    int ran = 0;
    const auto count = [](void* arg) { ++*static_cast<int*>(arg); };
    ABT_thread made[10];
    for (ABT_thread& each : made)
        ASSERT_EQ(ABT_thread_create(here.pool, count, &ran, nullptr, &each), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_join(made[0]), ABT_SUCCESS);
    EXPECT_EQ(ran, 10);
    for (ABT_thread& each : made)
        ASSERT_EQ(ABT_thread_free(&each), ABT_SUCCESS);
}

struct told_stack {
    void* base = nullptr;
    std::size_t bytes = 1;
};

told_stack stack_of(ABT_thread which) {
    told_stack told;
    EXPECT_EQ(ABT_thread_get_stack(which, &told.base, &told.bytes), ABT_SUCCESS);
    return told;
}

TEST(argobots_stack, is_told_of_those_that_have_one) {
    const program here;
    ABT_thread primary = nullptr;
    ASSERT_EQ(ABT_self_get_thread(&primary), ABT_SUCCESS);
    ABT_thread tasklet = nullptr;
    ASSERT_EQ(ABT_task_create(
                  here.pool, [](void*) {}, nullptr, &tasklet),
              ABT_SUCCESS);
    for (ABT_thread each : {primary, tasklet}) {
        const told_stack none = stack_of(each);
        EXPECT_EQ(none.base, nullptr);
        EXPECT_EQ(none.bytes, 0u);
    }
    ASSERT_EQ(ABT_thread_free(&tasklet), ABT_SUCCESS);
    void* frame = nullptr;
    ABT_thread made = nullptr;
    ASSERT_EQ(ABT_thread_create(
                  here.pool,
                  [](void* arg) {
                      *static_cast<void**>(arg) = __builtin_frame_address(0);
                      ABT_self_suspend();
                  },
                  &frame, nullptr, &made),
              ABT_SUCCESS);
    EXPECT_EQ(stack_of(made).base, nullptr);  // not yet
    while (ABT_thread_resume(made) != ABT_SUCCESS) {
        const told_stack its = stack_of(made);
        if (frame != nullptr) {
            EXPECT_GT(frame, its.base);
            EXPECT_LT(frame, static_cast<char*>(its.base) + (std::size_t{2} << 20));
        }
        ABT_thread_yield();
    }
    ASSERT_EQ(ABT_thread_free(&made), ABT_SUCCESS);
}

TEST(argobots_stack, beyond_the_address_space_is_no_memory) {
    const program here;
    ABT_thread_attr attr = nullptr;
    ASSERT_EQ(ABT_thread_attr_create(&attr), ABT_SUCCESS);
    ASSERT_EQ(ABT_thread_attr_set_stacksize(attr, SIZE_MAX), ABT_SUCCESS);
    ABT_thread made = nullptr;
    EXPECT_EQ(ABT_thread_create(
                  here.pool, [](void*) {}, nullptr, attr, &made),
              ABT_ERR_MEM);
    ASSERT_EQ(ABT_thread_attr_free(&attr), ABT_SUCCESS);
}

#if !ARGOBOTS_ADDRESSES_CHECKED && !defined(__SANITIZE_THREAD__)
int recurse(int depth) {
    volatile char frame[1024];
    std::memset(const_cast<char*>(frame), depth, sizeof frame);
    return depth > 100'000'000 ? 0 : recurse(depth + 1) + frame[depth % 1024];
}

TEST(argobots_stack, that_overflows_is_told_with_what_raises_it) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            const program here;
            run_and_free(
                here.pool, [](void*) { recurse(0); }, nullptr);
        },
        "raise ABT_THREAD_STACKSIZE, or the stack size of its ABT_thread_attr");
}

void leave_no_memory() {
    constexpr rlim_t less_than_a_stack = 128 * 1024;
    rlim_t pages = 0;
    if (FILE* const file = std::fopen("/proc/self/statm", "r")) {
        unsigned long found = 0;
        if (std::fscanf(file, "%lu", &found) == 1) pages = found;
        std::fclose(file);
    }
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + less_than_a_stack;
    const rlimit limit{bytes, bytes};
    if (pages == 0 || ::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(77);
}

/// In a child whose address space ends here: 0 if all of its ULTs have run.
[[noreturn]] void run_without_memory() {
    if (ABT_init(0, nullptr) != ABT_SUCCESS) ::_exit(2);
    many what;
    ABT_xstream self = nullptr;
    ABT_self_get_xstream(&self);
    ABT_xstream_get_main_pools(self, 1, &what.pool);
    create_all(
        what, [](void*) {}, nullptr);  // so that there are descriptors, and a stack
    free_all(what);
    leave_no_memory();
    logged_lines lines;
    create_all(
        what,
        [](void* arg) {
            ABT_thread_yield();
            ++static_cast<many*>(arg)->ran;
        },
        &what);
    free_all(what);
    const bool told = lines.have("a ULT waits to begin, as there is no memory for its stack");
    ::_exit(what.ran == many::number ? (told ? 0 : 3) : 1);
}

/// The same, but all stacks are held: 0 if those that have none end when canceled, and one line in
/// the log says that they waited.
[[noreturn]] void cancel_without_memory() {
    if (ABT_init(0, nullptr) != ABT_SUCCESS) ::_exit(2);
    many what;
    ABT_xstream self = nullptr;
    ABT_self_get_xstream(&self);
    ABT_xstream_get_main_pools(self, 1, &what.pool);
    create_all(
        what, [](void*) {}, nullptr);
    free_all(what);
    leave_no_memory();
    logged_lines lines;
    create_all(
        what, [](void*) { ABT_self_suspend(); }, nullptr);
    for (int i = 0; i < 300; ++i)
        ABT_thread_yield();
    const std::size_t told = lines.number_of("a ULT waits to begin");
    std::vector<ABT_thread> waiting;
    for (ABT_thread each : what.made) {
        ABT_thread_state is = ABT_THREAD_STATE_READY;
        ABT_thread_get_state(each, &is);
        if (is != ABT_THREAD_STATE_BLOCKED) waiting.push_back(each);
    }
    if (waiting.empty()) ::_exit(77);
    for (ABT_thread each : waiting)
        ABT_thread_cancel(each);
    for (int i = 0; i < 300; ++i)
        ABT_thread_yield();
    for (ABT_thread each : waiting) {
        ABT_thread_state is = ABT_THREAD_STATE_READY;
        ABT_thread_get_state(each, &is);
        if (is != ABT_THREAD_STATE_TERMINATED) ::_exit(1);
    }
    ::_exit(told == 1 ? 0 : 3);
}

/// 0 if a hundred ULTs have each a stack at once.
[[noreturn]] void begin_without_memory() {
    if (ABT_init(0, nullptr) != ABT_SUCCESS) ::_exit(2);
    many what;
    ABT_xstream self = nullptr;
    ABT_self_get_xstream(&self);
    ABT_xstream_get_main_pools(self, 1, &what.pool);
    logged_lines lines;
    leave_no_memory();
    constexpr std::size_t number = 100;
    for (std::size_t i = 0; i < number; ++i) {
        ABT_thread_create(
            what.pool,
            [](void* arg) {
                ++static_cast<many*>(arg)->ran;
                ABT_self_suspend();
            },
            &what, nullptr, &what.made[i]);
    }
    for (int i = 0; i < 10; ++i)
        ABT_thread_yield();
    ::_exit(what.ran == number && !lines.have("a ULT waits to begin") ? 0 : 1);
}

void expect_success_in_child(void (*body)()) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        body(),
        [](int status) {
            return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
        },
        "");
}

TEST(argobots_stack, that_no_memory_is_left_for_is_waited_for) {
    expect_success_in_child(run_without_memory);
}

TEST(argobots_stack, is_mapped_by_init_for_the_first_hundred) {
    expect_success_in_child(begin_without_memory);
}

TEST(argobots_stack, is_not_needed_by_who_was_canceled_before) {
    expect_success_in_child(cancel_without_memory);
}
#endif

}  // namespace
}  // namespace amalgam::argobots_testing

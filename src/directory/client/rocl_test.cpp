#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rocl.h>

#include "conformance/slow_build.hpp"
#include "temp_folder.hpp"

namespace {

using namespace amalgam;

struct rocl : testing::Test {
    void SetUp() override {
        ::setenv("AMALGAM_DIRECTORY", "here", 1);
        context = rocl_init();
        ASSERT_GT(context, 0);
    }
    void TearDown() override {
        if (context > 0) {
            EXPECT_EQ(rocl_exit(), 0);
        }
    }
    static rocl_attrl_t* list(const std::vector<std::pair<std::string, const char*>>& all) {
        rocl_attrl_t* const made = rocl_new_attrl(0);
        for (const auto& [name, value] : all) {
            const int length = value != nullptr ? static_cast<int>(std::strlen(value)) : 0;
            EXPECT_EQ(rocl_add_attr(made, name.c_str(), value, length), 0);
        }
        return made;
    }
    static std::string text(rocl_attrl_t* attrs, const char* name) {
        int length = -1;
        const void* const value = rocl_get_attr(attrs, name, &length);
        return value != nullptr
                   ? std::string(static_cast<const char*>(value), static_cast<std::size_t>(length))
                   : "nothing";
    }
    int context = -1;
};

TEST_F(rocl, a_message_gets_from_a_resource_to_one_that_was_found) {
    rocl_attrl_t* const server = list({{"type", "server"}, {"rack", "7"}});
    rocl_attrl_t* const client = list({{"type", "client"}});
    const int to = rocl_register(server), from = rocl_register(client);
    rocl_attrl_t* const wanted = list({{"type", "server"}, {"rack", nullptr}, {"load", nullptr}});
    int found = ROCL_ANY;
    ASSERT_EQ(rocl_query(&found, wanted), 0);
    EXPECT_EQ(found, to);
    EXPECT_EQ(text(wanted, "rack"), "7");
    EXPECT_EQ(text(wanted, "load"), "nothing");

    for (const int length : {0, 5, 100000}) {
        void* const out = rocl_bfget(length);
        ASSERT_NE(out, nullptr);
        std::memset(out, 'x', static_cast<std::size_t>(length));
        ASSERT_EQ(rocl_send(from, found, 3, out, length), 0);
        EXPECT_EQ(rocl_bftoret(out), 0);
        void* in = nullptr;
        int origin = 0, tag = 0, got = 0;
        ASSERT_EQ(rocl_recv(to, ROCL_ANY, ROCL_ANY, &in, &origin, &tag, &got, -1), 0);
        EXPECT_EQ(origin, from);
        EXPECT_EQ(tag, 3);
        EXPECT_EQ(got, length);
        EXPECT_EQ(std::string(static_cast<const char*>(in), static_cast<std::size_t>(got)),
                  std::string(static_cast<std::size_t>(length), 'x'));
        EXPECT_EQ(rocl_bfret(in), 0);
    }
    EXPECT_EQ(rocl_delete(to), 0);
    EXPECT_EQ(rocl_query(&found, nullptr), ROCL_ENOTFOUND);
    for (rocl_attrl_t* each : {server, client, wanted})
        EXPECT_EQ(rocl_kill_attrl(each), 0);
}

TEST_F(rocl, all_answers_come_one_at_a_time) {
    std::set<int> ids;
    for (const char* n : {"1", "2", "3"}) {
        rocl_attrl_t* const one = list({{"type", "x"}, {"n", n}});
        ids.insert(rocl_register(one));
        rocl_kill_attrl(one);
    }
    rocl_attrl_t* const wanted = list({{"type", "x"}, {"n", nullptr}});
    rocl_handler_t* const query = rocl_query_start(wanted);
    std::set<int> seen;
    std::set<std::string> values;
    for (int id; (id = rocl_query_next(query, wanted)) > 0;) {
        seen.insert(id);
        values.insert(text(wanted, "n"));
    }
    EXPECT_EQ(seen, ids);
    EXPECT_EQ(values, (std::set<std::string>{"1", "2", "3"}));
    EXPECT_EQ(rocl_query_next(query, wanted), ROCL_ENOTFOUND);
    EXPECT_EQ(rocl_query_stop(query), 0);
    rocl_kill_attrl(wanted);
}

TEST_F(rocl, receiving_waits_as_long_as_it_is_told) {
    rocl_attrl_t* const nothing = rocl_new_attrl(0);
    const int me = rocl_register(nothing);
    void* in = nullptr;
    EXPECT_EQ(rocl_recv(me, ROCL_ANY, ROCL_ANY, &in, nullptr, nullptr, nullptr, 0), ROCL_ETIMEDOUT);
    EXPECT_EQ(rocl_recv(me, ROCL_ANY, 5, &in, nullptr, nullptr, nullptr, 2), ROCL_ETIMEDOUT);
    std::thread deletes([&] {
        // Whether or not it is waiting by now, the receiver is told.
        EXPECT_EQ(rocl_delete(me), 0);
    });
    EXPECT_EQ(rocl_recv(me, ROCL_ANY, ROCL_ANY, &in, nullptr, nullptr, nullptr, -1),
              ROCL_ENOTFOUND);
    deletes.join();
    rocl_kill_attrl(nothing);
}

TEST_F(rocl, wrong_calls_are_refused) {
    EXPECT_EQ(rocl_init(), ROCL_EINVALID);
    rocl_attrl_t* const small = rocl_new_attrl(40);
    EXPECT_EQ(rocl_add_attr(small, "n", "1", 1), 0);
    EXPECT_EQ(rocl_add_attr(small, "n", "1", 1), ROCL_EINVALID) << "it is there already";
    EXPECT_EQ(rocl_add_attr(small, "m", "1", 1), ROCL_ENOMEMORY) << "there is no room";
    EXPECT_EQ(rocl_add_attr(small, nullptr, "1", 1), ROCL_EINVALID);
    EXPECT_EQ(rocl_add_attr(small, "x", "1", -1), ROCL_EINVALID);
    rocl_attrl_t* const open = list({{"n", nullptr}});
    EXPECT_EQ(rocl_register(open), ROCL_EINVALID);
    EXPECT_EQ(rocl_register(nullptr), ROCL_EINVALID);
    EXPECT_EQ(rocl_delete(12345), ROCL_ENOTFOUND);
    EXPECT_EQ(rocl_query(nullptr, open), ROCL_EINVALID);
    int here = 0;
    EXPECT_EQ(rocl_bfret(&here), ROCL_EINVALID);
    EXPECT_EQ(rocl_bfget(-1), nullptr);
    const int me = rocl_register(small);
    void* const out = rocl_bfget(10);
    EXPECT_EQ(rocl_bfstat(out), 0);
    EXPECT_EQ(rocl_send(me, me, 1, out, 1 << 20), ROCL_EINVALID);
    EXPECT_EQ(rocl_send(me, me, 1, out, 11), ROCL_EINVALID) << "it has room for more";
    EXPECT_EQ(rocl_send(me, me, -5, out, 10), ROCL_EINVALID);
    EXPECT_EQ(rocl_send(me, 12345, 1, out, 10), ROCL_ENOTFOUND);
    EXPECT_EQ(rocl_bfret(out), 0);
    EXPECT_EQ(rocl_bfret(out), ROCL_EINVALID) << "twice";
    void* in = nullptr;
    EXPECT_EQ(rocl_recv(12345, ROCL_ANY, ROCL_ANY, &in, nullptr, nullptr, nullptr, 0),
              ROCL_ENOTFOUND);
    EXPECT_EQ(rocl_recv(me, ROCL_ANY, -5, &in, nullptr, nullptr, nullptr, 0), ROCL_EINVALID);
    EXPECT_EQ(rocl_new_attrl(-1), nullptr);
    rocl_kill_attrl(small);
    rocl_kill_attrl(open);

    EXPECT_EQ(rocl_exit(), 0);
    context = -1;
    EXPECT_EQ(rocl_exit(), ROCL_ECLOSED);
    EXPECT_EQ(rocl_bfget(1), nullptr);
}

TEST_F(rocl, a_buffer_is_sent_again_with_as_much_as_was_asked_for) {
    void* const out = rocl_bfget(10);
    std::memcpy(out, "0123456789", 10);
    for (const int length : {4, 10}) {
        ASSERT_EQ(rocl_send(context, context, 1, out, length), 0);
        void* in = nullptr;
        int got = 0;
        ASSERT_EQ(rocl_recv(context, ROCL_ANY, 1, &in, nullptr, nullptr, &got, -1), 0);
        EXPECT_EQ(got, length);
        EXPECT_EQ(std::memcmp(in, "0123456789", static_cast<std::size_t>(length)), 0);
        EXPECT_EQ(rocl_send(context, context, 1, in, length + 1), ROCL_EINVALID);
        EXPECT_EQ(rocl_bfret(in), 0);
    }
    EXPECT_EQ(rocl_bfret(out), 0);
}

TEST_F(rocl, the_state_of_a_buffer_tells_what_became_of_its_message) {
    rocl_attrl_t* const nothing = rocl_new_attrl(0);
    const int me = rocl_register(nothing), other = rocl_register(nothing);
    void* const out = rocl_bfget(10);
    EXPECT_EQ(rocl_send(me, other, 1, out, 10), 0);
    while (rocl_bfstat(out) == 1)
        std::this_thread::yield();
    EXPECT_EQ(rocl_bfstat(out), 0);
    EXPECT_EQ(rocl_delete(other), 0);
    // The location is still cached, and turns out stale.
    const int sent = rocl_send(me, other, 1, out, 10);
    while (rocl_bfstat(out) == 1)
        std::this_thread::yield();
    EXPECT_TRUE(sent == ROCL_ENOTFOUND || rocl_bfstat(out) == ROCL_ENOTFOUND);
    EXPECT_EQ(rocl_bfret(out), 0);
    rocl_kill_attrl(nothing);
}

TEST_F(rocl, messages_arrive_in_the_order_in_which_they_were_sent) {
    rocl_attrl_t* const nothing = rocl_new_attrl(0);
    const int from = rocl_register(nothing), to = rocl_register(nothing);
    constexpr int count = 9000;  // More than the store holds.
    for (int i = 0; i < count; ++i) {
        const int length = i % 1000 == 500 ? 100000 : 32 << 10;
        void* const out = rocl_bfget(length);
        ASSERT_EQ(rocl_send(from, to, i, out, length), 0);
        ASSERT_EQ(rocl_bftoret(out), 0);
    }
    for (int i = 0; i < count; ++i) {
        void* in = nullptr;
        int tag = -1;
        ASSERT_EQ(rocl_recv(to, from, ROCL_ANY, &in, nullptr, &tag, nullptr, -1), 0);
        ASSERT_EQ(tag, i);
        ASSERT_EQ(rocl_bfret(in), 0);
    }
    rocl_kill_attrl(nothing);
}

TEST(rocl_exit, delivers_what_was_sent_first) {
    engine host{"shm://", {.name = "directory"}};
    const directory_server directory{host};
    context receiver{"shm://", {.directory = host.address(), .store_bytes = 100000}};
    const resource box = receiver.add({{"type", "box"}});
    ::setenv("AMALGAM_DIRECTORY", host.address().c_str(), 1);
    const int me = rocl_init();
    ASSERT_GT(me, 0);
    constexpr int count = 1000;
    for (int i = 0; i < count; ++i) {
        void* const out = rocl_bfget(1000);
        ASSERT_EQ(rocl_send(me, static_cast<int>(box.id()), i, out, 1000), 0);
        ASSERT_EQ(rocl_bftoret(out), 0);
    }
    // Its own messages to itself are dropped.
    void* const to_self = rocl_bfget(10);
    ASSERT_EQ(rocl_send(me, me, 1, to_self, 10), 0);
    std::thread ends([] { EXPECT_EQ(rocl_exit(), 0); });
    for (int i = 0; i < count; ++i)
        ASSERT_EQ(box.receive().tag, i);
    ends.join();
    EXPECT_FALSE(box.try_receive());
}

TEST_F(rocl, a_message_is_from_a_resource_of_this_context) {
    void* const out = rocl_bfget(10);
    EXPECT_EQ(rocl_send(12345, context, 1, out, 10), ROCL_EINVALID);
    rocl_attrl_t* const nothing = rocl_new_attrl(0);
    const int mine = rocl_register(nothing);
    EXPECT_EQ(rocl_send(mine, context, 1, out, 10), 0);
    EXPECT_EQ(rocl_delete(mine), 0);
    EXPECT_EQ(rocl_send(mine, context, 1, out, 10), ROCL_EINVALID) << "not any more";
    EXPECT_EQ(rocl_bfret(out), 0);
    rocl_kill_attrl(nothing);
}

TEST_F(rocl, values_that_are_longer_than_was_asked_for_are_left_out) {
    const std::string long_value(1000000, 'x');
    rocl_attrl_t* const what = list({{"type", "x"}, {"short", "1234567890123456"}});
    ASSERT_EQ(rocl_add_attr(what, "long", long_value.data(), 1000000), 0);
    const int id = rocl_register(what);
    rocl_attrl_t* const wanted = rocl_new_attrl(2000);
    ASSERT_EQ(rocl_add_attr(wanted, "type", "x", 1), 0);
    ASSERT_EQ(rocl_add_attr(wanted, "short", nullptr, 16), 0);
    ASSERT_EQ(rocl_add_attr(wanted, "long", nullptr, 16), 0);
    ASSERT_EQ(rocl_add_attr(wanted, "missing", nullptr, 16), 0);
    for (int round = 0; round < 2; ++round) {
        int found = ROCL_ANY, length = -1;
        ASSERT_EQ(rocl_query(&found, wanted), 0);
        EXPECT_EQ(found, id);
        EXPECT_EQ(text(wanted, "short"), "1234567890123456");
        EXPECT_EQ(rocl_get_attr(wanted, "long", &length), nullptr);
        EXPECT_EQ(length, 1000000);
        EXPECT_EQ(rocl_get_attr(wanted, "missing", &length), nullptr);
        EXPECT_EQ(length, 0);
    }
    // No limit of its own, but the list has one.
    rocl_attrl_t* const bounded = rocl_new_attrl(2000);
    ASSERT_EQ(rocl_add_attr(bounded, "type", "x", 1), 0);
    ASSERT_EQ(rocl_add_attr(bounded, "long", nullptr, 0), 0);
    ASSERT_EQ(rocl_add_attr(bounded, "short", nullptr, 0), 0);
    rocl_handler_t* const query = rocl_query_start(bounded);
    EXPECT_EQ(rocl_query_next(query, bounded), id);
    EXPECT_EQ(text(bounded, "long"), "nothing");
    EXPECT_EQ(text(bounded, "short"), "1234567890123456");
    EXPECT_EQ(rocl_query_stop(query), 0);
    for (rocl_attrl_t* each : {what, wanted, bounded})
        rocl_kill_attrl(each);
}

TEST_F(rocl, a_buffer_may_be_said_to_go_back_before_it_is_sent) {
    void* const out = rocl_bfget(10);
    EXPECT_EQ(rocl_bftoret(out), 0);
    EXPECT_EQ(rocl_bfstat(out), 0);
    EXPECT_EQ(rocl_send(context, 12345, 1, out, 10), ROCL_ENOTFOUND) << "it is still the program's";
    EXPECT_EQ(rocl_send(context, context, 1, out, 10), 0);
    EXPECT_EQ(rocl_bfstat(out), ROCL_EINVALID) << "it went back";
    void* in = nullptr;
    EXPECT_EQ(rocl_recv(context, ROCL_ANY, ROCL_ANY, &in, nullptr, nullptr, nullptr, -1), 0);
    EXPECT_EQ(rocl_bfret(in), 0);
}

TEST_F(rocl, any_thread_may_call_any_function) {
    std::vector<std::thread> all;
    for (int which = 0; which < 4; ++which)
        all.emplace_back([&, which] {
            const std::string name = std::to_string(which);
            rocl_attrl_t* const what = list({{"thread", name.c_str()}});
            for (int i = 0; i < 50; ++i) {
                const int mine = rocl_register(what);
                ASSERT_GT(mine, 0);
                int found = ROCL_ANY;
                ASSERT_EQ(rocl_query(&found, what), 0);
                EXPECT_EQ(found, mine);
                void* const out = rocl_bfget(100);
                std::memset(out, which, 100);
                ASSERT_EQ(rocl_send(context, mine, i, out, 100), 0);
                ASSERT_EQ(rocl_bftoret(out), 0);
                void* in = nullptr;
                int tag = -1, length = 0;
                ASSERT_EQ(rocl_recv(mine, context, ROCL_ANY, &in, nullptr, &tag, &length, -1), 0);
                EXPECT_EQ(tag, i);
                EXPECT_EQ(length, 100);
                EXPECT_EQ(*static_cast<const char*>(in), which);
                ASSERT_EQ(rocl_bfret(in), 0);
                ASSERT_EQ(rocl_delete(mine), 0);
            }
            rocl_kill_attrl(what);
        });
    for (std::thread& each : all)
        each.join();
}

TEST_F(rocl, buffers_and_lists_stay_valid_when_the_context_is_closed) {
    rocl_attrl_t* const wanted = list({{"type", "x"}, {"n", nullptr}});
    rocl_attrl_t* const what = list({{"type", "x"}, {"n", "1"}});
    ASSERT_GT(rocl_register(what), 0);
    int found = ROCL_ANY;
    ASSERT_EQ(rocl_query(&found, wanted), 0);
    void* const small = rocl_bfget(100);
    void* const large = rocl_bfget(100000);
    EXPECT_EQ(rocl_exit(), 0);
    context = -1;
    std::memset(small, 1, 100);
    std::memset(large, 1, 100000);
    EXPECT_EQ(rocl_bfstat(large), 0);
    EXPECT_EQ(rocl_bfret(small), 0);
    EXPECT_EQ(rocl_bfret(large), 0);
    EXPECT_EQ(text(wanted, "n"), "1");
    EXPECT_EQ(rocl_add_attr(wanted, "more", "2", 1), 0);
    rocl_kill_attrl(wanted);
    rocl_kill_attrl(what);
}

// Each thread's call that the end interrupts, or comes after, tells it.
/// Result of `body` in a child of fork().
template <typename Body>
int status_of_fork(Body body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

TEST(rocl_exit, in_a_child_of_fork_leaves_what_is_being_sent_to_its_parent) {
    if (conformance::slow_build)
        GTEST_SKIP() << "sanitizers allow no threads after a fork() with several";
    engine host{"shm://", {.name = "directory"}};
    const directory_server directory{host};
    context receiver{"shm://", {.directory = host.address(), .store_bytes = 4096}};
    const resource box = receiver.add({{"type", "box"}});
    const int to = static_cast<int>(box.id());
    ::setenv("AMALGAM_DIRECTORY", host.address().c_str(), 1);
    const int me = rocl_init();
    ASSERT_GT(me, 0);
    constexpr int count = 20;  // More than fit, so that one is being sent.
    for (int i = 0; i < count; ++i) {
        void* const out = rocl_bfget(1000);
        ASSERT_EQ(rocl_send(me, to, i, out, 1000), 0);
        ASSERT_EQ(rocl_bftoret(out), 0);
    }
    EXPECT_EQ(status_of_fork([&] {
                  void* const out = rocl_bfget(10);
                  if (rocl_send(me, to, count, out, 10) != ROCL_ECLOSED) return 1;
                  void* in = nullptr;
                  if (rocl_recv(me, ROCL_ANY, ROCL_ANY, &in, nullptr, nullptr, nullptr, -1) !=
                      ROCL_ECLOSED)
                      return 4;
                  if (rocl_exit() != 0) return 2;
                  ::setenv("AMALGAM_DIRECTORY", "here", 1);
                  return rocl_init() > 0 && rocl_exit() == 0 ? 0 : 3;
              }),
              0);
    for (int i = 0; i < count; ++i)
        ASSERT_EQ(box.receive().tag, i);
    EXPECT_EQ(rocl_exit(), 0);
    EXPECT_FALSE(box.try_receive());
}

TEST(rocl_codes, calls_beside_rocl_exit_end_with_closed) {
    ::setenv("AMALGAM_DIRECTORY", "here", 1);
    for (int round = 0; round < 30; ++round) {
        const int me = rocl_init();
        ASSERT_GT(me, 0);
        rocl_attrl_t* const what = rocl_new_attrl(0);
        const int box = rocl_register(what), quiet = rocl_register(what);
        std::latch all_run(8);
        std::vector<std::thread> all;
        const auto repeat = [&](auto use) {
            all.emplace_back([&, use] {
                int how = use();
                all_run.count_down();
                while (how >= 0 || how == ROCL_ETIMEDOUT)
                    how = use();
                EXPECT_EQ(how, ROCL_ECLOSED);
            });
        };
        const auto send = [&](int bytes) {
            void* const out = rocl_bfget(bytes);
            if (out == nullptr) return int{ROCL_ECLOSED};
            const int how = rocl_send(me, box, 1, out, bytes);
            EXPECT_EQ(rocl_bfret(out), 0);
            return how;
        };
        const auto receive = [&](int at, int timeout) {
            void* in = nullptr;
            const int how =
                rocl_recv(at, ROCL_ANY, ROCL_ANY, &in, nullptr, nullptr, nullptr, timeout);
            if (how == 0) {
                EXPECT_EQ(rocl_bfret(in), 0);
            }
            return how;
        };
        repeat([&] { return send(10); });
        repeat([&] { return send(100'000); });
        repeat([&] { return receive(box, -1); });
        repeat([&] { return receive(quiet, 0); });
        repeat([&] { return receive(quiet, 1); });
        repeat([&] {
            int found = ROCL_ANY;
            const int how = rocl_query(&found, what);
            return how == ROCL_ENOTFOUND ? 0 : how;  // All resources go at the end.
        });
        repeat([&] { return rocl_register(what); });
        repeat([&] {
            const int made = rocl_register(what);
            return made > 0 ? rocl_delete(made) : made;
        });
        all_run.wait();
        EXPECT_EQ(rocl_exit(), 0);
        for (std::thread& each : all)
            each.join();
        rocl_kill_attrl(what);
    }
}

TEST(rocl_codes, what_belongs_to_another_context_is_denied) {
    engine host{"shm://", {.name = "directory"}};
    const directory_server directory{host};
    context other{"shm://", {.directory = host.address()}};
    const resource its = other.add({{"type", "box"}});
    ::setenv("AMALGAM_DIRECTORY", host.address().c_str(), 1);
    const int me = rocl_init();
    ASSERT_GT(me, 0);
    EXPECT_EQ(rocl_delete(static_cast<int>(its.id())), ROCL_EDENIED);
    EXPECT_EQ(rocl_delete(static_cast<int>(other.id())), ROCL_EDENIED);
    void* in = nullptr;
    EXPECT_EQ(rocl_recv(static_cast<int>(its.id()), ROCL_ANY, ROCL_ANY, &in, nullptr, nullptr,
                        nullptr, 0),
              ROCL_ENOTFOUND)
        << "it is none of this context's";
    int found = static_cast<int>(its.id());
    EXPECT_EQ(rocl_query(&found, nullptr), 0);
    EXPECT_EQ(rocl_exit(), 0);
}

TEST(rocl_codes, answers_that_some_directories_owe_are_told_as_partial) {
    directory_options options;
    options.ring.answer_limit = std::chrono::milliseconds(200);
    options.ring.period = std::chrono::seconds(60);  // Nobody is removed within this time.
    engine host{"shm://", {.name = "directory"}}, mute{"shm://", {.name = "mute"}};
    const directory_server directory{host, options};
    options.ring.others = {host.address()};
    const directory_server silent{mute, options};
    while (directory.servers() < 2 || silent.servers() < 2)
        std::this_thread::yield();
    ::setenv("AMALGAM_DIRECTORY", host.address().c_str(), 1);
    const int me = rocl_init();
    ASSERT_GT(me, 0);
    rocl_attrl_t* const what = rocl_new_attrl(0);
    ASSERT_EQ(rocl_add_attr(what, "type", "x", 1), 0);
    int found = ROCL_ANY;
    int code = ROCL_EPARTIAL;
    while (code == ROCL_EPARTIAL)  // On a busy machine `mute` may answer too late, too.
        code = rocl_query(&found, what);
    EXPECT_EQ(code, ROCL_ENOTFOUND);
    // Blocks its only stream.
    std::latch holds(1), may_go_on(1);
    auto held = mute.spawn([&] {
        holds.count_down();
        may_go_on.wait();
    });
    holds.wait();
    EXPECT_EQ(rocl_query(&found, what), ROCL_EPARTIAL);
    rocl_handler_t* const query = rocl_query_start(what);
    EXPECT_EQ(rocl_query_next(query, nullptr), ROCL_EPARTIAL);
    const int mine = rocl_register(what);
    EXPECT_EQ(rocl_query_stop(query), 0);
    rocl_handler_t* const again = rocl_query_start(what);
    EXPECT_EQ(rocl_query_next(again, nullptr), mine) << "what there is comes all the same";
    EXPECT_EQ(rocl_query_next(again, nullptr), ROCL_EPARTIAL);
    EXPECT_EQ(rocl_query_stop(again), 0);
    may_go_on.count_down();
    held.get();
    EXPECT_EQ(rocl_exit(), 0);
    rocl_kill_attrl(what);
}

TEST(rocl_codes, who_has_no_role_is_denied) {
    engine host{"shm://", {.name = "directory"}};
    const directory_server directory{host, {.roles = {.readers = allow_list{.names = {"node7"}}}}};
    ::setenv("AMALGAM_DIRECTORY", host.address().c_str(), 1);
    EXPECT_EQ(rocl_init(), ROCL_EDENIED);
}

}  // namespace

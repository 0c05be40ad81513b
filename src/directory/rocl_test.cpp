#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rocl.h>

namespace {

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
        // Whether it waits by now or not: it is told.
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
    EXPECT_EQ(rocl_send(me, me, -5, out, 10), ROCL_EINVALID);
    EXPECT_EQ(rocl_send(me, 12345, 1, out, 10), ROCL_ENOTFOUND);
    EXPECT_EQ(rocl_bfret(out), 0);
    EXPECT_EQ(rocl_bfret(out), ROCL_EINVALID) << "twice";
    void* in = nullptr;
    EXPECT_EQ(rocl_recv(12345, ROCL_ANY, ROCL_ANY, &in, nullptr, nullptr, nullptr, 0),
              ROCL_ENOTFOUND);
    rocl_kill_attrl(small);
    rocl_kill_attrl(open);

    EXPECT_EQ(rocl_exit(), 0);
    context = -1;
    EXPECT_EQ(rocl_exit(), ROCL_ECLOSED);
    EXPECT_EQ(rocl_bfget(1), nullptr);
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
    // The way there is still known, and found to lead nowhere.
    const int sent = rocl_send(me, other, 1, out, 10);
    while (rocl_bfstat(out) == 1)
        std::this_thread::yield();
    EXPECT_TRUE(sent == ROCL_ENOTFOUND || rocl_bfstat(out) == ROCL_ENOTFOUND);
    EXPECT_EQ(rocl_bfret(out), 0);
    rocl_kill_attrl(nothing);
}

}  // namespace

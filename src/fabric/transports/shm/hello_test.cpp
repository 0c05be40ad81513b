#include "fabric/transports/shm/hello.hpp"

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>

#include "conformance/child_process.hpp"
#include "fabric/transports/shm/memory/mapping.hpp"
#include "fabric/transports/shm/memory/process.hpp"

namespace amalgam::detail {
namespace {

using conformance::channel;
using conformance::child_process;

std::string fresh_name() {
    return "test-" + std::to_string(random_u64());
}

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

struct shm_hello_test : testing::Test {
    shm_hello_test() {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        near.reset(ends[0]);
        far.reset(ends[1]);
        say.incarnation = 7;
        say.set_name("kv-1");
    }
    shm_hearing hear(bool with_pair = true) { return receive_hello(far.get(), with_pair, heard); }

    unique_fd near, far;
    unique_fd pair = make_shm_memory(shm_pair_layout::bytes).value();
    unique_fd registrations = make_shm_memory(shm_registrations_layout::bytes).value();
    shm_hello say;
    shm_received_hello heard;
};

TEST_F(shm_hello_test, arrives_with_its_memory) {
    EXPECT_EQ(hear(), shm_hearing::nothing_yet);
    ASSERT_TRUE(send_hello(near.get(), say, pair.get(), registrations.get()));
    ASSERT_EQ(hear(), shm_hearing::heard);
    EXPECT_EQ(heard.said.incarnation, 7u);
    EXPECT_EQ(heard.said.listens_at(), "kv-1");
    EXPECT_TRUE(is_shm_memory(heard.pair.get(), shm_pair_layout::bytes));
    EXPECT_TRUE(is_shm_memory(heard.registrations.get(), shm_registrations_layout::bytes));
}

TEST_F(shm_hello_test, answer_brings_the_registration_table_only) {
    ASSERT_TRUE(send_hello(near.get(), say, -1, registrations.get()));
    EXPECT_EQ(hear(/*with_pair=*/false), shm_hearing::heard);
    EXPECT_FALSE(heard.pair);
    EXPECT_TRUE(heard.registrations);
}

TEST_F(shm_hello_test, memory_that_is_missing_or_not_as_it_should_be_is_nonsense) {
    const unique_fd small = make_shm_memory(4096).value();
    const std::pair<int, int> wrong[] = {{-1, -1},
                                         {pair.get(), -1},
                                         {-1, registrations.get()},
                                         {small.get(), registrations.get()},
                                         {pair.get(), small.get()},
                                         {near.get(), registrations.get()}};
    for (auto [first, second] : wrong) {
        heard = {};
        ASSERT_TRUE(send_hello(near.get(), say, first, second));
        EXPECT_EQ(hear(), shm_hearing::nonsense);
    }
}

TEST_F(shm_hello_test, other_bytes_are_nonsense) {
    const std::string texts[] = {"x", "GET / HTTP/1.1\r\n\r\n", std::string(sizeof say, 'x'),
                                 std::string(4 * sizeof say, '\0')};
    for (const std::string& text : texts) {
        ASSERT_GT(::send(near.get(), text.data(), text.size(), 0), 0);
        EXPECT_EQ(hear(), shm_hearing::nonsense) << text;
    }
    say.name_bytes = 1000;
    ASSERT_TRUE(send_hello(near.get(), say, pair.get(), registrations.get()));
    EXPECT_EQ(hear(), shm_hearing::nonsense);
    say.name_bytes = 0;
    say.incarnation = 0;
    ASSERT_TRUE(send_hello(near.get(), say, pair.get(), registrations.get()));
    EXPECT_EQ(hear(), shm_hearing::nonsense);
}

TEST_F(shm_hello_test, other_version_is_heard_for_what_it_is) {
    say.version = shm_version + 1;
    ASSERT_TRUE(send_hello(near.get(), say, -1, -1));
    EXPECT_EQ(hear(), shm_hearing::heard);
    EXPECT_EQ(heard.said.version, shm_version + 1);
}

TEST_F(shm_hello_test, end_of_the_other_side_is_told) {
    near.reset();
    EXPECT_EQ(hear(), shm_hearing::ended);
}

TEST_F(shm_hello_test, no_descriptor_is_left_open_whatever_came) {
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 20; ++i) {
        shm_received_hello dropped;
        ASSERT_TRUE(send_hello(near.get(), say, pair.get(), near.get()));
        EXPECT_EQ(receive_hello(far.get(), true, dropped), shm_hearing::nonsense);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST(shm_names, nobody_listens_at_a_name_until_somebody_does) {
    const std::string name = fresh_name();
    EXPECT_FALSE(connect_to(name));
    EXPECT_EQ(errno, ECONNREFUSED);
    unique_fd listener = listen_at(name);
    ASSERT_TRUE(listener);
    const unique_fd caller = connect_to(name);
    ASSERT_TRUE(caller);
    EXPECT_EQ(who_is(caller.get()).pid, ::getpid());
    EXPECT_TRUE(who_is(caller.get()).same_user);
    EXPECT_TRUE(still_there(caller.get()));
    EXPECT_FALSE(listen_at(name));
    EXPECT_EQ(errno, EADDRINUSE);
    listener.reset();
    EXPECT_FALSE(still_there(caller.get()));
    EXPECT_TRUE(listen_at(name)) << "a name is free again at once";
}

TEST(shm_names, end_of_a_process_is_told_to_who_watches) {
    child_process other([](channel& parent) {
        parent.hear();
        return 0;
    });
    const unique_fd watched = watch_process(other.pid());
    ASSERT_TRUE(watched);
    EXPECT_FALSE(has_process_ended(watched.get()));
    other.kill();
    EXPECT_TRUE(has_process_ended(watched.get()));
    EXPECT_FALSE(watch_process(0));
}

}  // namespace
}  // namespace amalgam::detail

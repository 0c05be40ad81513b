// What a child of fork() does with the transfers that its parent has under way.
#include <algorithm>
#include <cstddef>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bulk/bulk_testing.hpp"

namespace amalgam {
namespace {

class bulk_forks : public testing::TestWithParam<std::vector<std::string>> {};
INSTANTIATE_TEST_SUITE_P(tcp, bulk_forks,
                         testing::Values(std::vector<std::string>{"tcp://127.0.0.1:0"},
                                         std::vector<std::string>{"tcp://127.0.0.1:0",
                                                                  "tcp://127.0.0.1:0"}));

TEST_P(bulk_forks, a_child_lets_go_of_its_parents_transfers_without_waiting) {
    engine server{GetParam()}, client{"tcp://"};
    const std::vector<std::byte> first = pattern(1 << 20), second = pattern(1 << 20, 7);
    std::vector<std::byte> memory = first, mine(first.size());
    memory.resize(2 * first.size());
    const exposed shown = expose(server, memory, access::read_write);
    server.define("memory", [&] { return bulk(shown); });
    const peer there = client.lookup(server.addresses());
    const bulk far = client.procedure<bulk()>("memory").on(there)();

    // The server does nothing until it is told, so both are under way in the fork.
    std::promise<void> stands, go_on;
    server.define("stand", [&] {
        stands.set_value();
        go_on.get_future().wait();
    });
    auto standing = client.procedure<void()>("stand").on(there).start();
    stands.get_future().wait();
    future<void> pulled = far.start_pull(mine);
    future<void> pushed = far.start_push(first.size(), second);

    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(60);  // Ends one that waits for ever.
        pulled.cancel();
        pulled = {};
        pushed = {};
        ::_exit(0);
    }
    int how = -1;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    EXPECT_EQ(how, 0);

    go_on.set_value();
    standing.get();
    pulled.get();
    pushed.get();
    EXPECT_TRUE(mine == first);
    EXPECT_TRUE(std::equal(second.begin(), second.end(), memory.begin() + (1 << 20)));
}

}  // namespace
}  // namespace amalgam

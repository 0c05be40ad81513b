// Effects of fork() on transfers that the parent has in flight.
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
#include "core/returning_child_testing.hpp"

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

    // The server blocks until told, so both are in flight at the fork.
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
        ::alarm(60);  // Ends a test that waits forever.
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

class bulk_children : public testing::TestWithParam<std::vector<std::string>> {
protected:
    std::vector<std::string> calls() const {
        return std::vector<std::string>(GetParam().size(), GetParam()[0].substr(0, 6));
    }
};
INSTANTIATE_TEST_SUITE_P(all, bulk_children,
                         testing::Values(std::vector<std::string>{"tcp://127.0.0.1:0"},
                                         std::vector<std::string>{"tcp://127.0.0.1:0",
                                                                  "tcp://127.0.0.1:0"},
                                         std::vector<std::string>{"shm://"}));

TEST_P(bulk_children, one_that_returns_from_on_progress_is_ended) {
    engine server{GetParam()}, client{calls()};
    const std::vector<std::byte> memory = pattern(1 << 22);
    std::vector<std::byte> mine(memory.size());
    const exposed shown = expose(server, memory);
    server.define("memory", [&] { return bulk(shown); });
    const bulk far = client.procedure<bulk()>("memory").on(client.lookup(server.addresses()))();

    core_testing::child_that_returns child;
    far.pull(mine, {.chunk_bytes = 1 << 16, .on_progress = [&](std::uint64_t) {
                        if (!child.forked()) child.fork();
                    }});
    EXPECT_TRUE(child.was_ended());
    EXPECT_TRUE(mine == memory);
    far.pull(mine);
}

TEST_P(bulk_children, one_that_returns_from_the_end_of_what_was_exposed_is_ended) {
    struct forks_at_its_end : std::vector<char> {
        forks_at_its_end(core_testing::child_that_returns& which, std::size_t bytes)
            : std::vector<char>(bytes), child(&which) {}
        forks_at_its_end(forks_at_its_end&& from) noexcept
            : std::vector<char>(std::move(from)), child(std::exchange(from.child, nullptr)) {}
        ~forks_at_its_end() {
            if (child != nullptr) child->fork();
        }
        core_testing::child_that_returns* child;
    };
    engine server{GetParam()}, client{calls()};
    core_testing::child_that_returns child;
    server.define("memory", [&] { return expose_owned(server, forks_at_its_end(child, 1 << 20)); });
    server.define("add_one", [](int number) { return number + 1; });
    const peer there = client.lookup(server.addresses());
    const auto add_one = client.procedure<int(int)>("add_one").on(there);
    client.procedure<bulk()>("memory").on(there)();
    // The first call carries the release of the borrowed memory.
    for (int i = 0; i < 100 || !child.forked(); ++i)
        EXPECT_EQ(add_one(i), i + 1);
    EXPECT_TRUE(child.was_ended());
    EXPECT_EQ(add_one(7), 8);
}

}  // namespace
}  // namespace amalgam

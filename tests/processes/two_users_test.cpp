// Calls between processes of two users over shared memory: who calls, by the kernel's word, and who
// may.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <amalgam/bulk.hpp>
#include <amalgam/rpc.hpp>

#include "conformance/child_process.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

using conformance::channel;
using conformance::child_process;

constexpr uid_t other = 4321;

class two_users : public testing::Test {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "only root can start processes of another user";
    }
    /// A client of the other user. It is told the server's address.
    static child_process client_of(const std::function<void(engine&, const peer&)>& does) {
        return child_process([does](channel& parent) {
            if (::setresgid(other, other, other) != 0 || ::setresuid(other, other, other) != 0)
                return 77;
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Lost with the user.
            engine here{"shm://?users=0"};
            does(here, here.lookup(parent.hear()));
            return 0;
        });
    }
};

TEST_F(two_users, handler_knows_who_calls_and_caller_who_answers) {
    child_process client = client_of([](engine& here, const peer& there) {
        const auto who = here.procedure<std::string()>("who").on(there)();
        EXPECT_EQ(who, "uid 4321 (pid " + std::to_string(::getpid()) + ")");
        EXPECT_EQ(there.who().uid, 0u);
        EXPECT_EQ(there.who().pid, ::getppid());
    });
    engine server{"shm://?users=4321"};
    server.define("who", [] { return to_text(call_context::current().who()); });
    client.line().say(server.address());
    EXPECT_EQ(client.join(), 0);
}

TEST_F(two_users, allow_list_of_uids_says_who_may_call_what) {
    child_process client = client_of([](engine& here, const peer& there) {
        EXPECT_EQ(here.procedure<int()>("for_all").on(there)(), 1);
        EXPECT_EQ(error_of([&] { here.procedure<int()>("for_root").on(there)(); }).code(),
                  errc::denied);
    });
    engine server{"shm://?users=any"};
    server.define("for_all", [] { return 1; });
    server.define("for_root", [] { return 2; }, {.allow = allow_list{.uids = {0}}});
    client.line().say(server.address());
    EXPECT_EQ(client.join(), 0);
}

TEST_F(two_users, bulk_moves_both_ways) {
    constexpr std::size_t size = 3'000'000;
    child_process client = client_of([](engine& here, const peer& there) {
        std::vector<char> mine(size, 'a');
        const exposed shown = expose(here, mine, access::read_write);
        EXPECT_EQ(here.procedure<int(bulk)>("turn").on(there)(shown), 1);
        EXPECT_EQ(mine, std::vector<char>(size, 'b'));
    });
    engine server{"shm://?users=4321"};
    server.define("turn", [](bulk there) {
        std::vector<char> all(size);
        there.pull(all);
        const bool right = all == std::vector<char>(size, 'a');
        all.assign(size, 'b');
        there.push(all);
        return right ? 1 : 0;
    });
    client.line().say(server.address());
    EXPECT_EQ(client.join(), 0);
}

}  // namespace
}  // namespace amalgam

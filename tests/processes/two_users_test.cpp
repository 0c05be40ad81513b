// Calls between processes of two users over shared memory: who calls, by the kernel's word, and who
// may; and whose are the keys to memory.
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

constexpr uid_t other = 4321, third = 4322;

class two_users : public testing::Test {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "only root can start processes of another user";
    }
    static child_process process_of(uid_t user, const std::function<void(channel&)>& does) {
        return child_process([user, does](channel& parent) {
            if (::setresgid(user, user, user) != 0 || ::setresuid(user, user, user) != 0) return 77;
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Lost with the user.
            does(parent);
            return 0;
        });
    }
    /// A client of the other user. It is told the server's address.
    static child_process client_of(const std::function<void(engine&, const peer&)>& does) {
        return process_of(other, [does](channel& parent) {
            engine here{"shm://?users=0"};
            does(here, here.lookup(parent.hear()));
        });
    }
    /// A process that holds the descriptor it is sent, uses it, and passes it on. It tells its
    /// address.
    static child_process holder_of(uid_t user) {
        return process_of(user, [](channel& parent) {
            engine here{"shm://?users=0,4321,4322"};
            bulk held;
            here.define("hold", [&](bulk what) { held = std::move(what); });
            here.define("pull", [&] {
                std::vector<char> into(held.bytes());
                return std::string(name(held.try_pull(into).code().code));
            });
            here.define("push", [&] {
                const std::vector<char> from(held.bytes(), 'b');
                return std::string(name(held.try_push(from).code().code));
            });
            here.define("pass_on", [&](const std::string& to) {
                here.procedure<void(bulk)>("hold").on(here.lookup(to))(held);
            });
            parent.say(here.address());
            parent.hear();
            here.stop();
            held = {};
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

TEST_F(two_users, memory_that_was_given_to_one_is_denied_to_the_other_who_is_let_in_too) {
    child_process one = holder_of(other), its_second = holder_of(other),
                  stranger = holder_of(third);
    engine server{"shm://?users=4321,4322"};
    std::vector<char> memory(100'000, 'a');
    const exposed shown = expose(server, memory, access::read_write);
    const std::string to_second = its_second.line().hear(), to_stranger = stranger.line().hear();
    const peer at_one = server.lookup(one.line().hear()), at_second = server.lookup(to_second),
               at_stranger = server.lookup(to_stranger);
    const auto hold = server.procedure<void(bulk)>("hold");
    const auto pass_on = server.procedure<void(std::string)>("pass_on");
    const auto pull = server.procedure<std::string()>("pull");
    const auto push = server.procedure<std::string()>("push");
    // The first descriptor is written before there is a connection, the second one after.
    for (int round = 0; round < 2; ++round) {
        hold.on(at_one)(shown);
        pass_on.on(at_one)(to_stranger);
        EXPECT_EQ(pull.on(at_stranger)(), "denied");
        EXPECT_EQ(push.on(at_stranger)(), "denied");
        EXPECT_EQ(memory, std::vector<char>(100'000, round == 0 ? 'a' : 'b'));
        EXPECT_EQ(pull.on(at_one)(), "ok");
        EXPECT_EQ(push.on(at_one)(), "ok");
        pass_on.on(at_one)(to_second);
        EXPECT_EQ(pull.on(at_second)(), "ok") << "it is of the same user";
    }
    EXPECT_EQ(memory, std::vector<char>(100'000, 'b'));
    hold.on(at_stranger)(shown);
    EXPECT_EQ(pull.on(at_stranger)(), "ok") << "it has one of its own now";
    const exposed for_all = expose(server, memory, access::read, {.shareable = true});
    hold.on(at_one)(for_all);
    pass_on.on(at_one)(to_stranger);
    EXPECT_EQ(pull.on(at_stranger)(), "ok");
    for (child_process* each : {&one, &its_second, &stranger}) {
        each->line().say("done");
        EXPECT_EQ(each->join(), 0);
    }
}

TEST_F(two_users, memory_that_was_sent_over_tcp_is_not_for_the_other_user_who_gets_it) {
    child_process stranger = holder_of(other);
    engine server{endpoints{"shm://?users=4321", "tcp://127.0.0.1:0"}};
    engine neighbor{endpoints{"tcp://127.0.0.1:0", "shm://?users=4321"}};
    bulk held;
    neighbor.define("hold", [&](bulk what) { held = std::move(what); });
    std::vector<char> memory(100'000, 'a'), into(memory.size());
    const exposed shown = expose(server, memory, access::read);
    server.procedure<void(bulk)>("hold").on(server.lookup(neighbor.address()))(shown);
    EXPECT_EQ(held.try_pull(into).code().code, errc::ok);
    const peer there = neighbor.lookup(stranger.line().hear());
    neighbor.procedure<void(bulk)>("hold").on(there)(held);
    EXPECT_EQ(neighbor.procedure<std::string()>("pull").on(there)(), "denied");
    held = {};
    stranger.line().say("done");
    EXPECT_EQ(stranger.join(), 0);
}

}  // namespace
}  // namespace amalgam

#include "directory/protocol/gate.hpp"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {
namespace {

/// A gate, and a peer that authenticates, on a virtual-time network.
class gate_test : public testing::Test {
protected:
    gate_test() { server->start(); }
    ~gate_test() override { server->stop(); }
    template <typename Work>
    auto knocking(Work work) {
        auto done = knocks.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    gate_answer challenge(const gate_nonce& nonce) {
        return knocks.procedure<gate_answer(gate_nonce)>("amalgam.test.gate.challenge")
            .on(host.address())(nonce);
    }
    bool show(const gate_proof& proof) {
        return knocks.procedure<bool(gate_proof)>("amalgam.test.gate.prove")
            .on(host.address())(proof);
    }
    gate_proof right_proof(const gate_nonce& mine, const gate_nonce& theirs) {
        std::string text = "caller";
        text.append(mine.begin(), mine.end());
        text.append(theirs.begin(), theirs.end());
        return client->hash("test", text);
    }

    loop_network net;
    engine host{net.port("host")}, knocks{net.port("knocks")};
    const std::shared_ptr<gate> server = std::make_shared<gate>(host, "test", "swordfish");
    const std::shared_ptr<gate> client = std::make_shared<gate>(knocks, "test", "swordfish");
};

TEST(secret_of, a_file_without_end_is_refused) {
    ::setenv("AMALGAM_SECRET_FILE", "/dev/zero", 1);
    try {
        (void)secret_of("");
        ADD_FAILURE() << "expected an error";
    } catch (const error& why) {
        EXPECT_EQ(why.code().code, errc::invalid);
        EXPECT_NE(std::string(why.what()).find("is longer than 65536 bytes"), std::string::npos)
            << why.what();
    }
    ::unsetenv("AMALGAM_SECRET_FILE");
}

TEST_F(gate_test, a_challenge_is_good_for_one_try) {
    const gate_nonce mine{1, 2, 3};
    const bool at_once = knocking([&] { return show(right_proof(mine, challenge(mine).nonce)); });
    EXPECT_TRUE(at_once);
    knocking([&] {
        const gate_answer asked = challenge(mine);
        gate_proof wrong = right_proof(mine, asked.nonce);
        wrong[0] ^= 1;
        EXPECT_FALSE(show(wrong));
        EXPECT_FALSE(show(right_proof(mine, asked.nonce))) << "a second try";
    });
    EXPECT_EQ(host.counters().get("test.refused").value(), 1u);
}

TEST_F(gate_test, who_enters_twice_at_once_is_let_in_twice) {
    const auto enter = [&] { client->enter(knocks.lookup(host.address()), "test"); };
    auto first = knocks.spawn(enter), second = knocks.spawn(enter);
    net.run_until_idle();
    EXPECT_NO_THROW(first.get());
    EXPECT_NO_THROW(second.get());
    EXPECT_EQ(host.counters().get("test.refused").value(), 0u);
}

TEST_F(gate_test, more_challenges_than_one_may_have_make_the_first_void) {
    knocking([&] {
        const gate_nonce mine{1, 2, 3};
        std::vector<gate_answer> asked;
        for (int i = 0; i < 9; ++i)
            asked.push_back(challenge(mine));
        EXPECT_TRUE(show(right_proof(mine, asked[8].nonce)));
        EXPECT_TRUE(show(right_proof(mine, asked[1].nonce)));
        EXPECT_FALSE(show(right_proof(mine, asked[0].nonce)));
    });
}

TEST_F(gate_test, who_is_gone_is_not_remembered) {
    knocking([&] { (void)challenge({}); });
    EXPECT_EQ(server->remembered(), 1u);
    engine other(net.port("other"));
    const auto enters = std::make_shared<gate>(other, "test", "swordfish");
    enters->start();
    auto entered = other.spawn([&] { enters->enter(other.lookup(host.address()), "test"); });
    net.run_until_idle();
    entered.get();
    EXPECT_EQ(server->remembered(), 2u);
    EXPECT_EQ(enters->remembered(), 2u);
    net.kill("knocks");
    net.run_until_idle();
    EXPECT_EQ(server->remembered(), 1u);
    net.kill("host");
    net.run_until_idle();
    EXPECT_EQ(enters->remembered(), 0u);
    enters->stop();
}

}  // namespace
}  // namespace amalgam::detail

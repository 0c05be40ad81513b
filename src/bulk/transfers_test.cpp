#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/bulk/transfers.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/engine.hpp>

#include "bulk/bulk_testing.hpp"

namespace amalgam {
namespace {

using namespace std::literals;

std::string noise(std::size_t bytes, std::uint64_t seed) {
    seeded_random random(seed);
    std::string made(bytes, ' ');
    for (char& each : made)
        each = static_cast<char>(random());
    return made;
}

/// Two owners of memory, and who moves it.
class transfers_test : public testing::TestWithParam<const char*> {
protected:
    engine left{one_more(GetParam())}, right{one_more(GetParam())}, mover{one_more(GetParam())};
    std::string of_left = noise(3'000'000, 1), of_right = noise(500'000, 2);
    exposed shown_left = expose(left, of_left, access::read_write);
    exposed shown_right = expose(right, of_right, access::read_write);
    bulk at_left = reach(left, shown_left), at_right = reach(right, shown_right);

    bulk reach(engine& owner, const exposed& what) {
        const bulk mine = what.descriptor();
        owner.define("give", [mine] { return mine; });
        return mover.procedure<bulk()>("give").on(owner.address())();
    }
};

INSTANTIATE_TEST_SUITE_P(all, transfers_test,
                         testing::ValuesIn(unless_thread_sanitizer({"loop://", "shm://",
                                                                    "tcp://127.0.0.1:0"})),
                         [](const auto& with) {
                             const std::string uri = with.param;
                             return uri.substr(0, uri.find(':'));
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(transfers_test);

TEST_P(transfers_test, one_that_was_moved_from_is_empty) {
    std::string mine(1000, ' ');
    transfers first;
    first.pull(at_left, as_writable_bytes_of(mine));
    transfers second = std::move(first);
    EXPECT_EQ(first.size(), 0u);
    EXPECT_EQ(first.bytes(), 0u);
    EXPECT_EQ(second.bytes(), 1000u);
    transfers third;
    third = std::move(second);
    EXPECT_EQ(second.size(), 0u);
    EXPECT_EQ(second.bytes(), 0u);
    third.run();
    EXPECT_EQ(mine, of_left.substr(0, 1000));
    const transfers same = third;
    EXPECT_EQ(same.bytes(), third.bytes());
}

TEST_P(transfers_test, move_memory_of_several_peers_as_one_and_tell_all_progress) {
    std::string mine(2'000'000, ' ');
    const std::string fresh = noise(300'000, 3);
    std::string head(5, ' '), tail(7, ' ');
    const std::vector<mutable_bytes> both{as_writable_bytes_of(head), as_writable_bytes_of(tail)};
    transfers all;
    all.pull(at_left, 1'000'000, mine);
    all.push(at_right, 100, fresh);
    all.pull(at_left, both);
    EXPECT_EQ(all.size(), 3u);
    EXPECT_EQ(all.bytes(), 2'300'012u);
    std::pair<std::uint64_t, std::uint64_t> told;
    std::uint64_t before = 0;
    const auto tell = [&](std::uint64_t done, std::uint64_t of) {
        EXPECT_GE(done, before);
        before = done;
        told = {done, of};
    };
    all.run({.chunk_bytes = 100'000, .on_progress = tell});
    EXPECT_EQ(told, (std::pair<std::uint64_t, std::uint64_t>(2'300'012, 2'300'012)));
    EXPECT_EQ(mine, of_left.substr(1'000'000));
    EXPECT_EQ(of_right.substr(100, fresh.size()), fresh);
    EXPECT_EQ(head + tail, of_left.substr(0, 12));
    mine.assign(mine.size(), ' ');
    future<void> later = all.start();  // The same list again, without waiting.
    later.get();
    EXPECT_EQ(mine, of_left.substr(1'000'000));
}

TEST_P(transfers_test, tell_the_first_that_failed_and_await_the_others) {
    std::string mine(3'000'000, ' '), more(10, ' ');
    transfers all;
    all.pull(at_left, mine);
    all.pull(at_right, 499'995, more);
    all.pull(at_right, more);
    const error why = error_of([&] { all.run(); });
    EXPECT_EQ(why.code(), errc::invalid);
    EXPECT_EQ(std::string(why.what()),
              "transfer 2 of 3: pull of 10 bytes at offset 499995: out of range, as the bulk has "
              "500000 bytes");
    EXPECT_EQ(mine, of_left);
    EXPECT_EQ(more, std::string(10, ' '));  // Left out.
}

TEST_P(transfers_test, memory_that_is_gone_and_what_on_progress_throws_fail_it) {
    std::string mine(1'000'000, ' '), more(10, ' ');
    transfers all;
    all.pull(at_left, mine);
    all.pull(at_right, more);
    const error thrown = error_of([&] {
        all.run(
            {.on_progress = [](std::uint64_t, std::uint64_t) { throw std::runtime_error("no"); }});
    });
    EXPECT_EQ(thrown.code(), errc::handler_failed);
    shown_right.close();
    const error gone = error_of([&] { all.run(); });
    EXPECT_EQ(gone.code(), errc::denied);
    EXPECT_NE(std::string(gone.what()).find("transfer 2 of 2"), std::string::npos) << gone.what();
    EXPECT_EQ(mine, of_left.substr(0, mine.size()));
}

TEST_P(transfers_test, canceling_or_leaving_one_gives_the_bytes_back) {
    for (int round = 0; round < 40; ++round) {
        std::string mine(3'000'000, ' ');
        const std::string fresh(400'000, 'f');
        transfers all;
        all.pull(at_left, mine);
        all.push(at_right, fresh);
        std::optional<future<void>> later(all.start());
        if (round % 2 == 0) {
            later->cancel();
            EXPECT_TRUE(later->ready());
            const status how = later->wait();
            EXPECT_TRUE(how.ok() || how == errc::canceled);
        } else {
            later.reset();
        }
        mine.assign(mine.size(), 'x');  // Nobody writes here any more.
        EXPECT_EQ(mine, std::string(mine.size(), 'x'));
    }
}

TEST(transfers, of_nothing_are_over_at_once) {
    EXPECT_EQ(transfers().start().wait(), errc::ok);
    transfers().run();
    transfers all;
    std::string none;
    all.pull({}, none);
    all.run();
    std::string some(3, ' ');
    all.pull({}, some);
    EXPECT_EQ(error_of([&] { all.run(); }).code(), errc::invalid);
}

TEST(transfers, end_when_a_peer_is_lost) {
    loop_network net;
    engine left{net.port("left")}, right{net.port("right")}, mover{net.port("mover")};
    std::string of_left(3'000'000, 'l'), of_right(3'000'000, 'r');
    const exposed shown_left = expose(left, of_left), shown_right = expose(right, of_right);
    left.define("give", [&] { return shown_left.descriptor(); });
    right.define("give", [&] { return shown_right.descriptor(); });
    std::string a(3'000'000, ' '), b(3'000'000, ' ');
    auto done = mover.spawn([&] {
        const auto give = mover.procedure<bulk()>("give");
        transfers all;
        all.pull(give.on(left.address())(), a);
        all.pull(give.on(right.address())(), b);
        net.kill("right");
        EXPECT_EQ(error_of([&] { all.run(); }).code(), errc::disconnected);
    });
    net.run_until_idle();
    done.get();
    EXPECT_EQ(a, of_left);
}

}  // namespace
}  // namespace amalgam

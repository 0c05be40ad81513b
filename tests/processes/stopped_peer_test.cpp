// Peers over sealed packets that are stopped processes, and go on; and such that are killed.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>

#include "conformance/child_process.hpp"
#include "conformance/slow_build.hpp"
#include "temp_folder.hpp"
#include "thrown.hpp"

namespace amalgam::processes {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;

using numbers = std::vector<std::uint64_t>;

/// A key that all have.
struct key_of_all : temp_folder {
    key_of_all() { make_key(with("all"), {.name = "all", .shared = true}); }
};

class stopped_peer : public testing::TestWithParam<std::string> {
protected:
    /// Notes what it is told until its parent says that it is over.
    static int serve(const std::string& where, channel& parent) {
        event never;
        numbers noted;  // All handlers run on one stream.
        engine here{where, {.drain = 10ms}};
        here.define("echo", [](std::string text) { return text; });
        here.define("wait", [&] { never.wait(); });
        here.define("note", [&](std::uint64_t number, std::string) { noted.push_back(number); });
        here.define("noted", [&] { return noted; });
        parent.say(here.address());
        (void)parent.hear();
        return 0;
    }
    std::string where() const { return GetParam() + "?credentials=" + folder_.with("all"); }

    auto echo_at(const peer& there) {
        return client_.procedure<std::string(std::string)>("echo").on(there);
    }
    auto note_at(const peer& there) {
        return client_.procedure<void(std::uint64_t, std::string)>("note").on(there);
    }
    numbers noted_by(const peer& there) {
        return client_.procedure<numbers()>("noted").on(there)();
    }
    /// Calls to the victim that it will never answer.
    std::vector<future<void>> wait_for_it(const peer& there) {
        std::vector<future<void>> calls;
        for (int i = 0; i < 20; ++i)
            calls.push_back(client_.procedure<void()>("wait").on(there).start());
        EXPECT_EQ(echo_at(there)("behind them"), "behind them");
        return calls;
    }
    /// More than the library below takes for one that reads nothing.
    std::vector<future<void>> tell_much(const peer& there) {
        std::vector<future<void>> calls;
        for (std::uint64_t number = 100; number < 700; ++number)
            calls.push_back(note_at(there).start(number, std::string(30'000, 'n')));
        return calls;
    }
    static bool are_over(const std::vector<future<void>>& calls) {
        for (const future<void>& each : calls)
            if (!each.ready()) return false;
        return true;
    }
    static void expect_lost(std::vector<future<void>>& calls, const std::string& why) {
        for (future<void>& each : calls) {
            const error what = error_of([&] { each.get(); });
            EXPECT_EQ(what.code(), errc::disconnected);
            EXPECT_NE(std::string(what.what()).find(why), std::string::npos) << what.what();
        }
    }

    const key_of_all folder_;
    // Forked before any ULT runs.
    child_process victim_{[this](channel& parent) { return serve(where(), parent); }};
    child_process other_{[this](channel& parent) { return serve(where(), parent); }};
    const std::string victims_address_ = victim_.line().hear();
    /// Who goes on has much to take before it answers a ping.
    static constexpr std::chrono::seconds ping_timeout{conformance::slow_build ? 10 : 2};
    engine client_{where(),
                   {.drain = 10ms, .keepalive = {.interval = 20ms, .timeout = ping_timeout}}};
    const peer other_peer_ = client_.lookup(other_.line().hear());
};

TEST_P(stopped_peer, loses_its_calls_keeps_no_others_waiting_and_gets_nothing_twice) {
    const peer there = client_.lookup(victims_address_);
    for (std::uint64_t number = 0; number < 100; ++number)
        note_at(there)(number, "short");
    auto waits = wait_for_it(there);
    victim_.freeze();
    auto tells = tell_much(there);
    std::uint64_t told_others = 0;
    while (!are_over(waits) || !are_over(tells))
        note_at(other_peer_)(told_others++, "meanwhile");
    expect_lost(waits, "did not answer pings within keepalive.timeout");
    expect_lost(tells, "did not answer pings within keepalive.timeout");
    EXPECT_EQ(noted_by(other_peer_).size(), told_others);
    victim_.thaw();

    const peer again = client_.lookup(victims_address_);
    for (std::uint64_t number = 1000; number < 1100; ++number)
        note_at(again)(number, "short");
    const numbers noted = noted_by(again);
    numbers expected;
    for (std::uint64_t number = 0; number < 100; ++number)
        expected.push_back(number);
    // What had arrived while it stood still may follow: from the first on, each once.
    const std::size_t late = noted.size() - 200;
    for (std::uint64_t number = 100; number < 100 + late; ++number)
        expected.push_back(number);
    for (std::uint64_t number = 1000; number < 1100; ++number)
        expected.push_back(number);
    EXPECT_EQ(noted, expected);
}

TEST_P(stopped_peer, that_goes_on_in_time_has_lost_nothing_and_gets_nothing_twice) {
    engine patient{where(), {.drain = 10ms}};
    const peer there = patient.lookup(victims_address_);
    const auto note = patient.procedure<void(std::uint64_t, std::string)>("note").on(there);
    note(0, "short");
    victim_.freeze();
    std::vector<future<void>> tells;
    numbers expected{0};
    for (std::uint64_t number = 1; number <= 600; ++number) {
        tells.push_back(note.start(number, std::string(30'000, 'n')));
        expected.push_back(number);
    }
    note_at(other_peer_)(0, "meanwhile");
    victim_.thaw();
    for (future<void>& each : tells)
        each.get();
    EXPECT_EQ(patient.procedure<numbers()>("noted").on(there)(), expected);
}

TEST_P(stopped_peer, that_is_killed_loses_its_calls_at_once_and_keeps_no_others_waiting) {
    const peer there = client_.lookup(victims_address_);
    auto waits = wait_for_it(there);
    victim_.freeze();
    auto tells = tell_much(there);
    victim_.kill();
    std::uint64_t told_others = 0;
    do
        note_at(other_peer_)(told_others++, "meanwhile");
    while (!are_over(waits) || !are_over(tells));
    expect_lost(waits, "");
    expect_lost(tells, "");
    EXPECT_EQ(noted_by(other_peer_).size(), told_others);
}

INSTANTIATE_TEST_SUITE_P(tcp, stopped_peer, testing::Values("tcp+tls://127.0.0.1:0"));
#ifdef AMALGAM_WITH_UCX
INSTANTIATE_TEST_SUITE_P(ucx, stopped_peer, testing::Values("ucx+tcp+tls://127.0.0.1:0"));
#endif
#ifdef AMALGAM_WITH_OFI
INSTANTIATE_TEST_SUITE_P(ofi, stopped_peer, testing::Values("ofi+tcp+tls://127.0.0.1:0"));
#endif

}  // namespace
}  // namespace amalgam::processes

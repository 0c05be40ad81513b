#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <amalgam/fabric/key_folder.hpp>

#include "fabric/sealing/trusted_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "fabric/trust/key_folders/lab_testing.hpp"

namespace amalgam::detail {

/// For tests: opens a port that encrypts, and listens at 127.0.0.1.
using port_opener = std::function<tcp_test_port(const port_options& with)>;

/// A thousand begin a handshake with a port at once, and one that is connected sends messages all
/// the time and has them answered.
inline void expect_served_beside_a_thousand_handshakes(const port_opener& open) {
    constexpr std::size_t count = 1000;
    constexpr std::size_t awaited = 200;  // Each takes many rounds of the port.
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    if (before.rlim_max < 2 * count + 200) GTEST_SKIP() << "needs 2200 file descriptors";
    rlimit enough = before;
    enough.rlim_cur = std::max<rlim_t>(before.rlim_cur, 2 * count + 200);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &enough), 0);
    {
        // They wait for each other for longer on a busy machine.
        port_options patient = trusting();
        patient.silence_limit = std::chrono::hours(1);
        tcp_test_port server = open(patient), good = open(patient);
        const auto [to, back] = connect(good, server);
        const ssl_context_ptr context = bare_context(shared_lab().authority, &shared_lab().node);
        std::deque<tls_raw_peer> crowd;
        using step = tls_session::state;
        std::vector<step> now(count, step::waiting);
        for (std::size_t i = 0; i < count; ++i) {
            crowd.emplace_back(server.end->address(), *context);
            (void)crowd.back().try_step();
        }
        server.on_arrival = [&, from = back](message&) { (void)server.send(from, 2, "pong"); };
        ASSERT_TRUE(good.send(to, 1, "ping"));
        std::size_t echoes = 0, next = 0, left = awaited;
        while (left > 0) {
            server.end->progress();
            good.end->progress();
            if (!good.arrived.empty()) {
                good.arrived.clear();
                ++echoes;
                ASSERT_TRUE(good.send(to, 1, "ping"));
            }
            ASSERT_TRUE(good.lost.empty());
            // A few each time, so that the ports' own rounds are most of the test.
            for (int few = 0; few < 4; ++few) {
                const std::size_t i = next++ % count;
                if (now[i] != step::waiting) continue;
                now[i] = crowd[i].try_step();
                ASSERT_NE(now[i], step::failed);
                if (now[i] == step::complete && left > 0) --left;
            }
        }
        EXPECT_GT(echoes, 20u) << "while " << count << " shook hands";
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
}

/// While messages pass between two ports, the certificate of one is made anew again and again; new
/// callers are let in by it, the connection that stands stays, and a caller that is revoked is let
/// in no more.
inline void expect_reload_and_revocation_under_load(const port_opener& open) {
    const lab_folder lab;
    const std::string server_keys = lab.add("server"), good_keys = lab.add("good"),
                      lost_keys = lab.add("lost");
    const auto trust = credentials::from_folder(server_keys);
    tcp_test_port server = open(trusting(trust));
    tcp_test_port good = open(trusting(credentials::from_folder(good_keys)));
    const auto [to, back] = connect(good, server);
    std::size_t answers = 0;
    server.on_arrival = [&](message& what) { (void)server.send(what.from(), 2, "pong"); };
    good.on_arrival = [&, to = to](message&) {
        ++answers;
        (void)good.send(to, 1, "ping");
    };
    ASSERT_TRUE(good.send(to, 1, "ping"));
    const auto fate_of = [&](tcp_test_port& caller) {
        tcp_test_port::operation op;
        const posted how = caller.post(caller.look_up(server.end->address()), 7, "x", op);
        const std::size_t before = answers;
        move_until({&server, &good, &caller}, [&] {
            return (op.over || how == posted::done) && answers > before &&
                   (op.code != errc::ok || !caller.arrived.empty());
        });
        return op.over ? op.code : errc::ok;
    };
    for (int time = 0; time < 5; ++time) {
        key_request anew{.name = "server", .hosts = {"127.0.0.1"}};
        anew.overwrite = true;
        make_key(server_keys, anew);
        sign_key(server_keys, lab.lab);
        ASSERT_TRUE(trust->reload());
        tcp_test_port late = open(trusting(credentials::from_folder(lost_keys)));
        EXPECT_EQ(fate_of(late), errc::ok) << time;
    }
    revoke_key(lost_keys, lab.lab);
    trust_authority(server_keys, lab.lab);
    ASSERT_TRUE(trust->reload());
    tcp_test_port revoked = open(trusting(credentials::from_folder(lost_keys)));
    EXPECT_EQ(fate_of(revoked), errc::denied);
    tcp_test_port late = open(trusting(credentials::from_folder(good_keys)));
    EXPECT_EQ(fate_of(late), errc::ok);
    const std::size_t before = answers;
    move_until({&server, &good}, [&] { return answers > before + 10; });
    EXPECT_TRUE(good.lost.empty()) << "the connection that stands is not asked again";
}

}  // namespace amalgam::detail

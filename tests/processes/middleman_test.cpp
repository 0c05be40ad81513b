// A middleman in the network: the router between two hosts takes every connection to the server for
// itself (a redirect of the kernel's), and does what it likes with the bytes. Neither host knows.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "fabric/transports/tcp/raw_peer.hpp"
#include "processes/lab_keys.hpp"
#include "processes/network_host.hpp"

namespace amalgam::processes {
namespace {

using conformance::channel;
using conformance::child_process;
using detail::raw_listener;
using detail::tcp_raw_peer;

constexpr std::uint16_t redirected = 7001;
constexpr const char* server_address = "10.2.0.2:7000";

/// Whether a server that begins like this, over TLS, resumes an earlier session: its hello has the
/// extension pre_shared_key (RFC 8446, 4.2.11), which is not encrypted.
bool resumes(const std::string& answer) {
    const auto number = [&](std::size_t at) -> std::size_t {
        return at + 1 < answer.size() ? static_cast<unsigned char>(answer[at]) << 8 |
                                            static_cast<unsigned char>(answer[at + 1])
                                      : 0;
    };
    constexpr std::size_t session_id = 5 + 4 + 2 + 32;  // Behind headers, version and random.
    constexpr std::size_t pre_shared_key = 41;
    std::size_t at = session_id + 1 + (number(session_id) >> 8) + 3;
    const std::size_t end = at + 2 + number(at);
    for (at += 2; at < end; at += 4 + number(at + 2))
        if (number(at) == pre_shared_key) return true;
    return false;
}

/// Passes connections on, one at a time, and does what it is told with what the caller says.
class proxy {
public:
    explicit proxy(channel& line) : line_(line) {}

    void serve() {
        line_.say("ready");
        for (;;) {
            pollfd all[4] = {{line_.fd(), POLLIN, 0},
                             {listener_.fd(), POLLIN, 0},
                             {caller_ ? caller_->fd() : -1, POLLIN, 0},
                             {server_ ? server_->fd() : -1, POLLIN, 0}};
            ::poll(all, 4, -1);
            if (all[0].revents != 0) obey(line_.hear());
            if (all[2].revents != 0) from_caller();
            if (all[3].revents != 0 && server_) {
                const std::string bytes = server_->receive();
                if (bytes.empty())
                    end();
                else
                    caller_->send(bytes);
                answered_ += bytes;
            }
            if (all[1].revents != 0) {
                caller_.emplace(listener_.accept());
                server_.emplace(std::string("tcp://") + server_address);
                recorded_.clear();
                answered_.clear();
                held_.clear();
            }
        }
    }

private:
    void obey(const std::string& order) {
        if (order == "recorded") {
            line_.say(recorded_);
        } else if (order == "resumed?") {
            line_.say(resumes(answered_) ? "yes" : "no");
        } else if (order == "doing?") {
            line_.say(order_);
        } else if (order == "again") {
            tcp_raw_peer again(std::string("tcp://") + server_address);
            again.send(recorded_);
            while (!again.receive().empty()) {
            }
            line_.say("ended");
        } else {
            line_.say(order_ = order);
        }
    }
    void end() {
        caller_.reset();
        server_.reset();
    }

    void from_caller() {
        if (!caller_) return;
        std::string bytes = caller_->receive();
        if (bytes.empty()) return end();
        recorded_ += bytes;
        if (order_ == "change") {
            if (const auto at = bytes.find("pay 1"); at != std::string::npos)
                bytes[at + 4] = '9';
            else
                bytes.back() ^= 1;
        }
        if (order_ == "reflect") {
            caller_->send(bytes);
        } else if (order_ == "drop") {
            order_ = "pass";  // Again.
        } else if (order_ == "hold" && held_.empty()) {
            held_ = bytes;
        } else if (order_ == "cut") {
            server_->send(bytes.substr(0, bytes.size() - 1));
            end();
        } else {
            server_->send(bytes);
            if (order_ == "repeat") server_->send(bytes);
            if (order_ != "hold") return;
            server_->send(std::exchange(held_, {}));
            order_ = "pass";
        }
    }

    channel& line_;
    raw_listener listener_{16, "0.0.0.0", redirected};
    std::string order_ = "pass";
    std::string recorded_;  ///< All that the caller of this connection said.
    std::string answered_;  ///< All that the server did.
    std::string held_;      ///< To be sent behind what comes next.
    std::optional<tcp_raw_peer> caller_, server_;
};

struct middleman : testing::Test {
    void SetUp() override {
        if (auto why = network_host::why_not(true))
            GTEST_SKIP() << "no network of our own here: " << *why;
        keys.add("server", {"10.2.0.2"});
        keys.add("caller", {"10.1.0.2"});
        net.emplace();
        net->router.run(
            "nft 'table ip nat { chain in { type nat hook prerouting priority -100; "
            "iifname home0 tcp dport 7000 redirect to :7001; }; }'");
    }

    void stand_between() {
        between.emplace(net->router.start([](channel& line) { proxy(line).serve(); }));
        ASSERT_EQ(between->line().hear(), "ready");
    }
    std::string tell(const std::string& order) {
        between->line().say(order);
        return between->line().hear();
    }
    /// The server and a caller that reached it through the middleman.
    void meet() {
        if (!between) stand_between();
        tell("pass");
        net->server.open(keys.uri(server_address, "server"));
        net->caller.open(keys.uri("", "caller"));
        ASSERT_EQ(net->caller.send(there, "hello"), "ok");
        EXPECT_EQ(net->server.receive().rfind("hello from ", 0), 0u);
        lost_by_server = net->server.lost();
        lost_by_caller = net->caller.lost();
    }
    /// What the caller says second reaches the server first.
    void hold_one_and_say_another() {
        tell("hold");
        net->caller.post("pay 1 to node7");
        while (tell("doing?") == "hold")
            net->caller.post("pay 1 to node8");
    }
    /// That connection is lost to both, and nothing came over it; a new one works.
    void expect_nothing_taken() {
        while (net->server.lost() == lost_by_server || net->caller.lost() == lost_by_caller) {
        }
        tell("pass");
        EXPECT_EQ(net->caller.send(there, "after"), "ok");
        EXPECT_EQ(net->server.receive().rfind("after from ", 0), 0u);
    }

    const std::string there = std::string("tcp+tls://") + server_address;
    const lab_keys keys{"tcp+tls"};
    std::optional<two_subnets> net;
    std::optional<child_process> between;
    int lost_by_server = 0, lost_by_caller = 0;
};

TEST_F(middleman, changes_what_is_said_and_in_which_order_without_keys) {
    stand_between();
    const std::string plain = std::string("tcp://") + server_address;
    net->server.open(plain);
    net->caller.open("tcp://");
    EXPECT_EQ(net->caller.send(plain, "hello"), "ok");
    net->server.receive();
    tell("change");
    EXPECT_EQ(net->caller.send(plain, "pay 1 to node7"), "ok");
    EXPECT_EQ(net->server.receive().rfind("pay 9 to node7 from ", 0), 0u);
    EXPECT_NE(tell("recorded").find("pay 1 to node7"), std::string::npos);
    hold_one_and_say_another();
    EXPECT_EQ(net->server.receive().rfind("pay 1 to node8 from ", 0), 0u);
    std::string next;
    while (next = net->server.receive(), next.rfind("pay 1 to node8 from ", 0) == 0) {
    }
    EXPECT_EQ(next.rfind("pay 1 to node7 from ", 0), 0u) << next;
}

TEST_F(middleman, that_only_listens_learns_nothing_over_tls) {
    meet();
    EXPECT_EQ(net->caller.send(there, "pay 1 to node7"), "ok");
    EXPECT_EQ(net->server.receive().rfind("pay 1 to node7 from ", 0), 0u);
    EXPECT_EQ(net->server.reply("paid to node7"), "ok");
    EXPECT_EQ(net->caller.receive().rfind("paid to node7 from ", 0), 0u);
    EXPECT_EQ(tell("recorded").find("pay"), std::string::npos);
}

TEST_F(middleman, that_changes_or_cuts_bytes_over_tls_has_nothing_taken) {
    for (const char* order : {"change", "cut"}) {
        SCOPED_TRACE(order);
        meet();
        tell(order);
        net->caller.post("pay 1 to node7");
        expect_nothing_taken();
    }
}

TEST_F(middleman, that_leaves_bytes_out_over_tls_has_nothing_taken_behind_them) {
    meet();
    tell("drop");
    EXPECT_EQ(net->caller.send(there, "pay 1 to node7"), "ok");
    while (tell("doing?") == "drop") {
    }
    net->caller.post("pay 1 to node8");
    expect_nothing_taken();
}

TEST_F(middleman, that_changes_the_order_over_tls_has_nothing_taken) {
    meet();
    hold_one_and_say_another();
    expect_nothing_taken();
}

TEST_F(middleman, that_cuts_a_connection_over_tls_sees_the_next_one_resume_its_session) {
    meet();
    EXPECT_EQ(tell("resumed?"), "no");
    tell("cut");
    net->caller.post("pay 1 to node7");
    expect_nothing_taken();
    EXPECT_EQ(tell("resumed?"), "yes");
    EXPECT_EQ(net->server.reply("answer"), "ok");
    EXPECT_EQ(net->caller.receive().rfind("answer from ", 0), 0u);
}

TEST_F(middleman, that_repeats_bytes_over_tls_has_them_taken_once) {
    meet();
    tell("repeat");
    net->caller.post("pay 1 to node7");
    EXPECT_EQ(net->server.receive().rfind("pay 1 to node7 from ", 0), 0u);
    expect_nothing_taken();
}

TEST_F(middleman, that_sends_bytes_back_over_tls_has_nothing_taken) {
    meet();
    tell("reflect");
    net->caller.post("pay 1 to node7");
    expect_nothing_taken();
}

TEST_F(middleman, that_plays_a_connection_again_is_nobody) {
    meet();
    EXPECT_EQ(net->caller.send(there, "pay 1 to node7"), "ok");
    EXPECT_EQ(net->server.receive().rfind("pay 1 to node7 from ", 0), 0u);
    EXPECT_EQ(tell("again"), "ended");  // By the server.
    EXPECT_EQ(net->server.lost(), lost_by_server);
    EXPECT_EQ(net->caller.send(there, "after"), "ok");
    EXPECT_EQ(net->server.receive().rfind("after from ", 0), 0u);
}

TEST_F(middleman, that_answers_as_the_server_with_other_keys_is_told_nothing) {
    make_key(keys.folder("other"), {.name = "other", .authority = true});
    keys.add("forged", {"10.2.0.2"}, "other");  // The right host, by nobody who is trusted.
    keys.add("stolen", {"10.9.0.9"});           // A key of the lab, of another host.
    net->caller.open(keys.uri("", "caller"));
    for (const char* key : {"forged", "stolen"}) {
        SCOPED_TRACE(key);
        net->router.open(keys.uri("0.0.0.0:7001", key));
        EXPECT_EQ(net->caller.send(there, "pay 1 to node7"), "denied");
    }
    // It is he whom the caller reaches: with the server's own key he is believed.
    net->router.open(keys.uri("0.0.0.0:7001", "server"));
    EXPECT_EQ(net->caller.send(there, "hello"), "ok");
    EXPECT_EQ(net->router.receive().rfind("hello from ", 0), 0u);
}

}  // namespace
}  // namespace amalgam::processes

// A middleman in the network: the router between two hosts takes every connection to the server for
// itself (a redirect of the kernel's), and does what it likes with the bytes. Neither host knows.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <amalgam/fabric/key_folder.hpp>

#include "fabric/transports/tcp/raw_peer.hpp"
#include "processes/network_host.hpp"
#include "temp_folder.hpp"

namespace amalgam::processes {
namespace {

using conformance::channel;
using conformance::child_process;
using detail::raw_listener;
using detail::tcp_raw_peer;

constexpr std::uint16_t redirected = 7001;
constexpr const char* server_address = "10.2.0.2:7000";

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
            }
            if (all[1].revents != 0) {
                caller_.emplace(listener_.accept());
                server_.emplace(std::string("tcp://") + server_address);
                recorded_.clear();
            }
        }
    }

private:
    void obey(const std::string& order) {
        if (order == "recorded") {
            line_.say(recorded_);
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
        } else if (order_ == "cut") {
            server_->send(bytes.substr(0, bytes.size() - 1));
            end();
        } else {
            server_->send(bytes);
            if (order_ == "repeat") server_->send(bytes);
        }
    }

    channel& line_;
    raw_listener listener_{16, "0.0.0.0", redirected};
    std::string order_ = "pass";
    std::string recorded_;  ///< All that the caller of this connection said.
    std::optional<tcp_raw_peer> caller_, server_;
};

struct middleman : testing::Test {
    void SetUp() override {
        if (auto why = network_host::why_not(true))
            GTEST_SKIP() << "no network of our own here: " << *why;
        make_key(folder.with("lab"), {.name = "lab", .authority = true});
        certify("server", "10.2.0.2", "lab");
        certify("caller", "10.1.0.2", "lab");
        net.emplace();
        net->router.run(
            "nft 'table ip nat { chain in { type nat hook prerouting priority -100; "
            "iifname home0 tcp dport 7000 redirect to :7001; }; }'");
    }

    void certify(const std::string& name, const std::string& host, const std::string& by) const {
        make_key(folder.with(name), {.name = name, .hosts = {host}});
        sign_key(folder.with(name), folder.with(by));
    }
    std::string with_key(const std::string& address, const std::string& name) const {
        return "tcp+tls://" + address + "?credentials=" + folder.with(name);
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
        net->server.open(with_key(server_address, "server"));
        net->caller.open(with_key("", "caller"));
        ASSERT_EQ(net->caller.send(there, "hello"), "ok");
        EXPECT_EQ(net->server.receive().rfind("hello from ", 0), 0u);
        lost_by_server = net->server.lost();
        lost_by_caller = net->caller.lost();
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
    temp_folder folder;
    std::optional<two_subnets> net;
    std::optional<child_process> between;
    int lost_by_server = 0, lost_by_caller = 0;
};

TEST_F(middleman, changes_what_is_said_without_keys) {
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
    make_key(folder.with("other"), {.name = "other", .authority = true});
    certify("forged", "10.2.0.2", "other");  // The right host, by nobody who is trusted.
    certify("stolen", "10.9.0.9", "lab");    // A key of the lab, of another host.
    net->caller.open(with_key("", "caller"));
    for (const char* key : {"forged", "stolen"}) {
        SCOPED_TRACE(key);
        net->router.open(with_key("0.0.0.0:7001", key));
        EXPECT_EQ(net->caller.send(there, "pay 1 to node7"), "denied");
    }
    // It is he whom the caller reaches: with the server's own key he is believed.
    net->router.open(with_key("0.0.0.0:7001", "server"));
    EXPECT_EQ(net->caller.send(there, "hello"), "ok");
    EXPECT_EQ(net->router.receive().rfind("hello from ", 0), 0u);
}

}  // namespace
}  // namespace amalgam::processes

// A middleman between two ports with TLS. It may pass bytes on as it likes; whatever else it does,
// neither side takes anything for what the other has said.
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {
namespace {

constexpr const char* near = "tcp+tls://127.0.0.1:0";

/// Listens in place of a port, and connects to it for its caller. Passes records on, or keeps them.
class middleman {
public:
    enum way : std::size_t { to_server, to_caller };

    explicit middleman(const std::string& server) : server_("tcp" + server.substr(7)) {}

    std::string address() const { return "tcp+tls" + listener_.address().substr(3); }
    /// Takes in what has arrived.
    void move() {
        if (!ends_[to_server] && listener_.has_caller()) {
            ends_[to_caller].emplace(listener_.accept());
            ends_[to_server].emplace(server_);
        }
        if (!ends_[to_server]) return;
        for (const way each : {to_server, to_caller})
            take_in(each);
    }
    void keep() { keeps_ = true; }
    const std::vector<std::string>& kept(way which) const { return kept_[which]; }
    /// All that went there.
    const std::string& recorded(way which) const { return recorded_[which]; }

    void send(way which, const std::string& bytes) { ends_[which]->send(bytes); }
    void close() { ends_ = {}; }
    bool has_caller() const { return ends_[to_caller].has_value(); }

private:
    void take_in(way which) {
        char some[20'000];
        const int fd = ends_[which == to_server ? to_caller : to_server]->fd();
        const ssize_t got = ::recv(fd, some, sizeof some, MSG_DONTWAIT);
        if (got <= 0) return;
        std::string& rest = rests_[which];
        rest.append(some, static_cast<std::size_t>(got));
        while (rest.size() >= 5) {
            const auto at = [&](std::size_t i) { return static_cast<unsigned char>(rest[i]); };
            const std::size_t bytes = std::size_t{5} + (at(3) << 8 | at(4));
            if (rest.size() < bytes) return;
            const std::string record = rest.substr(0, bytes);
            rest.erase(0, bytes);
            recorded_[which] += record;
            if (keeps_)
                kept_[which].push_back(record);
            else
                send(which, record);
        }
    }

    raw_listener listener_;
    std::string server_;
    bool keeps_ = false;
    std::array<std::optional<tcp_raw_peer>, 2> ends_;
    std::array<std::string, 2> rests_, recorded_;
    std::array<std::vector<std::string>, 2> kept_;
};

class tls_middleman : public testing::Test {
protected:
    /// A caller that reached the server through a middleman, who now keeps two of its messages, a
    /// record each.
    struct scene {
        scene(tcp_test_port& with, const port_options& options)
            : server(with), caller("tcp+tls://", options), between(with.end->address()) {
            to = caller.look_up(between.address());
            EXPECT_TRUE(caller.post(to, 0, "hello", first) != posted::full);
            until([&] { return !server.arrived.empty() && first_is_over(); });
            server.arrived.clear();
            between.keep();
            for (std::uint64_t tag : {1u, 2u}) {
                EXPECT_TRUE(caller.send(to, tag, tag == 1 ? "first" : "second"));
                until([&] { return between.kept(middleman::to_server).size() == tag; });
            }
        }
        bool first_is_over() const { return first.over || !caller.lost.empty(); }
        void until(const std::function<bool()>& reached) {
            while (!reached()) {
                server.end->progress();
                caller.end->progress();
                between.move();
            }
        }
        const std::string& record(std::size_t i) const {
            return between.kept(middleman::to_server)[i];
        }
        void to_server(const std::string& bytes) { between.send(middleman::to_server, bytes); }

        tcp_test_port& server;
        tcp_test_port caller;
        middleman between;
        peer_id to{};
        tcp_test_port::operation first;
    };

    port_options with() const {
        port_options options;
        options.trust = lab_.trust;
        return options;
    }
    /// The server ends the connection, and has taken no more than these messages.
    void expect_dropped(scene& at, const std::vector<std::string>& taken = {}) {
        at.until([&] { return !server.lost.empty(); });
        ASSERT_EQ(server.arrived.size(), taken.size());
        for (std::size_t i = 0; i < taken.size(); ++i)
            EXPECT_EQ(server.arrived[i].text, taken[i]);
        server.lost.clear();
        server.arrived.clear();
    }

    test_lab lab_;
    tcp_test_port server{near, with()};
};

TEST_F(tls_middleman, that_only_passes_records_on_is_not_noticed) {
    scene at(server, with());
    at.to_server(at.record(0));
    at.to_server(at.record(1));
    at.until([&] { return server.arrived.size() == 2; });
    EXPECT_EQ(server.arrived[0].text, "first");
    EXPECT_EQ(server.arrived[1].text, "second");
    EXPECT_EQ(at.between.recorded(middleman::to_server).find("second"), std::string::npos);
}

TEST_F(tls_middleman, that_repeats_a_record_has_it_taken_once) {
    scene at(server, with());
    at.to_server(at.record(0) + at.record(0));
    expect_dropped(at, {"first"});
}

TEST_F(tls_middleman, that_changes_the_order_has_nothing_taken) {
    scene at(server, with());
    at.to_server(at.record(1) + at.record(0));
    expect_dropped(at);
}

TEST_F(tls_middleman, that_leaves_a_record_out_has_nothing_taken_behind_it) {
    scene at(server, with());
    at.to_server(at.record(1));
    expect_dropped(at);
}

TEST_F(tls_middleman, that_cuts_a_record_has_nothing_of_it_taken) {
    for (const std::size_t back : {1u, 10u, 40u}) {
        scene at(server, with());
        at.to_server(at.record(0).substr(0, at.record(0).size() - back));
        at.between.close();
        expect_dropped(at);
    }
}

TEST_F(tls_middleman, that_changes_any_byte_has_nothing_taken) {
    for (std::size_t i = 0;; ++i) {
        scene at(server, with());
        std::string record = at.record(0);
        if (i == record.size()) break;
        record[i] ^= 1;
        at.to_server(record);
        at.to_server(at.record(1));
        // A longer length makes it wait for the rest.
        if (i == 3 || i == 4) at.between.close();
        expect_dropped(at);
    }
}

TEST_F(tls_middleman, that_sends_a_callers_records_back_has_nothing_taken) {
    scene at(server, with());
    at.between.send(middleman::to_caller, at.record(0));
    at.until([&] { return !at.caller.lost.empty(); });
    EXPECT_TRUE(at.caller.arrived.empty());
    EXPECT_EQ(at.caller.lost.front().second.native, EPROTO);
}

TEST_F(tls_middleman, that_puts_a_record_of_another_connection_in_has_nothing_taken) {
    scene one(server, with()), other(server, with());
    one.to_server(other.record(0));
    expect_dropped(one);
}

TEST_F(tls_middleman, that_plays_a_whole_connection_again_is_nobody) {
    scene at(server, with());
    at.to_server(at.record(0));
    at.until([&] { return server.arrived.size() == 1; });
    server.arrived.clear();
    tcp_raw_peer again("tcp" + server.end->address().substr(7));
    ASSERT_TRUE(again.send(at.between.recorded(middleman::to_server)));
    char answer[20'000];
    at.until([&] {
        const ssize_t got = ::recv(again.fd(), answer, sizeof answer, MSG_DONTWAIT);
        return got == 0 || (got < 0 && errno != EAGAIN);
    });
    EXPECT_TRUE(server.arrived.empty());
    EXPECT_TRUE(server.lost.empty()) << "it never was a peer, and took none with it";
}

TEST_F(tls_middleman, that_sends_a_callers_handshake_back_is_nobody) {
    tcp_test_port caller("tcp+tls://", with());
    middleman between(server.end->address());
    between.keep();
    tcp_test_port::operation op;
    EXPECT_EQ(caller.post(caller.look_up(between.address()), 1, "secret", op), posted::pending);
    while (between.kept(middleman::to_server).empty()) {
        caller.end->progress();
        between.move();
    }
    between.send(middleman::to_caller, between.kept(middleman::to_server).front());
    while (!op.over)
        caller.end->progress();
    EXPECT_NE(op.code, errc::ok);
}

}  // namespace
}  // namespace amalgam::detail

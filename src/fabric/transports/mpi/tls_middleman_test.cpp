// Somebody who has the wire between two ports of MPI: this program's MPI_Isend() is his, and the
// plug-in calls it in place of MPI's.
#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/sealing/trusted_testing.hpp"
#include "fabric/transports/mpi/mpi_h.hpp"
#include "fabric/transports/mpi/wire.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

/// What becomes of the packets for one port.
class mpi_wire {
public:
    static mpi_wire& here() {
        static mpi_wire one;
        return one;
    }
    using bytes = std::vector<std::byte>;

    int send(const void* from, int count, int tag, MPI_Comm over, MPI_Request* request) {
        const auto* const at = static_cast<const std::byte*>(from);
        bytes one(at, at + count);
        const bool is_packet = one.size() > mpi_header::wire_bytes &&
                               mpi_header::decode(one.data()).kind == mpi_kind::packet;
        over_ = over;
        if (is_packet) seen[tag].push_back(one);
        if (!is_packet || tag != of || !act) return pass(std::move(one), tag, request);
        const auto now = act;  // Which may change it.
        now(one, tag);
        *request = MPI_REQUEST_NULL;  // It has what was sent.
        return MPI_SUCCESS;
    }
    void put(bytes one, int tag) {
        MPI_Request request = MPI_REQUEST_NULL;
        ASSERT_EQ(pass(std::move(one), tag, &request), MPI_SUCCESS);
    }

    int of = -1;  ///< The number of the port.
    std::function<void(bytes&, int)> act;
    std::map<int, std::deque<bytes>> seen;  ///< All packets, by the port that they were for.

private:
    int pass(bytes one, int tag, MPI_Request* request) {
        sent_.push_back(std::move(one));
        return PMPI_Isend(sent_.back().data(), static_cast<int>(sent_.back().size()), MPI_BYTE, 0,
                          tag, over_, request);
    }

    MPI_Comm over_ = MPI_COMM_NULL;
    std::deque<bytes> sent_;  ///< MPI may read it later.
};

class mpi_middleman : public testing::Test {
protected:
    struct scene {
        explicit scene(const std::string& scheme) : caller(open(scheme)), server(open(scheme)) {
            std::tie(to, back) = connect(caller, server);
            server.send(back, 1, "answer");
            move_until({&caller, &server}, [&] { return !caller.arrived.empty(); });
            caller.arrived.clear();
            wire().seen.clear();
            wire().of = number_of(server);
        }
        ~scene() {
            wire().act = nullptr;
            wire().of = -1;
        }
        static tcp_test_port open(const std::string& scheme) {
            const port_options with = scheme.ends_with("+tls") ? trusting() : port_options{};
            return tcp_test_port(transport_registry::installed().open(scheme, with).value());
        }
        static int number_of(const tcp_test_port& one) {
            const std::string at = one.end->address();
            return std::stoi(at.substr(at.rfind(':') + 1));
        }
        void until(const std::function<bool()>& reached) {
            move_until({&caller, &server}, reached);
        }
        void say(const char* text) { ASSERT_TRUE(caller.send(to, 7, text)); }
        void expect_taken(const std::vector<std::string>& texts) {
            until([&] { return !server.lost.empty() && !caller.lost.empty(); });
            std::vector<std::string> all;
            for (const auto& each : server.arrived)
                all.push_back(each.text);
            EXPECT_EQ(all, texts);
            EXPECT_TRUE(caller.arrived.empty());
            EXPECT_EQ(server.lost.front().second.code, errc::disconnected);
            EXPECT_TRUE(contains(server.end->explain(), "; 1 packets that were changed"))
                << server.end->explain();
        }

        tcp_test_port caller, server;
        peer_id to{}, back{};
    };

    static mpi_wire& wire() { return mpi_wire::here(); }
};

TEST_F(mpi_middleman, that_changes_a_byte_has_nothing_taken_while_it_can_change_all_of_it_plain) {
    for (const char* scheme : {"mpi+static", "mpi+static+tls"}) {
        scene at(scheme);
        const bool is_plain = scheme == std::string("mpi+static");
        wire().act = [](mpi_wire::bytes& one, int tag) {
            one.back() ^= std::byte{1};
            wire().put(one, tag);
        };
        at.say("pay 1");
        if (!is_plain) {
            at.expect_taken({});
            continue;
        }
        at.until([&] { return !at.server.arrived.empty(); });
        EXPECT_EQ(at.server.arrived.front().text, "pay 0");
    }
}

TEST_F(mpi_middleman, that_only_listens_sees_nothing_while_it_sees_all_of_it_plain) {
    const std::string text(200, 's');
    for (const char* scheme : {"mpi+static", "mpi+static+tls"}) {
        scene at(scheme);
        at.say(text.c_str());
        at.until([&] { return !at.server.arrived.empty(); });
        EXPECT_EQ(at.server.arrived.front().text, text);
        std::string all;
        for (const auto& [port, packets] : wire().seen)
            for (const mpi_wire::bytes& each : packets)
                all.append(reinterpret_cast<const char*>(each.data()), each.size());
        EXPECT_GT(all.size(), text.size());
        EXPECT_EQ(contains(all, "ssssssss"), scheme == std::string("mpi+static"));
    }
}

TEST_F(mpi_middleman, that_repeats_a_packet_has_it_taken_once) {
    scene at("mpi+static+tls");
    wire().act = [](mpi_wire::bytes& one, int tag) {
        wire().put(one, tag);
        wire().put(one, tag);
    };
    at.say("pay 1");
    at.expect_taken({"pay 1"});
}

TEST_F(mpi_middleman, that_plays_a_packet_again_later_has_it_taken_once) {
    scene at("mpi+static+tls");
    for (const char* each : {"first", "second", "third"})
        at.say(each);
    at.until([&] { return at.server.arrived.size() == 3; });
    wire().put(wire().seen[wire().of].front(), wire().of);
    at.expect_taken({"first", "second", "third"});
}

TEST_F(mpi_middleman, that_leaves_a_packet_out_has_nothing_taken_behind_it) {
    scene at("mpi+static+tls");
    wire().act = [](mpi_wire::bytes&, int) { wire().act = nullptr; };
    at.say("first");
    at.say("second");
    at.expect_taken({});
}

TEST_F(mpi_middleman, that_changes_the_order_has_nothing_taken) {
    scene at("mpi+static+tls");
    const auto kept = std::make_shared<mpi_wire::bytes>();
    wire().act = [kept](mpi_wire::bytes& one, int tag) {
        if (kept->empty()) {
            *kept = one;
            return;
        }
        wire().put(one, tag);
        wire().put(*kept, tag);
    };
    at.say("first");
    at.say("second");
    at.expect_taken({});
}

TEST_F(mpi_middleman, that_cuts_a_packet_has_nothing_taken) {
    scene at("mpi+static+tls");
    wire().act = [](mpi_wire::bytes& one, int tag) {
        one.resize(one.size() - 3);
        wire().put(one, tag);
    };
    at.say("pay 1");
    at.expect_taken({});
}

TEST_F(mpi_middleman, that_sends_a_packet_back_or_into_another_connection_has_nothing_taken) {
    for (const bool back : {true, false}) {
        SCOPED_TRACE(back);
        scene other("mpi+static+tls"), at("mpi+static+tls");
        // Whom a packet is for stands in front of it, which only its sender knows of the other end.
        at.server.send(at.back, 1, "so that it is seen");
        other.say("so that it is seen");
        at.until([&] { return !at.caller.arrived.empty(); });
        other.until([&] { return !other.server.arrived.empty(); });
        at.caller.arrived.clear();
        const int into = scene::number_of(back ? at.caller : other.server);
        const mpi_wire::bytes head = wire().seen[into].back();
        wire().act = [head, into](mpi_wire::bytes& one, int) {
            std::copy_n(head.begin(), mpi_header::wire_bytes, one.begin());
            wire().put(one, into);
        };
        at.say("pay 1");
        scene& hit = back ? at : other;
        tcp_test_port& who = back ? at.caller : other.server;
        hit.until([&] { return !who.lost.empty(); });
        EXPECT_EQ(who.lost.front().second.code, errc::disconnected);
        EXPECT_TRUE(contains(who.end->explain(), "; 1 packets that were changed"))
            << who.end->explain();
        EXPECT_EQ(who.arrived.size(), back ? 0u : 1u);
        EXPECT_TRUE(at.server.arrived.empty());
    }
}

}  // namespace
}  // namespace amalgam::detail

/// MPI's own is PMPI_Isend(), for such uses.
extern "C" int MPI_Isend(const void* from, int count, MPI_Datatype, int, int tag, MPI_Comm over,
                         MPI_Request* request) {
    return amalgam::detail::mpi_wire::here().send(from, count, tag, over, request);
}

// libfabric's packets, sealed under keys from the introduction over TLS.
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/transport_suite.hpp"
#include "fabric/sealing/crowd_testing.hpp"
#include "fabric/sealing/stopped_testing.hpp"
#include "fabric/sealing/trusted_testing.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "fabric/transports/ucx/listening_ports.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

[[maybe_unused]] const testing::Environment* const same_for_all =
    testing::AddGlobalTestEnvironment(new shared_lab_environment);

const bool described = conformance::describe_transport(
    "ofi+tcp+tls", {.registry = [] { return trusted_registry("ofi"); },
                    .send_garbage = &send_wrong_sealed_introduction});

[[maybe_unused]] const bool sealed_over_plain =
    conformance::run_briefly("ofi+tcp+tls://127.0.0.1:0");
INSTANTIATE_TEST_SUITE_P(ofi_tls, transport_suite, testing::Values("ofi+tcp+tls://127.0.0.1:0"));
// libfabric's own puts and gets beside sealed packets.
[[maybe_unused]] const bool beside_both_alone =
    conformance::run_briefly("ofi+tcp+tls://127.0.0.1:0?one_sided=any&trusted_wire=yes");
INSTANTIATE_TEST_SUITE_P(
    ofi_tls_one_sided, transport_suite,
    testing::Values("ofi+tcp+tls://127.0.0.1:0?one_sided=any&trusted_wire=yes"));

constexpr const char* local = "ofi+tcp+tls://127.0.0.1:0";

tcp_test_port open_here(const std::string& where = local, const port_options& with = trusting()) {
    return tcp_test_port(transport_registry::installed().open(where, with).value());
}

errc fate_of(tcp_test_port& here, const std::string& address, tcp_test_port& there) {
    tcp_test_port::operation op;
    EXPECT_EQ(here.post(here.look_up(address), 1, "x", op), posted::pending);
    move_until({&here, &there}, [&] { return op.over; });
    return op.code;
}

TEST(ofi_tls, both_ends_know_who_the_other_is) {
    tcp_test_port here = open_here(), there = open_here();
    EXPECT_EQ(here.end->can().transport, "ofi+tls");
    EXPECT_TRUE(here.end->address().starts_with("ofi+tcp+tls://127.0.0.1:")) << here.end->address();
    const auto [to, back] = connect(here, there);
    EXPECT_EQ(there.end->who(back).name, "node");
    EXPECT_EQ(there.end->who(back).kind, identity_kind::certificate);
    there.send(back, 1, "answer");
    move_until({&here, &there}, [&] { return !here.arrived.empty(); });
    EXPECT_EQ(here.end->who(to).name, "node");
    EXPECT_EQ(here.end->who(to), there.end->self());
}

TEST(ofi_tls, a_thousand_handshakes_at_once_do_not_hold_up_a_connection_that_stands) {
    expect_served_beside_a_thousand_handshakes(
        [](const port_options& with) { return open_here(local, with); });
}

TEST(ofi_tls, a_peer_that_stands_still_holds_nobody_up_and_goes_on_where_it_was) {
    expect_a_stopped_peer_holds_nobody_up(local);
}

TEST(ofi_tls, certificates_made_anew_and_revoked_under_load_hold_for_newcomers_only) {
    expect_reload_and_revocation_under_load(
        [](const port_options& with) { return open_here(local, with); });
}

TEST(ofi_tls, a_caller_of_another_authority_is_denied) {
    const test_lab others;
    tcp_test_port there = open_here(),
                  stranger = open_here("ofi+tcp+tls://", trusting(others.trust));
    EXPECT_EQ(fate_of(stranger, there.end->address(), there), errc::denied);
    EXPECT_TRUE(there.arrived.empty());
    EXPECT_TRUE(contains(there.end->explain(), "1 handshakes refused so far"))
        << there.end->explain();
}

TEST(ofi_tls, one_that_does_not_encrypt_is_not_let_in) {
    tcp_test_port there = open_here(), plain = open_here("ofi+tcp://");
    EXPECT_EQ(fate_of(plain, "ofi+tcp" + there.end->address().substr(11), there),
              errc::unreachable);
    EXPECT_TRUE(there.arrived.empty());
}

TEST(ofi_tls, explain_tells_what_is_protected_and_how) {
    const tcp_test_port here = open_here();
    const std::string told = here.end->explain();
    EXPECT_TRUE(contains(told, "packets are encrypted, with keys from that set-up")) << told;
    EXPECT_TRUE(contains(told, "encrypted by TLS 1.3")) << told;
    EXPECT_TRUE(contains(told, "each packet is sealed by ")) << told;
    EXPECT_FALSE(contains(told, "not encrypted")) << told;
    constexpr const char* but = "but puts and gets of the library's own are not";
    EXPECT_FALSE(contains(told, but)) << told;
    const std::string trusting_it = std::string(local) + "?one_sided=any&trusted_wire=yes";
    EXPECT_TRUE(contains(open_here(trusting_it).end->explain(), but));
    const std::string by_kernel = std::string(local) + "?one_sided=host";
    EXPECT_FALSE(contains(open_here(by_kernel).end->explain(), but));
}

TEST(ofi_tls, options_that_make_no_sense_are_refused_with_a_sentence) {
    for (const auto& [where, why] : std::initializer_list<std::pair<const char*, const char*>>{
             {"ofi+tcp+tls://127.0.0.1:0?one_sided=any",
              "one_sided=any would send puts and gets unencrypted, expected trusted_wire=yes "},
             {"ofi+tcp+tls://127.0.0.1:0?insecure=yes", "has no use for insecure"},
             {"ofi+tcp+tls://127.0.0.1:0?trusted_wire=maybe", "but must be yes or no"},
             {"ofi+tcp://127.0.0.1:0?trusted_wire=yes", "has no use for trusted_wire"},
             {"ofi+tcp://127.0.0.1:0?credentials=node7",
              "does not encrypt and has no use for credentials, expected ofi+tcp+tls://"}})
        EXPECT_TRUE(contains(refusal(where), why)) << refusal(where);
    EXPECT_TRUE(contains(refusal(local, {}), "needs credentials")) << refusal(local, {});
    EXPECT_TRUE(contains(refusal(local, {}), "uri \"ofi+tcp+tls://127.0.0.1:0\": "));
    // Keys are the way to be reached by other hosts.
    EXPECT_EQ(refusal("ofi+tcp+tls://0.0.0.0:0"), "opened");
    EXPECT_TRUE(contains(refusal("ofi+tcp://0.0.0.0:0", {}),
                         "use keys (ofi+tcp+tls://0.0.0.0:0?credentials=NAME, "))
        << refusal("ofi+tcp://0.0.0.0:0", {});
}

TEST(ofi_tls, credentials_are_read_from_the_folder_that_the_uri_names_and_peers_never_see_it) {
    const temp_folder folder;
    shared_lab().authority.write_folder(folder.with("node"), shared_lab().node);
    const std::string where = std::string(local) + "?credentials=" + folder.with("node");
    tcp_test_port here = open_here(where, {}), there = open_here(where, {});
    EXPECT_FALSE(contains(there.end->address(), "credentials")) << there.end->address();
    connect(here, there);
    // One URI may serve a port and its lookups; another proof than the port's is refused.
    EXPECT_TRUE(here.end->lookup(there.end->address() + "?credentials=" + folder.with("node")));
    const auto wrong = here.end->lookup("ofi+tcp+tls://127.0.0.1:7?credentials=other");
    EXPECT_EQ(wrong.code(), errc::invalid);
    EXPECT_TRUE(
        contains(wrong.sentence(), "the credentials of a port are those that it was opened"))
        << wrong.sentence();
}

// ---- a middleman

/// Passes on what arrives at an address of its own to the same port number of the true one.
class relay {
public:
    static constexpr const char* host = "127.0.0.2";

    explicit relay(const std::string& server)
        : server_(server), listener_(16, host, uri::parse(server).port.value()) {}

    void move() {
        if (listener_.has_caller()) {
            pairs_.emplace_back(tcp_raw_peer(listener_.accept()), tcp_raw_peer(server_));
        }
        for (auto& [caller, server] : pairs_) {
            pass(caller, server, true);
            pass(server, caller, false);
        }
    }

    std::string seen;                       ///< From callers.
    std::optional<std::size_t> changes_at;  ///< Which byte of that.
    /// What becomes of the next that a caller says, and no other.
    enum class trick { none, repeat, drop, hold_back } next = trick::none;

private:
    void pass(tcp_raw_peer& from, tcp_raw_peer& to, bool from_caller) {
        char some[20'000];
        const ssize_t got = ::recv(from.fd(), some, sizeof some, MSG_DONTWAIT);
        if (got == 0) ::shutdown(to.fd(), SHUT_WR);
        if (got <= 0) return;
        std::string bytes(some, static_cast<std::size_t>(got));
        if (from_caller) {
            if (changes_at && *changes_at >= seen.size() &&
                *changes_at < seen.size() + bytes.size())
                bytes[*changes_at - seen.size()] ^= 0x10;
            seen += bytes;
            switch (std::exchange(next, trick::none)) {
                case trick::drop:
                    return;
                case trick::hold_back:  // Behind the one that follows.
                    held_back_ = bytes;
                    return;
                case trick::repeat:
                    to.send(bytes);
                    break;
                case trick::none:
                    bytes += std::exchange(held_back_, {});
            }
        }
        to.send(bytes);
    }

    std::string server_;
    raw_listener listener_;
    std::deque<std::pair<tcp_raw_peer, tcp_raw_peer>> pairs_;
    std::string held_back_;
};

/// Two ports, and somebody who has the wire between them: that of the introductions and that of
/// libfabric's packets.
class ofi_middleman : public testing::Test {
protected:
    struct scene {
        scene(const std::string& scheme, const port_options& with)
            : server(open_here(scheme + "://127.0.0.1:0", with)),
              caller(open_here(scheme + "://", with)) {
            const uri at = uri::parse(server.end->address());
            for (const std::string& each : listening_ports()) {
                const bool is_ours = uri::parse(each).port == at.port;
                (is_ours ? introductions : packets).emplace(each);
            }
            EXPECT_TRUE(introductions && packets);
            to = caller.look_up(scheme + "://" + relay::host + ":" + std::to_string(*at.port));
        }
        void until(const std::function<bool()>& reached) {
            while (!reached()) {
                server.end->progress();
                caller.end->progress();
                introductions->move();
                packets->move();
            }
        }
        /// Sends it; true: it arrived, or what became of it.
        bool carries(const std::string& text) {
            tcp_test_port::operation op;
            const std::size_t before = server.arrived.size();
            const posted how = caller.post(to, 7, text, op);
            until([&] {
                return server.arrived.size() > before || !server.lost.empty() ||
                       !caller.lost.empty();
            });
            until([&] { return how != posted::pending || op.over; });
            return server.arrived.size() > before;
        }

        tcp_test_port server, caller;
        std::optional<relay> introductions, packets;
        peer_id to{};
    };

    ofi_middleman() {
        options_.trust =
            lab_.trust_of(lab_.authority.issue({.hosts = "IP:127.0.0.1,IP:127.0.0.2"}));
    }

    test_lab lab_;
    port_options options_;
    const std::string text_ = std::string(30'000, 's');
};

TEST_F(ofi_middleman,
       that_only_listens_sees_nothing_of_what_is_sent_while_it_sees_all_of_it_plain) {
    for (const char* scheme : {"ofi+tcp", "ofi+tcp+tls"}) {
        scene at(scheme, options_);
        ASSERT_TRUE(at.carries(text_)) << scheme;
        EXPECT_EQ(at.server.arrived.back().text, text_);
        EXPECT_GT(at.packets->seen.size(), text_.size()) << "that is where packets go";
        const bool is_plain = scheme == std::string("ofi+tcp");
        EXPECT_EQ(contains(at.packets->seen, "ssssssss"), is_plain);
        EXPECT_EQ(contains(at.introductions->seen, scheme), is_plain);
    }
}

TEST_F(ofi_middleman, that_changes_a_byte_has_nothing_taken_while_it_can_change_all_of_it_plain) {
    for (const char* scheme : {"ofi+tcp", "ofi+tcp+tls"}) {
        scene at(scheme, options_);
        ASSERT_TRUE(at.carries("first")) << scheme;
        at.packets->changes_at = at.packets->seen.size() + 10'000;
        const bool arrived = at.carries(text_);
        if (scheme == std::string("ofi+tcp")) {
            ASSERT_TRUE(arrived);
            EXPECT_NE(at.server.arrived.back().text, text_) << "the test itself";
        } else {
            EXPECT_FALSE(arrived);
            EXPECT_EQ(at.server.arrived.size(), 1u);
            at.until([&] { return !at.server.lost.empty() && !at.caller.lost.empty(); });
            EXPECT_EQ(at.server.lost.front().second.code, errc::disconnected);
            EXPECT_TRUE(contains(at.server.end->explain(), "; 1 packets that were changed"))
                << at.server.end->explain();
        }
    }
}

TEST_F(ofi_middleman, that_repeats_leaves_out_or_swaps_packets_has_nothing_taken_twice_or_late) {
    using trick = relay::trick;
    for (const auto& [what, taken] : std::initializer_list<std::pair<trick, std::size_t>>{
             {trick::repeat, 2}, {trick::drop, 1}, {trick::hold_back, 1}}) {
        scene at("ofi+tcp+tls", options_);
        ASSERT_TRUE(at.carries("first"));
        at.packets->next = what;
        const auto send = [&](const char* text) {
            return at.caller.send(at.to, 7, text) || !at.caller.lost.empty();
        };
        ASSERT_TRUE(send("second"));
        at.until([&] { return at.packets->next == trick::none; });
        ASSERT_TRUE(send("third"));
        at.until([&] { return !at.server.lost.empty() && !at.caller.lost.empty(); });
        ASSERT_EQ(at.server.arrived.size(), taken);
        EXPECT_EQ(at.server.arrived.back().text, taken == 1 ? "first" : "second");
        EXPECT_TRUE(contains(at.server.end->explain(), "; 1 packets that were changed"))
            << at.server.end->explain();
    }
}

}  // namespace
}  // namespace amalgam::detail

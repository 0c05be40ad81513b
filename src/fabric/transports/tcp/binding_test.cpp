#include "fabric/sockets/binding.hpp"

#include <cerrno>
#include <cstring>

#include <gtest/gtest.h>

#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "few_threads.hpp"
#include "scarce_resources.hpp"

namespace amalgam::detail {
namespace {

socket_address at(std::string_view host) {
    return *socket_address::numeric(host, 0);
}

const std::vector<interface_address> machine = {{"lo", at("127.0.0.1"), true},
                                                {"eth0", at("10.0.0.5"), true},
                                                {"eth0", at("fd00::5"), true},
                                                {"bare0", socket_address(), true}};

binding chosen(std::string_view where) {
    return choose_binding(uri::parse(where), machine).value();
}

/// The sentence of an expected failure.
std::string complaint(std::string_view where, errc code) {
    auto wrong = choose_binding(uri::parse(where), machine);
    EXPECT_FALSE(wrong) << where;
    EXPECT_EQ(wrong.code(), code) << where;
    EXPECT_EQ(wrong.sentence().find('\n'), std::string::npos);
    EXPECT_NE(wrong.sentence().find("example: "), std::string::npos) << wrong.sentence();
    return wrong.sentence();
}

bool says(const std::string& sentence, std::string_view part) {
    if (sentence.find(part) != std::string::npos) return true;
    ADD_FAILURE() << "not in \"" << sentence << "\": " << part;
    return false;
}

TEST(binding, no_host_does_not_listen) {
    EXPECT_FALSE(chosen("tcp://").listen);
    EXPECT_FALSE(chosen("tcp://").source);
}

TEST(binding, the_kernel_is_asked_for_interfaces_only_where_they_matter) {
    const machine_interfaces here;
    for (const char* where : {"tcp://", "tcp://127.0.0.1:0", "tcp://[::1]:7000"})
        EXPECT_TRUE(choose_binding(uri::parse(where), here)) << where;
    EXPECT_EQ(advertise(at("127.0.0.1"), here).address, at("127.0.0.1"));
    EXPECT_FALSE(here.were_asked_for());
    EXPECT_TRUE(choose_binding(uri::parse("tcp://lo:0"), here));
    EXPECT_TRUE(here.were_asked_for());
}

TEST(binding, an_address_is_where_it_listens_and_connects_from) {
    const binding at_v4 = chosen("tcp://10.0.0.5:7000");
    EXPECT_EQ(at_v4.listen->uri(), "tcp://10.0.0.5:7000");
    EXPECT_EQ(at_v4.source, at("10.0.0.5"));
    EXPECT_EQ(chosen("tcp://[fd00::5]").listen->uri(), "tcp://[fd00::5]:0");
}

TEST(binding, an_interface_stands_for_its_address_and_is_left_by) {
    const binding at_eth0 = chosen("tcp://eth0:7000");
    EXPECT_EQ(at_eth0.listen->uri(), "tcp://10.0.0.5:7000");
    EXPECT_EQ(at_eth0.source, at("10.0.0.5"));
    EXPECT_EQ(at_eth0.device, "eth0");
}

TEST(binding, a_wildcard_binds_no_source_and_is_never_shown) {
    for (const char* where : {"tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://:0"}) {
        const binding any = chosen(where);
        ASSERT_TRUE(any.listen) << where;
        EXPECT_FALSE(any.source) << where;
        const advertisement shown = advertise(any.listen->with_port(7000), machine);
        EXPECT_FALSE(shown.address.is_wildcard()) << where;
        EXPECT_EQ(shown.address.port(), 7000);
        EXPECT_NE(explain_binding(any, shown).find(shown.address.uri()), std::string::npos);
    }
}

TEST(binding, a_host_that_nobody_knows_is_answered_with_the_interfaces) {
    const std::string sentence = complaint("tcp://no-such-host.invalid:1", errc::unreachable);
    says(sentence, "no-such-host.invalid");
    says(sentence, "lo (127.0.0.1), eth0 (10.0.0.5, fd00::5), bare0 (no address)");
}

TEST(binding, an_interface_without_an_address_is_named) {
    says(complaint("tcp://bare0:1", errc::unreachable), "the interface bare0 has no address");
}

TEST(binding, options_and_bare_link_local_addresses_are_refused) {
    says(complaint("tcp://10.0.0.5:1?speed=9", errc::invalid), "\"speed\"");
    says(complaint("tcp://[fe80::5]:1", errc::invalid), "needs an interface");
}

TEST(binding, explains_in_one_sentence_what_was_chosen) {
    EXPECT_EQ(explain_binding(chosen("tcp://eth0:7000"),
                              advertise(*chosen("tcp://eth0:7000").listen, machine)),
              "listens on tcp://10.0.0.5:7000, the IPv4 address of eth0; outgoing connections use "
              "10.0.0.5 on eth0");
    EXPECT_EQ(
        explain_binding(chosen("tcp://"), {}),
        "does not listen, as the URI names no host; outgoing connections follow the routing table");
}

std::string refusal(const std::string& where, errc code) {
    auto opened = make_tcp_transport()->open(uri::parse(where), {});
    EXPECT_FALSE(opened);
    EXPECT_EQ(opened.code(), code);
    return opened.sentence();
}

TEST(tcp_opening, a_port_in_use_is_said_with_a_way_out) {
    raw_listener other;
    const std::string sentence = refusal(other.address(), errc::in_use);
    says(sentence, "is in use");
    says(sentence, std::to_string(*uri::parse(other.address()).port));
    says(sentence, "0 for any free port");
}

TEST(tcp_opening, an_address_of_another_machine_is_answered_with_our_own) {
    const std::string sentence = refusal("tcp://192.0.2.77:0?insecure=yes", errc::invalid);
    says(sentence, "192.0.2.77 is not an address of this host");
    says(sentence, "127.0.0.1");
}

TEST(tcp_opening, the_loopback_interface_by_name_is_an_address_others_can_use) {
    tcp_test_port named("tcp://lo:0"), caller("tcp://");
    EXPECT_EQ(named.end->address().substr(0, 16), "tcp://127.0.0.1:");
    connect(caller, named);
}

TEST(tcp_opening, without_a_descriptor_it_says_so_and_what_to_do) {
    const auto transport = make_tcp_transport();
    for (const char* where : {"tcp://lo:0", "tcp://localhost:0", "tcp://127.0.0.1:0"}) {
        const few_descriptors none(0);
        const auto opened = transport->open(uri::parse(where), {});
        ASSERT_FALSE(opened) << where;
        EXPECT_EQ(opened.code(), errc::no_memory) << where;
        says(opened.sentence(), std::strerror(EMFILE));
        says(opened.sentence(), "ulimit -n");
    }
    EXPECT_TRUE(transport->open(uri::parse("tcp://lo:0"), {}));
}

TEST(tcp_opening, a_wildcard_port_is_reached_by_what_it_says_it_is) {
    for (const char* where : {"tcp://0.0.0.0:0?insecure=yes", "tcp://:0?insecure=yes"}) {
        tcp_test_port wide(where), caller("tcp://");
        EXPECT_EQ(wide.end->address().find("0.0.0.0"), std::string::npos);
        EXPECT_EQ(wide.end->address().find("[::]"), std::string::npos);
        connect(caller, wide);
    }
}

TEST(tcp_opening, a_port_that_other_hosts_can_reach_without_keys_is_refused_with_both_ways_out) {
    EXPECT_EQ(
        refusal("tcp://0.0.0.0:7000", errc::denied),
        "uri \"tcp://0.0.0.0:7000\": other hosts can reach this port, and nobody is asked who "
        "he is; use keys (tcp+tls://0.0.0.0:7000?credentials=NAME, with NAME made by "
        "\"amalgam key new\"), or say that this is meant; example: "
        "tcp://0.0.0.0:7000?insecure=yes");
    for (const char* where : {"tcp://:0", "tcp://[::]:0", "tcp://0.0.0.0:0?insecure=no",
                              "tcp://192.0.2.77:0", "tcp://[2001:db8::7]:0"})
        says(refusal(where, errc::denied), "?insecure=yes");
}

TEST(tcp_opening, what_stays_on_this_host_or_only_calls_needs_no_keys) {
    for (const char* where : {"tcp://", "tcp://127.0.0.1:0", "tcp://127.0.0.2:0", "tcp://[::1]:0",
                              "tcp://lo:0", "tcp://localhost:0", "tcp://127.0.0.1:0?insecure=no"})
        EXPECT_TRUE(make_tcp_transport()->open(uri::parse(where), {})) << where;
}

TEST(tcp_opening, options_may_say_that_strangers_are_meant_and_the_uri_has_the_last_word) {
    const port_options open_to_all{.insecure = true};
    EXPECT_TRUE(make_tcp_transport()->open(uri::parse("tcp://:0"), open_to_all));
    EXPECT_EQ(make_tcp_transport()->open(uri::parse("tcp://:0?insecure=no"), open_to_all).code(),
              errc::denied);
    says(refusal("tcp://:0?insecure=perhaps", errc::invalid), "is \"perhaps\", expected yes or no");
    says(refusal("tcp+tls://:0?insecure=yes", errc::invalid), "has no use for insecure");
}

TEST(tcp_lookup, the_uri_of_a_port_that_is_meant_to_be_open_is_an_address) {
    tcp_test_port here("tcp://"), there("tcp://127.0.0.1:0?insecure=yes");
    const std::string address = there.end->address();
    EXPECT_EQ(address.find('?'), std::string::npos);
    EXPECT_EQ(here.look_up(address), here.look_up(address + "?insecure=yes"));
}

TEST(tcp_opening, what_a_port_bound_to_ipv4_connects_to_sees_that_address) {
    raw_listener far;
    tcp_test_port here("tcp://127.0.0.2:0");
    here.look_up(far.address());
    tcp_raw_peer seen = far.accept();
    EXPECT_EQ(socket_address::far_end(seen.fd()).host(), "127.0.0.2");
}

TEST(tcp_lookup, addresses_that_name_nobody_are_invalid) {
    tcp_test_port here("tcp://127.0.0.1:0");
    for (const char* where : {"tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:0", "tcp://0.0.0.0:5",
                              "tcp://[::]:5", "shm://x", "nonsense", "tcp://127.0.0.1:5?a=b"}) {
        auto found = here.end->lookup(where);
        EXPECT_FALSE(found) << where;
        EXPECT_EQ(found.code(), errc::invalid) << where;
        EXPECT_FALSE(found.sentence().empty()) << where;
    }
    auto other_family = here.end->lookup("tcp://[::1]:5");
    EXPECT_EQ(other_family.code(), errc::unsupported);
    says(other_family.sentence(), "bound to 127.0.0.1");
}

TEST(tcp_lookup, spellings_of_one_address_are_one_peer) {
    tcp_test_port here("tcp://"), there("tcp://[::1]:0");
    const std::string number = std::to_string(*uri::parse(there.end->address()).port);
    EXPECT_EQ(here.look_up("tcp://[::1]:" + number), here.look_up("TCP://[0:0::0:1]:" + number));
}

TEST(tcp_lookup, a_host_name_is_resolved_while_the_port_goes_on) {
    tcp_test_port here("tcp://"), there("tcp://127.0.0.1:0");
    const std::string number = std::to_string(*uri::parse(there.end->address()).port);
    const peer_id named = here.look_up("tcp://localhost:" + number);
    tcp_test_port::operation op;
    EXPECT_EQ(here.post(named, 1, "by name", op), posted::pending);
    move_until({&here, &there}, [&] { return op.over; });
    EXPECT_EQ(op.code, errc::ok);
    move_until({&here, &there}, [&] { return !there.arrived.empty(); });
    EXPECT_EQ(there.arrived.front().text, "by name");
}

TEST(tcp_lookup, a_name_that_no_thread_is_left_to_resolve_says_so_and_what_to_do) {
#if defined(AMALGAM_ASAN) || defined(AMALGAM_TSAN)
    GTEST_SKIP() << "a sanitizer has its own pthread_create()";
#endif
    tcp_test_port here("tcp://127.0.0.1:0");
    const std::string where =
        "tcp://localhost:" + std::to_string(*uri::parse(here.end->address()).port);
    {
        const few_threads none(0);
        const auto found = here.end->lookup(where);
        ASSERT_FALSE(found);
        EXPECT_EQ(found.code(), errc::no_memory);
        says(found.sentence(), "cannot create a thread that resolves host names");
        says(found.sentence(), std::strerror(EAGAIN));
        says(found.sentence(), "ulimit -u");
    }
    tcp_test_port::operation op;
    EXPECT_EQ(here.post(here.look_up(where), 1, "by name", op), posted::pending);
    move_until({&here}, [&] { return op.over; });
    EXPECT_EQ(op.code, errc::ok);
}

TEST(tcp_lookup, a_name_that_nobody_knows_is_unreachable) {
    tcp_test_port here("tcp://");
    tcp_test_port::operation op;
    EXPECT_EQ(here.post(here.look_up("tcp://no-such-host.invalid:7"), 1, "x", op), posted::pending);
    move_until({&here}, [&] { return op.over; });
    EXPECT_EQ(op.code, errc::unreachable);
}

}  // namespace
}  // namespace amalgam::detail

// MPI's messages, sealed under keys from a TLS handshake in the first of them.
#include <string>

#include <gtest/gtest.h>

#include "conformance/transport_suite.hpp"
#include "fabric/sealing/trusted_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

[[maybe_unused]] const testing::Environment* const same_for_all =
    testing::AddGlobalTestEnvironment(new shared_lab_environment);

const bool described = conformance::describe_transport(
    "mpi+static+tls",
    {.registry = [] { return trusted_registry("mpi"); }, .stays_within_process = true});

[[maybe_unused]] const bool sealed_over_plain = conformance::run_briefly("mpi+static+tls");
INSTANTIATE_TEST_SUITE_P(mpi_tls, transport_suite, testing::Values("mpi+static+tls"));

tcp_test_port open_here(std::shared_ptr<const credentials> trust = shared_lab().trust) {
    return tcp_test_port(
        transport_registry::installed().open("mpi+static+tls", trusting(std::move(trust))).value());
}

TEST(mpi_tls, both_ends_know_who_the_other_is) {
    tcp_test_port here = open_here(), there = open_here();
    EXPECT_EQ(here.end->can().transport, "mpi+tls");
    EXPECT_TRUE(here.end->address().starts_with("mpi+static+tls://0:")) << here.end->address();
    const auto [to, back] = connect(here, there);
    EXPECT_EQ(there.end->who(back).name, "node");
    there.send(back, 1, "answer");
    move_until({&here, &there}, [&] { return !here.arrived.empty(); });
    EXPECT_EQ(here.end->who(to).name, "node");
    EXPECT_EQ(here.end->who(to), there.end->self());
    for (const char* part : {"peers are introduced by TLS 1.3", "each packet is sealed by"})
        EXPECT_TRUE(contains(here.end->explain(), part)) << here.end->explain();
}

TEST(mpi_tls, a_rank_of_another_authority_is_denied) {
    const test_lab others;
    tcp_test_port there = open_here(), stranger = open_here(others.trust);
    tcp_test_port::operation op;
    EXPECT_EQ(stranger.post(stranger.look_up(there.end->address()), 1, "x", op), posted::pending);
    move_until({&stranger, &there}, [&] { return op.over; });
    EXPECT_EQ(op.code, errc::denied);
    EXPECT_TRUE(there.arrived.empty());
}

TEST(mpi_tls, one_that_does_not_encrypt_is_not_let_in_and_neither_is_one_that_does) {
    tcp_test_port there = open_here();
    tcp_test_port plain(transport_registry::installed().open("mpi+static").value());
    std::string address = there.end->address();
    address.erase(address.find("+tls"), 4);
    tcp_test_port::operation op, other;
    (void)plain.post(plain.look_up(address), 1, "x", op);
    move_until({&plain, &there}, [&] { return !plain.lost.empty(); });
    EXPECT_TRUE(there.arrived.empty());
    address = plain.end->address();
    address.insert(address.find("://"), "+tls");
    (void)there.post(there.look_up(address), 1, "x", other);
    move_until({&plain, &there}, [&] { return !there.lost.empty(); });
    EXPECT_TRUE(plain.arrived.empty());
}

TEST(mpi_tls, options_that_make_no_sense_are_refused_with_a_sentence) {
    const auto refusal = [](const char* where) {
        return transport_registry::installed().open(where).sentence();
    };
    EXPECT_TRUE(contains(refusal("mpi+static+tls"), "mpi+static+tls needs credentials"))
        << refusal("mpi+static+tls");
    EXPECT_TRUE(contains(refusal("mpi+static?credentials=node7"), "does not encrypt"))
        << refusal("mpi+static?credentials=node7");
    EXPECT_TRUE(contains(refusal("mpi+static+tls?credentials=/nowhere"), "/nowhere"))
        << refusal("mpi+static+tls?credentials=/nowhere");
}

}  // namespace
}  // namespace amalgam::detail

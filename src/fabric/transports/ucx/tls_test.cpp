// UCX's packets, sealed under keys from the introduction over TLS.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/transport_suite.hpp"
#include "fabric/sealing/crowd_testing.hpp"
#include "fabric/sealing/stopped_testing.hpp"
#include "fabric/sealing/trusted_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"

namespace amalgam::detail {
namespace {

[[maybe_unused]] const testing::Environment* const same_for_all =
    testing::AddGlobalTestEnvironment(new shared_lab_environment);

const conformance::transport_traits over_tls{.registry = [] { return trusted_registry("ucx"); },
                                             .send_garbage = &send_wrong_sealed_introduction};
const bool described = conformance::describe_transport("ucx+tcp+tls", over_tls);

[[maybe_unused]] const bool sealed_over_plain =
    conformance::run_briefly("ucx+tcp+tls://127.0.0.1:0");
INSTANTIATE_TEST_SUITE_P(ucx_tls, transport_suite, testing::Values("ucx+tcp+tls://127.0.0.1:0"));

constexpr const char* local = "ucx+tcp+tls://127.0.0.1:0";

tcp_test_port open_here(const std::string& where = local, const port_options& with = trusting()) {
    return tcp_test_port(transport_registry::installed().open(where, with).value());
}

TEST(ucx_tls, both_ends_know_who_the_other_is) {
    tcp_test_port here = open_here(), there = open_here();
    EXPECT_EQ(here.end->can().transport, "ucx+tls");
    const auto [to, back] = connect(here, there);
    EXPECT_EQ(there.end->who(back).name, "node");
    there.send(back, 1, "answer");
    move_until({&here, &there}, [&] { return !here.arrived.empty(); });
    EXPECT_EQ(here.end->who(to).name, "node");
    EXPECT_EQ(here.end->who(to), there.end->self());
    EXPECT_TRUE(contains(here.end->explain(), "each packet is sealed by ")) << here.end->explain();
}

TEST(ucx_tls, a_thousand_handshakes_at_once_do_not_hold_up_a_connection_that_stands) {
    expect_served_beside_a_thousand_handshakes(
        [](const port_options& with) { return open_here(local, with); });
}

TEST(ucx_tls, a_peer_that_stands_still_holds_nobody_up_and_goes_on_where_it_was) {
    expect_a_stopped_peer_holds_nobody_up(local);
}

TEST(ucx_tls, certificates_made_anew_and_revoked_under_load_hold_for_newcomers_only) {
    expect_reload_and_revocation_under_load(
        [](const port_options& with) { return open_here(local, with); });
}

TEST(ucx_tls, a_caller_of_another_authority_is_denied) {
    const test_lab others;
    tcp_test_port there = open_here(),
                  stranger = open_here("ucx+tcp+tls://lo/", trusting(others.trust));
    tcp_test_port::operation op;
    EXPECT_EQ(stranger.post(stranger.look_up(there.end->address()), 1, "x", op), posted::pending);
    move_until({&stranger, &there}, [&] { return op.over; });
    EXPECT_EQ(op.code, errc::denied);
    EXPECT_TRUE(there.arrived.empty());
}

// Keys do not protect memory from who speaks UCX's protocol at UCX's own sockets.
TEST(ucx_tls, a_port_whose_ucx_sockets_other_hosts_can_reach_opens_only_where_the_wire_is_trusted) {
    for (const char* where : {"ucx+tcp+tls://0.0.0.0:0", "ucx+tcp+tls://"}) {
        EXPECT_TRUE(contains(refusal(where),
                             "other hosts can reach the sockets that UCX opens by "
                             "itself, and whoever speaks its protocol"))
            << refusal(where);
        EXPECT_TRUE(
            contains(refusal(where), std::string("example: ") + where + "?trusted_wire=yes"))
            << refusal(where);
        EXPECT_EQ(refusal(std::string(where) + "?trusted_wire=yes"), "opened");
    }
    for (const char* where : {"ucx+tcp+tls://lo/", "ucx+shm+tls://0.0.0.0:0"})
        EXPECT_EQ(refusal(where), "opened") << where;
    EXPECT_TRUE(contains(refusal("ucx+tcp+tls://lo/", {}), "needs credentials"));
}

TEST(ucx_tls, transfers_between_processes_of_this_host_are_copied_by_the_kernel) {
    tcp_test_port here = open_here("ucx+shm+tls://127.0.0.1:0"),
                  there = open_here("ucx+shm+tls://127.0.0.1:0");
    const auto [to_there, to_here] = connect(here, there);
    EXPECT_TRUE(there.send(to_here, 1, "after the answer to the first question"));
    move_until({&here, &there}, [&] { return !here.arrived.empty(); });
    std::vector<std::byte> far(1 << 20), near(1 << 20, std::byte{3});
    const region target = there.end->open_region(far, access::read_write).value();
    const const_bytes from = near;
    tcp_test_port::operation op;
    EXPECT_EQ(here.end->post_put(to_there, {&from, 1}, target.key(), 0, op), posted::done);
    EXPECT_EQ(far, near);
    EXPECT_EQ(here.end->transfers().direct, 1u);
}

}  // namespace
}  // namespace amalgam::detail

// The suite is worth running only if it detects broken promises: each fault of faulty_port must be
// detected by the test meant for it.

#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "conformance/child_process.hpp"
#include "conformance/faulty_port.hpp"

namespace amalgam::conformance {
namespace {

struct mutation {
    fault which;
    std::string_view noticed_by;
};

constexpr mutation mutations[] = {
    {fault::drops_a_message, "messages_of_one_sender_keep_their_order_whatever_their_size"},
    {fault::doubles_a_message, "messages_of_one_sender_keep_their_order_whatever_their_size"},
    {fault::swaps_two_messages, "messages_of_one_sender_keep_their_order_whatever_their_size"},
    {fault::flips_a_bit, "messages_of_one_sender_keep_their_order_whatever_their_size"},
    {fault::shortens_a_message, "messages_of_one_sender_keep_their_order_whatever_their_size"},
    {fault::forgets_last_piece, "gather_list_arrives_as_one_message"},
    {fault::mixes_tags, "tags_do_not_mix"},
    {fault::delivers_expected_to_sink, "expected_and_unexpected_do_not_mix"},
    {fault::completes_twice, "cancel_twice_completes_once"},
    {fault::completes_inside_post, "messages_of_one_sender_keep_their_order_whatever_their_size"},
    {fault::forgets_canceled, "cancel_twice_completes_once"},
    {fault::writes_after_cancel, "every_kind_canceled_at_any_moment_completes_once_and_lets_go"},
    {fault::says_ok_on_failure, "failure_is_never_done_at_once"},
    {fault::counts_bytes_on_failure, "failure_is_never_done_at_once"},
    {fault::miscounts_open, "open_operations_counts_what_is_pending"},
    {fault::exceeds_budget, "progress_runs_no_more_than_its_budget_and_says_how_many"},
    {fault::forgets_pending_at_end, "end_of_a_port_completes_its_own_and_its_peers_operations"},
    {fault::accepts_any_secret, "refused_key_is_denied_and_touches_nothing"},
    {fault::accepts_any_rights, "refused_key_is_denied_and_touches_nothing"},
    {fault::keeps_closed_regions, "slot_of_a_closed_region_does_not_open_for_its_old_key"},
    {fault::ignores_offset, "put_and_get_of_every_size_move_exactly_their_bytes"},
    {fault::drops_a_notice, "notices_come_once_each_in_order_behind_the_puts_before_them"},
    {fault::adds_twice, "fetch_add_adds_and_tells_what_was_there"},
    {fault::tells_loss_twice, "close_ends_everything_of_that_peer_and_only_that"},
    {fault::never_tells_loss, "nobody_at_the_address_ends_everything_unreachable"},
    {fault::reuses_incarnation, "port_opened_again_at_the_same_address_is_somebody_else"},
    {fault::never_wakes, "ports_in_two_threads_wake_each_other"},
    {fault::always_wakes, "idle_port_is_left_asleep"},
};
static_assert(std::size(mutations) == static_cast<std::size_t>(fault::last_of_all) - 1,
              "every fault needs a test that notices it");

std::string filter_of(std::string_view test) {
    return "faulty/transport_suite." + std::string(test) + "/0";
}

/// Runs these tests of the suite over a port with this fault.
child_process run_suite(fault which, const std::string& filter) {
    ::setenv("AMALGAM_FAULT", std::string(name(which)).c_str(), 1);
    return child_process::run({AMALGAM_FAULTY_TRANSPORT, "--gtest_filter=" + filter});
}

class suite_self_test : public testing::TestWithParam<mutation> {};

TEST_P(suite_self_test, fault_is_noticed) {
    // Gives up early on what never comes; a correct port delivers at once.
    ::setenv("AMALGAM_PATIENCE_SECONDS", "2", 1);
    child_process run = run_suite(GetParam().which, filter_of(GetParam().noticed_by));
    std::string said = run.output();
    EXPECT_NE(run.join(), 0) << "nobody noticed it:\n" << said;
    EXPECT_NE(said.find("[ RUN      ]"), std::string::npos) << "no such test:\n" << said;
}

INSTANTIATE_TEST_SUITE_P(of_every_fault, suite_self_test, testing::ValuesIn(mutations),
                         [](const testing::TestParamInfo<mutation>& each) {
                             return std::string(name(each.param.which));
                         });

TEST(suite_control, right_port_passes_every_test_that_notices_a_fault) {
    std::string filters;
    for (const mutation& each : mutations)
        filters += filter_of(each.noticed_by) + ":";
    child_process run = run_suite(fault::none, filters);
    std::string said = run.output();
    EXPECT_EQ(run.join(), 0) << said;
}

}  // namespace
}  // namespace amalgam::conformance

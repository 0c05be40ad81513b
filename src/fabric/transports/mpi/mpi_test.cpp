#include "conformance/transport_suite.hpp"
#include "fabric/registry/refusal_testing.hpp"

namespace amalgam::detail {
namespace {

using testing_support::refusal;

// Ports of one process not started by mpirun. Between ranks: mpi_ranks_test.
const bool described =
    conformance::describe_transport("mpi+static", {.stays_within_process = true});

INSTANTIATE_TEST_SUITE_P(mpi, transport_suite, testing::Values("mpi+static"));

TEST(mpi, dynamic_is_refused_with_what_to_do_instead) {
    EXPECT_EQ(transport_registry::installed().open("mpi+dynamic").code(), errc::unsupported);
    EXPECT_NE(refusal("mpi+dynamic").find("expected mpi+static under mpirun"), std::string::npos)
        << refusal("mpi+dynamic");
}

TEST(mpi, rank_of_another_process_cannot_be_opened) {
    EXPECT_NE(refusal("mpi+static://7").find("rank 7 is another process"), std::string::npos)
        << refusal("mpi+static://7");
}

TEST(mpi, other_ranks_without_mpirun_are_refused_with_how_to_start) {
    auto alone = transport_registry::installed().open("mpi+static");
    ASSERT_TRUE(alone) << alone.sentence();
    EXPECT_FALSE(alone.value()->can().between_processes);
    const auto other = alone.value()->lookup("mpi+static://1");
    EXPECT_EQ(other.code(), errc::invalid);
    EXPECT_NE(other.sentence().find("mpirun -n 2"), std::string::npos) << other.sentence();
}

TEST(mpi, number_of_a_port_can_be_chosen_once) {
    const transport_registry all = transport_registry::installed();
    auto chosen = all.open("mpi+static://0:7");
    ASSERT_TRUE(chosen) << chosen.sentence();
    EXPECT_EQ(chosen.value()->address(), "mpi+static://0:7");
    const auto again = all.open("mpi+static://0:7");
    EXPECT_EQ(again.code(), errc::in_use);
    EXPECT_NE(again.sentence().find("port 7 of this rank is in use"), std::string::npos)
        << again.sentence();
}

}  // namespace
}  // namespace amalgam::detail

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/child_process.hpp"

namespace amalgam::conformance {
namespace {

/// Output of mpi_ranks under mpirun.
std::string three_ranks(const char* mode, std::vector<std::string> more = {}) {
    // Required by mpirun for root, as in containers.
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    std::vector<std::string> command{"mpirun", "-n", "3", "--oversubscribe"};
    command.insert(command.end(), more.begin(), more.end());
    command.insert(command.end(), {AMALGAM_MPI_RANKS, mode});
    return child_process::run(command).output();
}

TEST(mpi_ranks, talk_all_at_once_in_messages_of_every_size_and_transfers) {
    const std::string output = three_ranks("talk");
    for (const char* rank : {"0", "1", "2"})
        EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos) << output;
}

TEST(mpi_ranks, call_each_other_and_move_bulks) {
    const std::string output = three_ranks("call");
    for (const char* rank : {"0", "1", "2"})
        EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos) << output;
}

TEST(mpi_ranks, death_of_one_is_told_to_the_others_where_mpirun_lets_them_live) {
    const std::string output = three_ranks("lose", {"--enable-recovery"});
    for (const char* rank : {"0", "1"})
        EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos) << output;
    EXPECT_EQ(output.find("rank 2 is content"), output.npos) << output;
}

TEST(mpi_ranks, death_of_one_while_all_end_holds_nobody_up) {
    const std::string output = three_ranks("vanish", {"--enable-recovery"});
    for (const char* rank : {"0", "1"})
        EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos) << output;
}

}  // namespace
}  // namespace amalgam::conformance

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/key_folder.hpp>

#include "conformance/child_process.hpp"
#include "temp_folder.hpp"

namespace amalgam::conformance {
namespace {

/// Output of mpi_ranks under mpirun, with `keys` if any.
std::string three_ranks(const char* mode, std::vector<std::string> more = {},
                        const std::string& keys = {}) {
    // Required by mpirun for root, as in containers.
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    std::vector<std::string> command{"mpirun", "-n", "3", "--oversubscribe"};
    command.insert(command.end(), more.begin(), more.end());
    command.insert(command.end(), {AMALGAM_MPI_RANKS, mode});
    if (!keys.empty()) command.push_back(keys);
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

TEST(mpi_ranks, one_that_stands_still_loses_its_calls_holds_up_no_others_and_gets_nothing_twice) {
    const std::string output = three_ranks("stop");
    for (const char* rank : {"0", "1", "2"})
        EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos) << output;
}

/// A key that all ranks have.
struct keys_of_ranks : temp_folder {
    keys_of_ranks() { make_key(all, {.name = "ranks", .shared = true}); }
    const std::string all = with("ranks");
};

TEST(mpi_ranks, over_tls_talk_call_and_move_bulks_as_without) {
    const keys_of_ranks keys;
    for (const char* mode : {"talk", "call"}) {
        const std::string output = three_ranks(mode, {}, keys.all);
        for (const char* rank : {"0", "1", "2"})
            EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos)
                << mode << ": " << output;
    }
}

TEST(mpi_ranks, over_tls_one_that_stands_still_loses_its_calls_and_gets_nothing_twice) {
    const keys_of_ranks keys;
    const std::string output = three_ranks("stop", {}, keys.all);
    for (const char* rank : {"0", "1", "2"})
        EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos) << output;
}

TEST(mpi_ranks, one_with_the_key_of_another_run_is_denied_and_the_log_says_why) {
    const std::string output = three_ranks("strange");
    for (const char* rank : {"0", "1", "2"})
        EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos) << output;
    EXPECT_NE(output.find("no TLS with mpi+static+tls://"), output.npos) << output;
    EXPECT_NE(output.find("its key is not among the trusted ones"), output.npos) << output;
}

TEST(mpi_ranks, over_tls_death_of_one_is_told_to_the_others_and_holds_nobody_up) {
    const keys_of_ranks keys;
    for (const char* mode : {"lose", "vanish"}) {
        const std::string output = three_ranks(mode, {"--enable-recovery"}, keys.all);
        for (const char* rank : {"0", "1"})
            EXPECT_NE(output.find(std::string("rank ") + rank + " is content"), output.npos)
                << mode << ": " << output;
    }
}

}  // namespace
}  // namespace amalgam::conformance

// Groups that send invalid control messages: the run ends, and says why.
#include "contains.hpp"
#include "flow/launcher/launcher_testing.hpp"

namespace amalgam {
namespace {

class hostile_control_line : public launcher {
protected:
    void expect_failure(const std::string& what, const std::string& why) {
        const outcome got = run({"says", what}, {"--stats"});
        EXPECT_NE(got.code, 0) << what;
        EXPECT_TRUE(contains(got.output, why)) << what << ": " << got.output;
    }
};

TEST_F(hostile_control_line, of_what_is_no_message_ends_the_run) {
    expect_failure("nonsense", "wrote an invalid message to its control socket");
}

TEST_F(hostile_control_line, without_a_line_end_ends_the_run) {
    expect_failure("endless",
                   "an invalid message to its control socket (a line of more than 8 MiB)");
}

TEST_F(hostile_control_line, that_says_more_and_more_keeps_nobody_waiting) {
    expect_failure("much", "did not start its part of the graph within 0.2 s");
}

TEST_F(hostile_control_line, with_an_absurd_address_ends_the_run) {
    expect_failure("far", "reported an address of 100000 bytes");
}

TEST_F(hostile_control_line, with_a_key_that_is_none_ends_the_run) {
    expect_failure("key", "reported no key: the key fingerprint \"zz\" is not 64 hexadecimal");
}

TEST_F(hostile_control_line, with_a_negative_limit_sets_none) {
    const outcome got = run({"says", "late"});
    EXPECT_EQ(got.code, 2);
    EXPECT_TRUE(contains(got.output, "built different graphs")) << got.output;
}

}  // namespace
}  // namespace amalgam

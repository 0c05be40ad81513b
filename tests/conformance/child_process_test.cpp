#include "conformance/child_process.hpp"

#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace amalgam::conformance {
namespace {

bool is_there(pid_t pid) {
    return ::kill(pid, 0) == 0;
}

int idle_for_ever(channel&) {
    for (;;)
        ::pause();
}

TEST(child_process, exit_code_is_what_the_body_returned) {
    child_process child([](channel&) { return 7; });
    EXPECT_EQ(child.join(), 7);
}

TEST(child_process, exception_of_the_body_is_an_exit_code_of_its_own) {
    child_process child([](channel&) -> int { throw std::runtime_error("on purpose"); });
    EXPECT_EQ(child.join(), 125);
}

TEST(child_process, failed_expectation_of_the_body_is_exit_code_1) {
    child_process child([](channel&) {
        ADD_FAILURE() << "on purpose";
        return 0;
    });
    EXPECT_EQ(child.join(), 1);
}

TEST(child_process, failure_of_the_parent_is_not_the_childs) {
    // The inner child's parent has failed; it reports the inner child's result.
    child_process failed([](channel& parent) {
        ADD_FAILURE() << "on purpose";
        child_process inner([](channel&) { return 0; });
        parent.say(std::to_string(inner.join()));
        return 0;
    });
    EXPECT_EQ(failed.line().hear(), "0");
}

TEST(child_process, texts_arrive_whole_and_in_order_also_empty_ones) {
    child_process child([](channel& parent) {
        for (std::string text = parent.hear(); text != "stop"; text = parent.hear())
            parent.say("heard " + text);
        return 0;
    });
    child.line().say("one");
    child.line().say("");
    child.line().say(std::string(channel::max_bytes - 6, 'x'));
    EXPECT_EQ(child.line().hear(), "heard one");
    EXPECT_EQ(child.line().hear(), "heard ");
    EXPECT_EQ(child.line().hear().size(), channel::max_bytes);
    child.line().say("stop");
    EXPECT_EQ(child.join(), 0);
    EXPECT_THROW(child.line().hear(), std::runtime_error);
}

TEST(child_process, nothing_said_is_nothing_overheard) {
    child_process child(idle_for_ever);
    EXPECT_EQ(child.line().overhear(), std::nullopt);
}

TEST(child_process, end_of_the_object_is_the_end_of_the_process) {
    pid_t pid = -1;
    {
        child_process child(idle_for_ever);
        pid = child.pid();
        EXPECT_TRUE(is_there(pid));
    }
    EXPECT_FALSE(is_there(pid));
}

TEST(child_process, killed_child_says_by_which_signal) {
    child_process child(idle_for_ever);
    child.kill();
    EXPECT_EQ(child.join(), 128 + SIGKILL);
}

TEST(child_process, frozen_child_goes_on_when_thawed) {
    child_process child([](channel& parent) {
        parent.say(parent.hear());
        return 0;
    });
    child.freeze();
    child.line().say("hello");
    EXPECT_EQ(child.line().overhear(), std::nullopt);
    child.thaw();
    EXPECT_EQ(child.line().hear(), "hello");
}

TEST(child_process, grandchild_dies_with_the_child) {
    child_process child([](channel& parent) {
        child_process grandchild(idle_for_ever);
        parent.say(std::to_string(grandchild.pid()));
        return idle_for_ever(parent);
    });
    pid_t grandchild = std::stoi(child.line().hear());
    child.kill();
    // Adopted by init or a reaper: it may be a zombie for a moment.
    while (is_there(grandchild)) {
        std::string stat = "/proc/" + std::to_string(grandchild) + "/stat";
        unique_fd file(::open(stat.c_str(), O_RDONLY));
        char text[256] = {};
        if (::read(file.get(), text, sizeof text - 1) <= 0) break;
        if (std::string(text).find(") Z ") != std::string::npos) break;
    }
}

TEST(child_process, descriptors_of_the_parent_are_not_inherited) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    unique_fd reads(ends[0]);
    unique_fd writes(ends[1]);
    child_process child(idle_for_ever);
    writes.reset();
    char byte;
    EXPECT_EQ(::read(reads.get(), &byte, 1), 0) << "the child still holds the other end";
}

TEST(child_process, program_gives_its_output_and_exit_code) {
    child_process program = child_process::run({"sh", "-c", "echo out; echo err >&2; exit 3"});
    EXPECT_EQ(program.output(), "out\nerr\n");
    EXPECT_EQ(program.join(), 3);
}

TEST(child_process, program_that_does_not_exist_ends_with_127) {
    EXPECT_EQ(child_process::run({"no-such-program-anywhere"}).join(), 127);
}

}  // namespace
}  // namespace amalgam::conformance

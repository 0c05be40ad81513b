// The remote end of a run over ssh, without ssh.
#include <cstdlib>
#include <optional>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "flow/launcher/remote_frames.hpp"
#include "flow/run/reports_testing.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

/// An agent whose output nobody reads. Its process prints more than a pipe holds, and ends.
class unread_agent : public testing::Test {
protected:
    void SetUp() override {
        for (const char* name : {"/in", "/out"})
            ASSERT_EQ(::mkfifo((folder_ + name).c_str(), 0600), 0);
        reports_.emplace(folder_ + "/fifo");
    }
    void TearDown() override { reports_.reset(); }

    conformance::child_process start(std::size_t silence_ms) {
        auto agent = conformance::child_process::run(
            {"sh", "-c", "exec \"$1\" run --agent < \"$2/in\" > \"$2/out\"", "sh", AMALGAM_TOOL,
             folder_});
        in_.reset(::open((folder_ + "/in").c_str(), O_WRONLY | O_CLOEXEC));
        out_.reset(::open((folder_ + "/out").c_str(), O_RDONLY | O_CLOEXEC));
        remote_start asked;
        asked.folder = folder_;
        asked.config = R"({"groups": {"G1": {"endpoint": "shm://"}}})";
        asked.group = "G1";
        asked.silence_ms = silence_ms;
        asked.command = {"sh", "-c", "exec 3> fifo; echo G1 1 >&3; head -c 600000 /dev/zero"};
        asked.environment = {"PATH=/usr/bin:/bin"};
        output_queue frames(in_.get());
        add_frame(frames, remote_frame_kind::start, encode(asked));
        while (!frames.empty())
            frames.write_some();
        reports_->wait_for(1);
        reports_->wait_until_nothing_is_left();
        return agent;
    }

    const temp_folder own_;
    const std::string folder_ = own_.path();
    std::optional<test_reports> reports_;
    unique_fd in_, out_;
};

TEST_F(unread_agent, greets_its_launcher_before_anything_else) {
    auto agent = start(3600 * 1000);
    std::string begin(remote_greeting.size(), '\0');
    std::size_t got = 0;
    while (got < begin.size()) {
        const ::ssize_t more = ::read(out_.get(), begin.data() + got, begin.size() - got);
        ASSERT_GT(more, 0);
        got += static_cast<std::size_t>(more);
    }
    EXPECT_EQ(begin, remote_greeting);
    in_.reset();
    agent.join();
}

TEST_F(unread_agent, ends_when_the_launcher_is_gone) {
    auto agent = start(3600 * 1000);
    in_.reset();
    agent.join();
}

TEST_F(unread_agent, ends_when_the_launcher_is_silent) {
    auto agent = start(300);
    agent.join();
}

}  // namespace
}  // namespace amalgam::detail

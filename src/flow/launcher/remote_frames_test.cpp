#include "flow/launcher/remote_frames.hpp"

#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {
namespace {

/// The bytes of the frames that `add` puts into a queue.
template <typename Add>
std::string bytes_of(Add add) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    unique_fd from(ends[0]), to(ends[1]);
    output_queue queue(to.get());
    add(queue);
    std::string bytes;
    char piece[4096];
    while (!queue.empty()) {
        queue.write_some();
        bytes.append(piece, static_cast<std::size_t>(::read(from.get(), piece, sizeof piece)));
    }
    return bytes;
}

TEST(remote_frames, arrive_as_they_were_sent_however_they_are_cut) {
    const std::string text("any\0bytes\n\xff", 11), large(70000, 'x');
    const std::string bytes = bytes_of([&](output_queue& queue) {
        add_frame(queue, remote_frame_kind::out, text);
        add_frame(queue, remote_frame_kind::alive, "");
        add_frame(queue, remote_frame_kind::err, large);
    });
    remote_frame_reader reader;
    std::vector<remote_frame> got;
    for (char one : bytes) {
        reader.feed({&one, 1});
        while (auto next = reader.next())
            got.push_back(*next);
    }
    ASSERT_EQ(got.size(), 3u);
    EXPECT_EQ(got[0].kind, remote_frame_kind::out);
    EXPECT_EQ(got[0].bytes, text);
    EXPECT_EQ(got[1].kind, remote_frame_kind::alive);
    EXPECT_EQ(got[1].bytes, "");
    EXPECT_EQ(got[2].bytes, large);
}

TEST(remote_frames, what_a_login_prints_before_the_greeting_is_skipped) {
    remote_frame_reader reader(remote_greeting);
    reader.feed("Welcome to node7\n");
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.greeted());
    reader.feed(std::string(remote_greeting) + bytes_of([](output_queue& queue) {
                    add_frame(queue, remote_frame_kind::ended, "0");
                }));
    auto next = reader.next();
    ASSERT_TRUE(next);
    EXPECT_EQ(next->bytes, "0");
    EXPECT_TRUE(reader.greeted());
    EXPECT_FALSE(reader.nonsense());
}

TEST(remote_frames, other_bytes_are_nonsense_and_no_frame) {
    for (const std::string& bytes :
         {std::string("hello world"), std::string("\0\xff\xff\xff\xff", 5)}) {
        remote_frame_reader reader;
        reader.feed(bytes);
        EXPECT_FALSE(reader.next());
        EXPECT_TRUE(reader.nonsense());
    }
}

TEST(remote_start, arrives_as_it_was_sent) {
    const remote_start sent{.folder = "/a b",
                            .config = R"({"groups": {}})",
                            .group = "G1",
                            .replica = 3,
                            .silence_ms = 500,
                            .command = {"./program", "", "two words\n"},
                            .environment = {"A=1", "B="}};
    const auto got = decode_remote_start(encode(sent));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->folder, sent.folder);
    EXPECT_EQ(got->config, sent.config);
    EXPECT_EQ(got->group, sent.group);
    EXPECT_EQ(got->replica, 3u);
    EXPECT_EQ(got->silence_ms, 500u);
    EXPECT_EQ(got->command, sent.command);
    EXPECT_EQ(got->environment, sent.environment);
}

TEST(remote_start, that_is_cut_is_none) {
    const std::string bytes = encode(remote_start{.folder = "/",
                                                  .config = "{}",
                                                  .group = "G",
                                                  .replica = 0,
                                                  .silence_ms = 1,
                                                  .command = {"program", "argument"},
                                                  .environment = {}});
    for (std::size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(decode_remote_start(bytes.substr(0, length))) << length;
}

TEST(carried_environment, leaves_out_what_a_login_sets_itself) {
    const char* all[] = {
        "PATH=/bin", "HOME=/root", "SSH_AUTH_SOCK=/x", "HOMEWORK=1", "XDG_RUNTIME_DIR=/run",
        "EMPTY=",    nullptr};
    EXPECT_EQ(carried_environment(all),
              (std::vector<std::string>{"PATH=/bin", "HOMEWORK=1", "EMPTY="}));
}

}  // namespace
}  // namespace amalgam::detail

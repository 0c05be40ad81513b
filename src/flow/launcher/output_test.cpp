#include "flow/launcher/output.hpp"

#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

#include "flow/limits.hpp"

namespace amalgam::detail {
namespace {

/// The output of a queue filled by `feed`.
template <typename Feed>
std::string shown(Feed feed) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    unique_fd from(ends[0]), to(ends[1]);
    output_queue queue(to.get());
    feed(queue);
    std::string text;
    char piece[4096];
    while (!queue.empty()) {
        queue.write_some();
        text.append(piece, static_cast<std::size_t>(::read(from.get(), piece, sizeof piece)));
    }
    return text;
}

TEST(line_prefixer, labels_every_line_however_it_arrives) {
    std::string text = "one\n\ntwo\nthree";
    std::string whole = shown([&](output_queue& queue) {
        line_prefixer lines("G1");
        lines.feed(text, queue);
        lines.finish(queue);
    });
    EXPECT_EQ(whole, "[G1] one\n[G1] \n[G1] two\n[G1] three\n");
    std::string pieces = shown([&](output_queue& queue) {
        line_prefixer lines("G1");
        for (char c : text)
            lines.feed({&c, 1}, queue);
        lines.finish(queue);
    });
    EXPECT_EQ(pieces, whole);
}

TEST(line_prefixer, lines_of_two_processes_never_mix) {
    EXPECT_EQ(shown([](output_queue& queue) {
                  line_prefixer a("A"), b("B");
                  a.feed("begin", queue);
                  b.feed("other\n", queue);
                  a.feed(" end\n", queue);
              }),
              "[B] other\n[A] begin end\n");
}

TEST(line_prefixer, without_a_label_shows_nothing) {
    output_queue queue(-1);
    line_prefixer lines("");
    lines.feed("text\n", queue);
    lines.finish(queue);
    EXPECT_TRUE(queue.empty());
}

TEST(line_prefixer, cuts_a_line_that_never_ends) {
    std::string endless(limits::max_line_bytes + 10, 'x');
    std::string out = shown([&](output_queue& queue) {
        line_prefixer lines("G");
        lines.feed(endless, queue);
        lines.finish(queue);
    });
    EXPECT_EQ(out, "[G] " + endless.substr(10) + "\n[G] xxxxxxxxxx\n");
}

TEST(output_queue, a_reader_that_is_gone_makes_output_vanish) {
    output_queue queue(-1);
    queue.add("text");
    queue.write_some();
    EXPECT_TRUE(queue.empty());
    queue.add("more");
    EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace amalgam::detail

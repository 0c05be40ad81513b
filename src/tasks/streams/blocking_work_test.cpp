#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/tasks.hpp>

// Calls that block their thread, from ULTs whose stream must go on: docs/guide/from_mochi.md.

namespace am = amalgam;

namespace {

/// Both ends of a pipe.
struct pipe_ends {
    pipe_ends() { EXPECT_EQ(::pipe(fds.data()), 0); }
    ~pipe_ends() {
        ::close(fds[0]);
        ::close(fds[1]);
    }
    std::array<int, 2> fds{};
};

}  // namespace

TEST(blocking_work, a_read_that_blocks_on_a_stream_of_its_own_parks_its_caller_only) {
    const pipe_ends pipe;
    am::event begun;
    const auto load = [&](std::array<char, 8>& to) {
        begun.set();
        return ::read(pipe.fds[0], to.data(), to.size());
    };
    am::execution_stream stream, disk({.name = "disk"});
    std::array<char, 8> bytes{};
    ssize_t got = -1;
    am::ult reader = am::spawn(stream, [&] {
        am::spawn(disk, [&] { got = load(bytes); }).join();
        EXPECT_EQ(am::execution_stream::current(), &stream) << "it goes on where it was";
    });
    begun.wait();
    // Only if `stream` is free does anybody write what the reader waits for.
    am::spawn(stream, [&] { EXPECT_EQ(::write(pipe.fds[1], "abc", 3), 3); }).join();
    reader.join();
    EXPECT_EQ(std::string_view(bytes.data(), static_cast<std::size_t>(got)), "abc");
}

TEST(blocking_work, as_many_calls_block_at_once_as_streams_serve_the_pool) {
    const pipe_ends first, second;
    am::shared_fifo_pool io;
    const auto serves_io = [&io] {
        return std::make_unique<am::basic_scheduler>(std::vector<am::pool*>{&io});
    };
    am::execution_stream disk_1(serves_io()), disk_2(serves_io());
    char a = 0, b = 0;
    am::ult one = am::spawn(io, [&] { EXPECT_EQ(::read(first.fds[0], &a, 1), 1); });
    am::ult two = am::spawn(io, [&] { EXPECT_EQ(::read(second.fds[0], &b, 1), 1); });
    // The second first: with one stream, its read would not have begun.
    EXPECT_EQ(::write(second.fds[1], "2", 1), 1);
    two.join();
    EXPECT_EQ(::write(first.fds[1], "1", 1), 1);
    one.join();
    EXPECT_EQ(a, '1');
    EXPECT_EQ(b, '2');
}

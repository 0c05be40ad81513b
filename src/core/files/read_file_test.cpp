#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(read_file, gives_all_of_a_file_up_to_the_limit) {
    const temp_folder own;
    const std::string path = own.with("file");
    for (const std::size_t size : {0u, 1u, 65535u, 65536u, 65537u, 300000u}) {
        std::string text(size, 'x');
        if (size > 0) text.back() = 'y';
        std::ofstream(path, std::ios::binary) << text;
        EXPECT_EQ(text_of(read_file(path, size).value()), text);
        EXPECT_EQ(text_of(read_file(path, 1 << 20).value()), text);
        if (size == 0) continue;
        const auto longer = read_file(path, size - 1);
        EXPECT_EQ(longer.code(), errc::invalid) << size;
        EXPECT_EQ(longer.sentence().find("is longer than "), 0u) << longer.sentence();
    }
}

TEST(read_file, ends_at_the_limit_of_what_has_no_end) {
    EXPECT_EQ(read_file("/dev/zero", 1000).sentence(), "is longer than 1000 bytes");
    const auto zeros = read_file("/dev/zero", std::size_t{3} << 20);
    EXPECT_EQ(zeros.code(), errc::invalid);
    EXPECT_EQ(zeros.sentence(), "is longer than 3 MiB");
}

TEST(read_file, gives_what_is_in_a_file_that_says_no_size) {
    EXPECT_FALSE(read_file("/proc/self/cmdline", 1 << 20).value().empty());
}

TEST(read_into, fills_the_room_or_ends_with_the_file) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const unique_fd from(ends[0]);
    unique_fd to(ends[1]);
    std::vector<std::byte> room(10);
    // In two parts, of which the first does not end it.
    std::thread writer([&] {
        EXPECT_EQ(::write(to.get(), "abcdef", 6), 6);
        EXPECT_EQ(::write(to.get(), "ghijklm", 7), 7);
        to.reset();
    });
    EXPECT_EQ(read_into(from.get(), room), 10u);
    EXPECT_EQ(text_of(room), "abcdefghij");
    EXPECT_EQ(read_into(from.get(), room), 3u) << "its end";
    EXPECT_EQ(text_of(room), "klmdefghij");
    EXPECT_EQ(read_into(from.get(), room), 0u);
    writer.join();
    errno = 0;
    EXPECT_EQ(read_into(-1, room), std::nullopt);
    EXPECT_EQ(errno, EBADF);
}

TEST(read_file, says_why_it_cannot) {
    const auto none = read_file("no/such/file", 10);
    EXPECT_EQ(none.code().code, errc::not_found);
    EXPECT_EQ(none.sentence(), "cannot be read (No such file or directory)");
    const auto folder = read_file(testing::TempDir(), 10);
    EXPECT_EQ(folder.code().code, errc::not_found);
    EXPECT_EQ(folder.sentence(), "cannot be read (Is a directory)");
}

}  // namespace
}  // namespace amalgam::detail

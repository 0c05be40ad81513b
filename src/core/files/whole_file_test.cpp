#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/detail/whole_file.hpp>

#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

namespace files = std::filesystem;

class written_files : public testing::Test {
protected:
    /// Returns errno.
    int write(const std::string& name, const std::string& text, const file_writing& how = {}) {
        return write_whole_file(folder.with(name), as_bytes_of(text), how).native;
    }
    std::string content(const std::string& name) const {
        std::ifstream from(folder.with(name));
        return {std::istreambuf_iterator(from), {}};
    }
    unsigned mode(const std::string& name) const {
        struct stat about = {};
        EXPECT_EQ(::stat(folder.with(name).c_str(), &about), 0);
        return about.st_mode & 07777;
    }
    void set_mode(const std::string& name, unsigned mode) const {
        EXPECT_EQ(::chmod(folder.with(name).c_str(), mode), 0);
    }
    auto count() const { return std::distance(files::directory_iterator(folder.path()), {}); }

    const temp_folder folder;
};

TEST_F(written_files, replace_the_one_that_is_there_unless_told_not_to) {
    EXPECT_EQ(write("file", "first", {.replaces = false}), 0);
    EXPECT_EQ(content("file"), "first");
    EXPECT_EQ(write("file", "second", {.replaces = false}), EEXIST);
    EXPECT_EQ(content("file"), "first");
    EXPECT_EQ(write("file", ""), 0);
    EXPECT_EQ(content("file"), "");
    EXPECT_EQ(count(), 1);
}

TEST_F(written_files, have_the_mode_of_the_umask_the_one_told_or_that_of_the_file_before) {
    const ::mode_t before = ::umask(027);
    EXPECT_EQ(write("usual", "x"), 0);
    EXPECT_EQ(write("private", "x", {.mode = 0600}), 0);
    EXPECT_EQ(write("exact", "x", {.mode = 0666, .has_exact_mode = true}), 0);
    EXPECT_EQ(write("kept", "x", {.keeps_mode = true}), 0);
    EXPECT_EQ(mode("kept"), 0640u) << "there was none before";
    set_mode("kept", 0604);
    EXPECT_EQ(write("kept", "y", {.keeps_mode = true}), 0);
    ::umask(before);
    EXPECT_EQ(mode("usual"), 0640u);
    EXPECT_EQ(mode("private"), 0600u);
    EXPECT_EQ(mode("exact"), 0666u);
    EXPECT_EQ(mode("kept"), 0604u);
}

TEST_F(written_files, take_the_place_of_a_link_or_of_what_it_leads_to) {
    folder.with("file", "before");
    files::create_symlink("file", folder.with("link"));
    files::create_symlink("fresh", folder.with("ahead"));
    files::create_symlink("loop", folder.with("loop"));
    const file_writing following{.follows_links = true};
    EXPECT_EQ(write("link", "through", following), 0);
    EXPECT_EQ(write("ahead", "new", following), 0);
    EXPECT_EQ(write("loop", "x", following), ELOOP);
    EXPECT_TRUE(files::is_symlink(folder.with("link")));
    EXPECT_EQ(content("file"), "through");
    EXPECT_EQ(content("fresh"), "new");
    EXPECT_EQ(write("link", "instead"), 0);
    EXPECT_FALSE(files::is_symlink(folder.with("link")));
    EXPECT_EQ(content("file"), "through");
    EXPECT_EQ(count(), 5);
}

TEST_F(written_files, replace_write_or_refuse_what_is_no_file) {
    const std::string fifo = folder.with("fifo");
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    const auto refused =
        write_whole_file(fifo, as_bytes_of("x"), {.special = special_file::refused});
    EXPECT_TRUE(refused);
    EXPECT_EQ(refused.text, "it is no regular file");
    std::string got;
    std::thread reader([&] { std::getline(std::ifstream(fifo), got); });
    EXPECT_EQ(write("fifo", "line\n", {.special = special_file::written}), 0);
    reader.join();
    EXPECT_EQ(got, "line");
    EXPECT_TRUE(files::is_fifo(fifo));
    EXPECT_EQ(write("fifo", "x"), 0);
    EXPECT_TRUE(files::is_regular_file(fifo));
    EXPECT_EQ(
        write_whole_file("/dev/full", as_bytes_of("x"), {.special = special_file::written}).native,
        ENOSPC);
    for (const special_file each :
         {special_file::replaced, special_file::written, special_file::refused})
        EXPECT_EQ(write(".", "x", {.special = each}),
                  each == special_file::replaced ? EBUSY : EISDIR);
    EXPECT_EQ(write("nowhere/file", "x"), ENOENT);
    EXPECT_EQ(count(), 1);
}

TEST_F(written_files, leave_what_was_there_if_they_cannot_be_whole) {
    folder.with("file", "before");
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit few{10, before.rlim_max};
    const auto handler = ::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
    EXPECT_EQ(write("file", "longer than that"), EFBIG);
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    ::signal(SIGXFSZ, handler);
    EXPECT_EQ(content("file"), "before");
    EXPECT_EQ(count(), 1);
}

TEST_F(written_files, that_are_alone_remove_what_was_left_and_others_do_not) {
    folder.with("file.new", "left");
    EXPECT_EQ(write("file", "one"), 0);
    EXPECT_EQ(content("file.new"), "left");
    EXPECT_EQ(write("file", "two", {.is_alone = true}), 0);
    EXPECT_EQ(content("file"), "two");
    EXPECT_EQ(count(), 1);
}

TEST_F(written_files, that_have_no_place_yet_are_not_there_and_go_with_their_owner) {
    folder.with("file", "before");
    {
        whole_file file(folder.with("file"));
        EXPECT_FALSE(file.write(as_bytes_of("after")));
        EXPECT_FALSE(file.prepare());
        EXPECT_EQ(content("file"), "before");
    }
    EXPECT_EQ(count(), 1);
}

}  // namespace
}  // namespace amalgam::detail

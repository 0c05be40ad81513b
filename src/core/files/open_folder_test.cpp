#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <amalgam/core/detail/open_folder.hpp>

#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

namespace files = std::filesystem;

class folders_above : public testing::Test {
protected:
    folders_above() {
        files::create_directories(b);
        (void)own.with("a/b/file", "x");
    }
    std::string found(const std::string& path) {
        const auto open = open_folder_above(path);
        return open ? open->path : "none";
    }

    const temp_folder own;
    const std::string a = own.with("a/"), b = own.with("a/b/"), file = own.with("a/b/file");
};

TEST_F(folders_above, are_open_if_everybody_may_write_and_replace_there) {
    EXPECT_EQ(found(file), "none");
    for (const std::string& each : {b, a}) {
        ::chmod(each.c_str(), 0777);
        EXPECT_EQ(found(file), each);
        EXPECT_EQ(found(b + "not_there"), each);
        EXPECT_EQ(open_folder_above(file)->mode, 0777u);
        ::chmod(each.c_str(), 01777);
        EXPECT_EQ(found(file), "none") << "as in /tmp";
        ::chmod(each.c_str(), 0775);
        EXPECT_EQ(found(file), "none") << "a group is some, who are meant";
    }
}

TEST_F(folders_above, are_those_behind_links_too) {
    files::create_directory(own.with("c"));
    files::create_symlink(file, own.with("c/to_file"));
    files::create_symlink(b, own.with("c/to_b"));
    EXPECT_EQ(found(own.with("c/to_file")), "none");
    ::chmod(a.c_str(), 0777);
    EXPECT_EQ(found(own.with("c/to_file")), a);
    EXPECT_EQ(found(own.with("c/to_b/file")), a);
    EXPECT_EQ(found(own.with("c/to_b/not_there")), a);
    ::chmod(a.c_str(), 0755);
    // And those that the links are in.
    ::chmod(own.with("c").c_str(), 0777);
    EXPECT_EQ(found(own.with("c/to_b/file")), own.with("c/"));
    EXPECT_EQ(found(file), "none");
}

TEST_F(folders_above, are_found_from_the_current_one) {
    const in_folder here(b);
    EXPECT_EQ(found("file"), "none");
    ::chmod(a.c_str(), 0777);
    EXPECT_EQ(found("file"), a);
    EXPECT_EQ(found("./file"), a);
    EXPECT_EQ(found("../b/file"), b + "../") << "which is a";
}

}  // namespace
}  // namespace amalgam::detail

#include <cerrno>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/core/detail/absolute_path.hpp>

#include "contains.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

namespace files = std::filesystem;

TEST(absolute_path, names_the_same_file_in_another_folder) {
    const temp_folder own;
    std::string path;
    {
        const in_folder here(own.path());
        path = absolute_path("./file").value();
        (void)own.with("file", "x");
        EXPECT_TRUE(files::is_regular_file("file"));
    }
    EXPECT_TRUE(files::is_regular_file(path));
    EXPECT_TRUE(path.ends_with("/./file")) << path;
    EXPECT_EQ(absolute_path("/a/../b").value(), "/a/../b") << "which a link may make another";
    EXPECT_EQ(absolute_path("").value(), "") << "no file stays none";
}

TEST(absolute_path, cannot_be_made_in_a_folder_that_is_gone) {
    const temp_folder own;
    const std::string gone = own.with("gone");
    files::create_directory(gone);
    const in_folder there(gone);
    files::remove(gone);
    const auto none = absolute_path("../file");
    EXPECT_EQ(none.code(), errc::not_found);
    EXPECT_EQ(none.code().native, ENOENT);
    EXPECT_TRUE(contains(none.sentence(), "\"../file\" cannot be found again")) << none.sentence();
    EXPECT_TRUE(contains(none.sentence(), "example: /srv/file")) << none.sentence();
    EXPECT_EQ(absolute_path("/file").value(), "/file");
    EXPECT_EQ(absolute_path("").value(), "");
}

}  // namespace
}  // namespace amalgam::detail

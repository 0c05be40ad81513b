#include "directory/server/record.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

class kept_record : public testing::Test {
protected:
    const temp_folder own_;
    const std::string folder_ = own_.with("record");
    const directory_record record_{folder_};
    const std::vector<std::string> how_{"shm://amalgam-directory", "--join", "tcp://a b:1", ""};
};

TEST_F(kept_record, says_what_was_kept_until_it_is_forgotten) {
    EXPECT_FALSE(record_.read());
    record_.keep({"x"});
    record_.keep(how_);
    const auto got = record_.read();
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, how_);
    record_.forget();
    EXPECT_FALSE(record_.read());
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(kept_record, is_for_its_user_alone) {
    const mode_t before = ::umask(0);
    record_.keep(how_);
    ::umask(before);
    for (const std::string& path : {folder_, folder_ + "/directory"}) {
        struct stat its {};
        ASSERT_EQ(::stat(path.c_str(), &its), 0);
        EXPECT_EQ(its.st_mode & 077, 0u) << path;
    }
}

TEST_F(kept_record, that_others_could_have_written_is_not_believed) {
    record_.keep(how_);
    ASSERT_EQ(::chmod((folder_ + "/directory").c_str(), 0620), 0);
    EXPECT_FALSE(record_.read());
    ASSERT_EQ(::chmod((folder_ + "/directory").c_str(), 0600), 0);
    EXPECT_TRUE(record_.read());
    ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
    EXPECT_FALSE(record_.read());
    EXPECT_THROW(record_.keep(how_), error);
    ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
    std::filesystem::rename(folder_ + "/directory", folder_ + "/other");
    std::filesystem::create_symlink("other", folder_ + "/directory");
    EXPECT_FALSE(record_.read());
}

TEST_F(kept_record, of_an_earlier_start_goes_if_the_one_of_the_latest_cannot_be_kept) {
    std::vector<std::string> many{"tcp://127.0.0.1:0"};
    while (many.size() < 6000)
        many.insert(many.end(), {"--readers", "group:of_many_" + std::to_string(many.size())});
    // Else it would be started again as before, without the roles that it was given since.
    for (const auto& words : {std::vector<std::string>{"two\nlines"}, many}) {
        record_.keep(how_);
        EXPECT_THROW(record_.keep(words), error);
        EXPECT_FALSE(record_.read());
    }
}

TEST_F(kept_record, that_is_none_is_no_record) {
    record_.keep(how_);
    for (const std::string text :
         {"", "amalgam directory 2", "amalgam directory 1\nopen\nx\n", "amalgam directory 2\nx"}) {
        std::ofstream(folder_ + "/directory") << text;
        EXPECT_FALSE(record_.read()) << text;
    }
    EXPECT_THROW(record_.keep({"two\nlines"}), error);
}

}  // namespace
}  // namespace amalgam::detail

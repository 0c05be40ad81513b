#include "flow/checkpoints/checkpoint_files.hpp"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "contains.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

const process_record saved{
    7, "G2.1", "graph", {{"a", true, {1, 0}, {std::byte{5}}}, {"b", {}, {}, {}}}};

TEST(checkpoint_files, what_a_process_has_saved_is_read_back) {
    const temp_folder folder;
    ASSERT_TRUE(write_process_record(folder.path(), saved));
    const auto read = read_process_record(folder.path(), 7, "G2.1", "graph");
    ASSERT_TRUE(read) << read.sentence();
    ASSERT_EQ(read->nodes.size(), 2u);
    EXPECT_EQ(read->nodes[0].name, "a");
    EXPECT_TRUE(read->nodes[0].ended);
    EXPECT_EQ(read->nodes[0].ended_inputs, saved.nodes[0].ended_inputs);
    EXPECT_EQ(read->nodes[0].state, saved.nodes[0].state);
}

TEST(checkpoint_files, a_file_that_is_cut_changed_or_of_something_else_is_refused_with_its_name) {
    const temp_folder folder;
    ASSERT_TRUE(write_process_record(folder.path(), saved));
    EXPECT_TRUE(contains(read_process_record(folder.path(), 7, "G2.1", "other").sentence(),
                         "is of another graph"));
    EXPECT_TRUE(contains(read_process_record(folder.path(), 8, "G2.1", "graph").sentence(),
                         "is not there"));
    const std::string file = folder.path() + "/checkpoint.7/G2.1";
    const auto size = std::filesystem::file_size(file);
    for (std::uintmax_t at = 0; at < size; ++at) {
        std::fstream change(file, std::ios::in | std::ios::out | std::ios::binary);
        change.seekg(static_cast<std::streamoff>(at));
        const char was = static_cast<char>(change.get());
        change.seekp(static_cast<std::streamoff>(at));
        change.put(static_cast<char>(was ^ 1)).flush();
        EXPECT_TRUE(
            contains(read_process_record(folder.path(), 7, "G2.1", "graph").sentence(), file))
            << at;
        change.seekp(static_cast<std::streamoff>(at));
        change.put(was);
    }
    EXPECT_TRUE(read_process_record(folder.path(), 7, "G2.1", "graph"));
    for (std::uintmax_t left = size; left-- != 0;) {
        std::filesystem::resize_file(file, left);
        EXPECT_FALSE(read_process_record(folder.path(), 7, "G2.1", "graph")) << left;
    }
}

TEST(checkpoint_files, older_checkpoints_are_removed_and_nothing_else) {
    const temp_folder folder;
    for (const std::uint64_t number : {3, 4, 5}) {
        process_record one = saved;
        one.number = number;
        ASSERT_TRUE(write_process_record(folder.path(), one));
    }
    ASSERT_TRUE(write_complete_record(folder.path(), {4, {"G2.1"}}));
    // Programs that train models write such things.
    const std::string model = folder.path() + "/checkpoint.100/model.pt";
    std::filesystem::create_directory(folder.path() + "/checkpoint.mine");
    std::filesystem::create_directory(folder.path() + "/checkpoint.100");
    std::ofstream(model) << "weights";
    std::ofstream(folder.path() + "/checkpoint.7") << "notes";
    std::filesystem::create_directory_symlink("checkpoint.100", folder.path() + "/checkpoint.8");
    remove_checkpoints_but(folder.path(), 4, {"G2.1", "model.pt.old"});
    remove_checkpoints_but(folder.path(), 100, {"model.pt"});  // Not by the link.
    EXPECT_FALSE(read_process_record(folder.path(), 3, "G2.1", "graph"));
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/checkpoint.5"));
    EXPECT_TRUE(read_process_record(folder.path(), 4, "G2.1", "graph"));
    EXPECT_FALSE(read_process_record(folder.path(), 5, "G2.1", "graph"));
    EXPECT_EQ(read_complete_record(folder.path()).value()->number, 4u);
    remove_checkpoints(folder.path(), {"G2.1"});
    EXPECT_FALSE(read_complete_record(folder.path()).value());
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/checkpoint.4"));
    for (const char* other : {"mine", "100/model.pt", "7", "8"})
        EXPECT_TRUE(std::filesystem::exists(folder.path() + "/checkpoint." + other)) << other;
}

TEST(checkpoint_files, what_is_no_regular_file_is_refused_and_neither_waited_for_nor_followed) {
    const temp_folder folder;
    const std::string complete = folder.path() + "/complete";
    const auto refusal = [&] { return read_complete_record(folder.path()).sentence(); };
    ASSERT_EQ(::mkfifo(complete.c_str(), 0600), 0);
    EXPECT_TRUE(contains(refusal(), "is no regular file")) << refusal();
    std::filesystem::remove(complete);
    std::filesystem::create_directory(complete);
    EXPECT_TRUE(contains(refusal(), "is no regular file")) << refusal();
    std::filesystem::remove(complete);
    const std::string victim = folder.path() + "/victim";
    std::ofstream(victim) << "as before";
    std::filesystem::create_symlink("victim", complete);
    EXPECT_TRUE(contains(refusal(), "cannot be read")) << refusal();
    std::filesystem::create_symlink("victim", complete + ".new");
    ASSERT_TRUE(write_complete_record(folder.path(), {4, {"G2.1"}}));
    EXPECT_EQ(read_complete_record(folder.path()).value()->number, 4u);
    std::string text;
    std::getline(std::ifstream(victim), text);
    EXPECT_EQ(text, "as before");
}

TEST(checkpoint_files, a_record_without_a_number_from_1_is_refused) {
    const temp_folder folder;
    for (const char* number : {"0", "-1", "1.9", "\"4\"", "null"}) {
        std::ofstream(folder.path() + "/complete")
            << R"({"checkpoint": )" << number << R"(, "processes": []})";
        EXPECT_TRUE(contains(read_complete_record(folder.path()).sentence(), "whole number from 1"))
            << number;
    }
    std::ofstream(folder.path() + "/complete") << "\x1b[31m";
    EXPECT_FALSE(contains(read_complete_record(folder.path()).sentence(), "\x1b"));
}

TEST(checkpoint_files, a_folder_that_cannot_be_written_is_told) {
    const temp_folder folder;
    const auto written = write_process_record(folder.path() + "/none", saved);
    ASSERT_FALSE(written);
    EXPECT_TRUE(contains(written.sentence(), "a checkpoint cannot be written to"))
        << written.sentence();
    std::ofstream(folder.path() + "/complete") << "{}";
    EXPECT_TRUE(contains(read_complete_record(folder.path()).sentence(), "is no record"));
}

}  // namespace
}  // namespace amalgam::detail

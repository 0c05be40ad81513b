#include "fabric/plugin_folders.hpp"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

namespace amalgam::detail {
namespace {

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

std::string refusal(std::string_view name) {
    plugin_folders all({PLUGIN_FOLDER});
    const auto loaded = all.load(name);
    return loaded ? "loaded" : loaded.sentence();
}

/// A folder with one file that is no shared object.
class broken_folder {
public:
    broken_folder() : path_("/tmp/amalgam-plugins-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder");
        std::ofstream(file()) << "not a shared object\n";
    }
    ~broken_folder() {
        ::unlink(file().c_str());
        ::rmdir(path_.c_str());
    }
    const std::string& path() const { return path_; }
    std::string file() const { return path_ + "/amalgam-transport-broken.so"; }

private:
    std::string path_;
};

TEST(plugin_folders, right_one_is_loaded_once_and_opens) {
    plugin_folders all({"/nowhere", PLUGIN_FOLDER});
    const auto loaded = all.load("for-test-right");
    ASSERT_TRUE(loaded) << loaded.sentence();
    EXPECT_EQ((*loaded)->name(), "for-test-right");
    EXPECT_EQ(*all.load("for-test-right"), *loaded);
    EXPECT_EQ((*loaded)->open(uri{}, {}).sentence(), "this one opens nothing");
}

TEST(plugin_folders, names_are_those_of_the_files) {
    const std::vector<std::string> expected{"for-test-abi", "for-test-entry", "for-test-right",
                                            "for-test-version"};
    EXPECT_EQ(plugin_folders({PLUGIN_FOLDER}).names(), expected);
    EXPECT_TRUE(plugin_folders({"/nowhere"}).names().empty());
}

TEST(plugin_folders, wrong_version_is_refused_with_both_numbers) {
    const std::string told = refusal("for-test-version");
    EXPECT_TRUE(contains(told,
                         "for version 8 of the plug-in interface, this program for 1: build "
                         "both with one Amalgam."))
        << told;
}

TEST(plugin_folders, other_abi_is_refused_with_both) {
    const std::string told = refusal("for-test-abi");
    EXPECT_TRUE(contains(told, "was built with \"a C++ of its own\", this program with \""))
        << told;
}

TEST(plugin_folders, missing_entry_is_refused) {
    const std::string told = refusal("for-test-entry");
    EXPECT_TRUE(contains(told, "is no transport of Amalgam: it has no amalgam_transport_plugin"))
        << told;
}

TEST(plugin_folders, file_that_cannot_be_loaded_is_named) {
    const broken_folder folder;
    plugin_folders all({folder.path()});
    EXPECT_TRUE(contains(all.load("broken").sentence(), folder.file()));
}

TEST(plugin_folders, file_that_is_not_there_is_not_found) {
    EXPECT_EQ(plugin_folders({PLUGIN_FOLDER}).load("elsewhere").code(), errc::not_found);
}

TEST(plugin_folders, registry_tells_of_all_and_goes_on_without_the_broken) {
    const broken_folder folder;
    ::setenv("AMALGAM_PLUGIN_PATH", (folder.path() + ":" + PLUGIN_FOLDER).c_str(), 1);
    const transport_registry all = transport_registry::installed();
    ::unsetenv("AMALGAM_PLUGIN_PATH");

    EXPECT_NE(all.find("for-test-right"), nullptr);
    EXPECT_EQ(all.find("broken"), nullptr);
    EXPECT_EQ(all.open("for-test-right://x").sentence(), "this one opens nothing");
    const auto refused = all.open("broken://x");
    EXPECT_EQ(refused.code(), errc::unsupported);
    EXPECT_TRUE(contains(refused.sentence(), "the transport \"broken\" cannot be loaded: "))
        << refused.sentence();
    EXPECT_TRUE(all.open("tcp://127.0.0.1:0"));
    int found = 0;
    for (const transport_info& one : all.describe()) {
        if (one.name == "broken") {
            ++found;
            EXPECT_FALSE(one.usable);
            EXPECT_TRUE(contains(one.why_not, folder.file()));
        }
        if (one.name == "for-test-right") {
            ++found;
            EXPECT_TRUE(one.usable);
        }
    }
    EXPECT_EQ(found, 2);
    EXPECT_TRUE(contains(all.open("nowhere://x").sentence(), "for-test-right"));
}

}  // namespace
}  // namespace amalgam::detail

#include "fabric/registry/plugin_folders.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <amalgam/fabric/plugin.hpp>

#include "contains.hpp"
#include "fabric/memory/kept_signals.hpp"
#include "fabric/memory/signals_testing.hpp"
#include "fabric/registry/plugin_abi.hpp"
#include "temp_folder.hpp"

namespace amalgam::detail {
namespace {

std::string refusal(std::string_view name) {
    plugin_folders all({PLUGIN_FOLDER});
    const auto loaded = all.load(name);
    return loaded ? "loaded" : loaded.sentence();
}

/// A folder with one file that is not a shared object.
struct broken_folder : temp_folder {
    const std::string file = with("amalgam-transport-broken.so", "not a shared object\n");
};

TEST(plugin_folders, right_one_is_loaded_once_and_opens) {
    plugin_folders all({"/nowhere", PLUGIN_FOLDER});
    const auto loaded = all.load("for-test-right");
    ASSERT_TRUE(loaded) << loaded.sentence();
    EXPECT_EQ((*loaded)->name(), "for-test-right");
    EXPECT_EQ(*all.load("for-test-right"), *loaded);
    EXPECT_EQ((*loaded)->open(uri{}, {}).sentence(), "this one opens nothing");
}

struct plugin_signals : testing::Test {
    void SetUp() override {
#ifdef __SANITIZE_THREAD__
        GTEST_SKIP() << "ThreadSanitizer puts a handler of its own in front of each";
#endif
    }
};

TEST_F(plugin_signals, those_that_a_plug_in_takes_stay_the_programs) {
    const programs_signals own;
    plugin_folders all({PLUGIN_FOLDER});
    const transport& loaded = *all.load("for-test-right").value();
    EXPECT_EQ(own.changed(), std::vector<int>());
    EXPECT_FALSE(loaded.open(uri{}, {}));
    EXPECT_EQ(own.changed(), std::vector<int>());
    (void)loaded.describe();
    EXPECT_EQ(own.changed(), std::vector<int>());
}

TEST_F(plugin_signals, a_handler_that_the_program_sets_meanwhile_stays) {
    const programs_signals own;
    {
        const kept_signals kept;
        std::signal(SIGUSR1, [](int) {});
        // A C library function stands in for a foreign library's handler.
        std::signal(SIGUSR2, reinterpret_cast<void (*)(int)>(::dlsym(RTLD_DEFAULT, "labs")));
    }
    EXPECT_EQ(own.changed(), std::vector<int>{SIGUSR1});
}

TEST(plugin_folders, threads_that_ask_at_once_get_the_same_and_load_it_once) {
    plugin_folders all({PLUGIN_FOLDER});
    std::array<const transport*, 6> found{};
    std::vector<std::thread> threads;
    for (const transport*& each : found) {
        threads.emplace_back([&] {
            const auto loaded = all.load("for-test-right");
            each = loaded ? *loaded : nullptr;
            EXPECT_FALSE(all.load("for-test-version"));
            EXPECT_EQ(all.names().size(), 8u);
        });
    }
    for (std::thread& each : threads)
        each.join();
    EXPECT_NE(found[0], nullptr);
    for (const transport* each : found)
        EXPECT_EQ(each, found[0]);
}

TEST(plugin_folders, names_are_those_of_the_files) {
    const std::vector<std::string> expected{
        "for-test-abi",   "for-test-debug", "for-test-entry",     "for-test-layout",
        "for-test-older", "for-test-right", "for-test-sanitizer", "for-test-version"};
    EXPECT_EQ(plugin_folders({PLUGIN_FOLDER}).names(), expected);
    EXPECT_TRUE(plugin_folders({"/nowhere"}).names().empty());
}

TEST(plugin_folders, they_lie_beside_the_library_that_amalgam_is_in_too) {
    const std::string folder = plugin_folder_beside(::dlsym(RTLD_DEFAULT, "labs"));
    ASSERT_TRUE(folder.ends_with("/amalgam")) << folder;
    EXPECT_EQ(::access((folder.substr(0, folder.rfind('/')) + "/libc.so.6").c_str(), R_OK), 0);
    EXPECT_EQ(plugin_folder_beside(reinterpret_cast<void*>(&refusal)), "") << "it is the program's";
}

TEST(plugin_folders, wrong_version_is_refused_with_both_numbers) {
    const std::string told = refusal("for-test-version");
    EXPECT_TRUE(contains(
        told, fmt::format("for version {} of the plug-in interface, this program for versions 2 "
                          "to {}: build both with the same Amalgam.",
                          plugin_interface_version + 7, plugin_interface_version)))
        << told;
}

TEST(plugin_folders, one_that_tells_how_it_was_built_only_when_loaded_is_refused) {
    const std::string told = refusal("for-test-abi");
    EXPECT_TRUE(
        contains(told, "is not ABI-compatible with this program: interface is unspecified, but"))
        << told;
}

TEST(plugin_folders, another_layout_is_refused_before_its_code_runs) {
    const std::string told = refusal("for-test-layout");
    EXPECT_TRUE(contains(
        told,
        "is not ABI-compatible with this program: size of something new is 8, but unspecified in "
        "this program: build both with the same Amalgam, compiler and options."))
        << told;
}

TEST(plugin_folders, containers_with_checks_are_refused) {
#ifdef _GLIBCXX_DEBUG
    GTEST_SKIP() << "this program has them, too";
#endif
    const std::string told = refusal("for-test-debug");
    EXPECT_TRUE(contains(told, "_GLIBCXX_DEBUG is on, but off in this program")) << told;
}

TEST(plugin_folders, a_sanitizer_is_refused_before_it_ends_the_program) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "no plug-in of another sanitizer is built beside ThreadSanitizer";
#endif
    if (contains(plugin_abi.text, "sanitizer=address")) GTEST_SKIP() << "this program has it, too";
    const std::string told = refusal("for-test-sanitizer");
    EXPECT_TRUE(contains(told, "sanitizer is address, but ")) << told;
}

TEST(plugin_folders, each_field_that_differs_is_told) {
    EXPECT_EQ(plugin_abi_differences("a=1;b=2;", "a=1;b=2;"), "");
    EXPECT_EQ(plugin_abi_differences("a=1;b=2;", "a=1;b=3;"), "b is 2, but 3 in this program");
    EXPECT_EQ(plugin_abi_differences("a=1;", "b=3;"),
              "b is unspecified, but 3 in this program; a is 1, but unspecified in this program");
    EXPECT_EQ(
        plugin_abi_differences("", "a=1;b=1;c=1;d=1;e=1;f=1;"),
        "a is unspecified, but 1 in this program; b is unspecified, but 1 in this program; c is "
        "unspecified, but 1 in this program; d is unspecified, but 1 in this program; and 2 more");
}

TEST(plugin_folders, missing_entry_is_refused) {
    const std::string told = refusal("for-test-entry");
    EXPECT_TRUE(
        contains(told, "is not an Amalgam transport: it does not export amalgam_transport_plugin"))
        << told;
}

TEST(plugin_folders, file_that_cannot_be_loaded_is_named) {
    const broken_folder folder;
    plugin_folders all({folder.path()});
    EXPECT_TRUE(contains(all.load("broken").sentence(), folder.file));
}

TEST(plugin_folders, the_one_beside_a_library_is_found_after_a_change_of_folder) {
    const temp_folder folder;
    const std::string library = folder.with("library.so");
    std::filesystem::copy_file(PLUGIN_FOLDER "/amalgam-transport-for-test-right.so", library);
    void* entry = nullptr;
    {
        const programs_signals kept;  // From its handlers.
        const in_folder there(folder.path());
        void* const loaded = ::dlopen("./library.so", RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(loaded, nullptr) << ::dlerror();
        entry = ::dlsym(loaded, "amalgam_transport_plugin");
    }
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(plugin_folder_beside(entry), std::filesystem::canonical(folder.path()) / "amalgam");
}

TEST(plugin_folders, those_that_the_environment_names_stay_after_a_change_of_folder) {
    const std::filesystem::path there(PLUGIN_FOLDER);
    ::setenv("AMALGAM_PLUGIN_PATH", there.filename().c_str(), 1);
    std::optional<plugin_folders> all;
    {
        const in_folder above(there.parent_path());
        all.emplace();
    }
    ::unsetenv("AMALGAM_PLUGIN_PATH");
    EXPECT_TRUE(all->load("for-test-right"));
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
            EXPECT_TRUE(contains(one.why_not, folder.file));
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

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/cpu_set.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

#include "scarce_resources.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

status refusal_of(std::string_view text) {
    try {
        const cpu_set read(text);
    } catch (const error& why) {
        return why.code();
    }
    return {};
}

TEST(cpu_set, reads_lists_and_ranges_and_writes_them_back) {
    const cpu_set some("0-3,8,70,5-6");
    EXPECT_EQ(some.ids(), (std::vector<unsigned>{0, 1, 2, 3, 5, 6, 8, 70}));
    EXPECT_EQ(some.text(), "0-3,5-6,8,70");
    EXPECT_EQ(some.size(), 8u);
    EXPECT_EQ(cpu_set(some.text()), some);
    EXPECT_EQ(cpu_set({3, 2, 1, 0}), cpu_set("0-3"));
    EXPECT_EQ(cpu_set().text(), "");
}

TEST(cpu_set, combines) {
    cpu_set some("0-3");
    some |= cpu_set("100");
    EXPECT_EQ(some.text(), "0-3,100");
    some &= cpu_set("2-9,100");
    EXPECT_EQ(some.text(), "2-3,100");
    some -= cpu_set("3,100");
    EXPECT_EQ(some, cpu_set({2}));
    some.remove(2);
    some.remove(900);
    EXPECT_TRUE(some.empty());
    EXPECT_EQ(some, cpu_set());
    EXPECT_FALSE(some.contains(2));
}

TEST(cpu_set, refuses_other_text) {
    for (const char* wrong :
         {"", ",", "1,", "a", "3-1", "-1", "1-", "8192", "0x1", " 1", "socket", "socket:", "disk:0",
          "cores:1", "thread:", "core:-1", "1:1", "99999999999999999999"}) {
        EXPECT_EQ(refusal_of(wrong).code, errc::invalid) << wrong;
    }
    EXPECT_THROW(cpu_set({8192}), error);
}

TEST(cpu_set, knows_sockets_nodes_and_cores_by_name_with_hwloc) {
    if (refusal_of("core:0").code == errc::unsupported) GTEST_SKIP() << "built without hwloc";
    const cpu_set core("core:0"), socket("socket:0");
    EXPECT_EQ(core.size(), 1u);
    EXPECT_GE(socket.size(), 1u);
    EXPECT_FALSE(cpu_set("numa:0").empty());
    EXPECT_EQ(refusal_of("socket:4000").code, errc::invalid);
    cpu_set both("core:0,1");
    EXPECT_TRUE(both.contains(1));
}

#ifdef AMALGAM_HWLOC_FILE
TEST(cpu_set, hwloc_is_loaded_by_the_first_name_and_not_with_the_program) {
    const auto is_loaded = [] {
        return ::dlopen(AMALGAM_HWLOC_FILE, RTLD_LAZY | RTLD_NOLOAD) != nullptr;
    };
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // A new process, in which no test ran before.
    EXPECT_EXIT(
        {
            const bool by_program = is_loaded();
            const bool by_number = (static_cast<void>(cpu_set("0-1")), is_loaded());
            const bool by_name = (static_cast<void>(cpu_set("core:0")), is_loaded());
            std::_Exit(!by_program && !by_number && by_name ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
}
#endif

#ifdef AMALGAM_HWLOC_FILE
TEST(cpu_set, says_why_hwloc_cannot_be_loaded) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // As above.
    EXPECT_EXIT(
        {
            const detail::few_descriptors none(0);
            const error why = error_of([] { cpu_set("core:0"); });
            std::fprintf(stderr, "%s\n", why.what());
            std::_Exit(why.code() == errc::unsupported ? 0 : 1);
        },
        testing::ExitedWithCode(0), "Too many open files");
}
#endif

#ifdef AMALGAM_HWLOC_FILE
/// Exits with 0 if children of fork() read names while another thread reads them, too.
[[noreturn]] void read_names_in_children() {
    std::atomic<bool> over{false};
    std::thread other([&over] {
        while (!over)
            (void)cpu_set("core:0");
    });
    int wrong = 0;
    for (int i = 0; i < 50; ++i) {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(cpu_set("core:0").empty() ? 1 : 0);
        int how = 1;
        if (::waitpid(child, &how, 0) != child || how != 0) ++wrong;
    }
    over = true;
    other.join();
    std::_Exit(wrong == 0 ? 0 : 1);
}

TEST(cpu_set, a_child_of_fork_reads_names_whatever_another_thread_was_reading) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // So that hwloc is loaded there first.
    EXPECT_EXIT(read_names_in_children(), testing::ExitedWithCode(0), "");
}
#endif

/// Exits with 0 if the names of a made-up machine stand for the right CPUs.
[[noreturn]] void read_names_on(const char* machine,
                                std::initializer_list<std::pair<const char*, const char*>> sets) {
    ::setenv("HWLOC_SYNTHETIC", machine, 1);
    int wrong = 0;
    for (const auto& [name, cpus] : sets) {
        const std::string read = cpu_set(name).text();
        if (read == cpus) continue;
        ++wrong;
        std::fprintf(stderr, "%s is %s, expected %s\n", name, read.c_str(), cpus);
    }
    if (refusal_of("thread:8").code != errc::invalid) ++wrong;
    std::_Exit(wrong);
}

TEST(cpu_set, names_hardware_threads_one_by_one_and_all_of_a_core) {
    if (refusal_of("core:0").code == errc::unsupported) GTEST_SKIP() << "built without hwloc";
    EXPECT_EXIT(read_names_on("pack:2 numa:1 core:2 pu:2", {{"socket:0", "0-3"},
                                                            {"socket:1", "4-7"},
                                                            {"numa:1", "4-7"},
                                                            {"core:1", "2"},
                                                            {"core:0-3", "0,2,4,6"},
                                                            {"whole_core:1", "2-3"},
                                                            {"whole_core:1-2", "2-5"},
                                                            {"thread:5", "5"},
                                                            {"thread:0-2,core:3", "0-2,6"}}),
                testing::ExitedWithCode(0), "");
}

TEST(cpu_set, hardware_threads_are_numbered_by_place_and_not_as_the_system_does) {
    if (refusal_of("core:0").code == errc::unsupported) GTEST_SKIP() << "built without hwloc";
    EXPECT_EXIT(read_names_on("pack:2 numa:1 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)",
                              {{"thread:1", "4"},
                               {"thread:0-3", "0-1,4-5"},
                               {"core:1", "1"},
                               {"whole_core:1", "1,5"},
                               {"socket:1", "2-3,6-7"},
                               {"1", "1"}}),
                testing::ExitedWithCode(0), "");
}

TEST(execution_stream, is_bound_to_sets_of_cpus_and_bound_anew_while_it_runs) {
    const cpu_set allowed = cpu_set::of_this_thread();
    const cpu_set first{allowed.ids().front()}, last{allowed.ids().back()};
    execution_stream stream(execution_stream_options{.cpus = first});
    const auto bound_to = [&] {
        cpu_set seen;
        spawn(stream, [&] { seen = cpu_set::of_this_thread(); }).join();
        return seen;
    };
    EXPECT_EQ(bound_to(), first);
    EXPECT_EQ(stream.cpus(), first);
    stream.set_cpus(last);
    EXPECT_EQ(bound_to(), last);
    stream.set_cpus({});
    EXPECT_EQ(bound_to(), allowed);
    stream.stop();
    stream.set_cpus(last);
    stream.revive();
    EXPECT_EQ(bound_to(), last);
}

TEST(execution_stream, primary_is_bound_while_it_lasts) {
    const cpu_set before = cpu_set::of_this_thread();
    const cpu_set one{before.ids().back()};
    {
        execution_stream here({.primary = true, .cpus = one});
        EXPECT_EQ(cpu_set::of_this_thread(), one);
        here.set_cpus({before.ids().front()});
        EXPECT_EQ(cpu_set::of_this_thread(), cpu_set{before.ids().front()});
    }
    EXPECT_EQ(cpu_set::of_this_thread(), before);
}

TEST(execution_stream, cannot_be_bound_where_it_must_not_run) {
    cpu_set allowed = cpu_set::of_this_thread();
    allowed.add(cpu_set::most);
    EXPECT_THROW(execution_stream(execution_stream_options{.cpus = allowed}), error);
    EXPECT_THROW(execution_stream(execution_stream_options{.cpu = 0, .cpus = cpu_set{0}}), error);
    execution_stream stream;
    EXPECT_THROW(stream.set_cpus(allowed), error);
    EXPECT_TRUE(stream.cpus().empty());
    execution_stream driven(execution_stream_options{.driven = true});
    EXPECT_THROW(driven.set_cpus({0}), error);
}

TEST(execution_stream, options_are_refused_where_its_setters_would_refuse) {
    using options = execution_stream_options;
    const auto told = [](options how) {
        return std::string(error_of([&] { execution_stream made(how); }).what());
    };
    EXPECT_NE(told({.cpu = 0, .driven = true}).find("no thread to bind"), std::string::npos);
    EXPECT_NE(told({.driven = true, .cpus = cpu_set{0}}).find("no thread to bind"),
              std::string::npos);
    EXPECT_NE(told({.cpu = -5}).find(".cpu = -5, expected"), std::string::npos);
    const error none = error_of([] { execution_stream made(std::unique_ptr<scheduler>{}); });
    EXPECT_EQ(none.code(), errc::invalid);
    EXPECT_NE(std::string(none.what()).find("scheduler is null"), std::string::npos);
}

}  // namespace
}  // namespace amalgam

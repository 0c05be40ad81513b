#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/cpu_set.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

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
    for (const char* wrong : {"", ",", "1,", "a", "3-1", "-1", "1-", "8192", "0x1", " 1", "socket",
                              "socket:", "disk:0", "core:-1", "1:1", "99999999999999999999"}) {
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

// `amalgam stats` as users see it.
#include <atomic>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/tasks.hpp>

#include "contains.hpp"
#include "tool/run_tool.hpp"

using amalgam::contains;
using amalgam::tool_testing::amalgam_tool;

namespace {

struct served {
    amalgam::engine here{"shm://"};
    const std::string address = here.address();

    served() {
        here.define("sum", [](int a, int b) { return a + b; });
        offer_metrics(here);
    }
};

TEST(tool_stats, shows_what_an_engine_counts_as_text_json_and_for_prometheus) {
    served one;
    const std::string line = "amalgam_rpc_handled_total{procedure=\"sum\",provider=\"0\"} 1";
    ASSERT_EQ(amalgam_tool("call " + one.address + " sum '[1, 2]'").code, 0);
    const auto text = amalgam_tool("stats " + one.address + " --filter handled");
    EXPECT_EQ(text.code, 0) << text.output;
    EXPECT_EQ(text.output, line + "\n");
    const auto prometheus = amalgam_tool("stats " + one.address + " --prometheus");
    EXPECT_TRUE(contains(prometheus.output, "# TYPE amalgam_rpc_handled_total counter\n" + line))
        << prometheus.output;
    const auto json = amalgam_tool("stats " + one.address + " --json --filter handled_total");
    ASSERT_EQ(json.code, 0) << json.output;
    const auto parsed = nlohmann::json::parse(json.output);
    EXPECT_EQ(parsed["metrics"][0]["samples"][0]["labels"]["procedure"], "sum");
    EXPECT_EQ(parsed["metrics"][0]["samples"][0]["value"], 1);
}

TEST(tool_stats, of_several_engines_says_whose_they_are_and_who_did_not_answer) {
    served one, two;
    const std::string more = " --filter process_threads";
    const auto both = amalgam_tool("stats " + one.address + " " + two.address + more);
    EXPECT_EQ(both.code, 0) << both.output;
    EXPECT_TRUE(contains(both.output, one.address + ":\nprocess_threads ")) << both.output;
    EXPECT_TRUE(contains(both.output, two.address + ":\nprocess_threads ")) << both.output;
    const auto half = amalgam_tool("stats " + one.address + " shm://nobody_is_there" + more);
    EXPECT_EQ(half.code, 1) << half.output;
    EXPECT_TRUE(contains(half.output, one.address + ":\nprocess_threads ")) << half.output;
    EXPECT_TRUE(contains(half.output, "amalgam: shm://nobody_is_there: ")) << half.output;
}

TEST(tool_stats, of_a_directory_are_those_of_all_processes_with_a_context_there) {
    amalgam::engine on("shm://"), silent("shm://");
    served one;
    offer_metrics(on);
    const amalgam::directory_server directory(on);
    const amalgam::context here(one.here, {.directory = on.address()});
    const std::string all = "stats --directory " + on.address() + " --filter ";
    auto got = amalgam_tool(all + "process_threads");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(contains(got.output, "process_threads{process=\"directory\"} ")) << got.output;
    EXPECT_TRUE(contains(got.output, "process_threads{process=\"" + one.address + "\"} "))
        << got.output;
    got = amalgam_tool(all + "directory_contexts");  // With the tool's own.
    EXPECT_EQ(got.output, "amalgam_directory_contexts{process=\"directory\"} 2\n");

    const amalgam::context quiet(silent, {.directory = on.address()});
    got = amalgam_tool(all + "process_threads");
    EXPECT_EQ(got.code, 1) << got.output;
    EXPECT_TRUE(contains(got.output, one.address + "\"} ")) << got.output;
    EXPECT_TRUE(contains(got.output, "amalgam: " + silent.address() + ": ")) << got.output;
    EXPECT_TRUE(contains(got.output, "does not offer its metrics")) << got.output;
}

TEST(tool_find_json, has_an_object_for_each_resource) {
    amalgam::engine on("shm://");
    const amalgam::directory_server directory(on);
    amalgam::context here(amalgam::context_options{.directory = on.address()});
    const auto added = here.add({{"type", "server"}, {"rack", "7\n"}});
    const auto got = amalgam_tool("find --at " + on.address() + " type=server rack --json");
    EXPECT_EQ(got.code, 0) << got.output;
    const auto parsed = nlohmann::json::parse(got.output);
    EXPECT_EQ(parsed["attributes"], (nlohmann::json{{"type", "server"}, {"rack", "7\n"}}));
    EXPECT_EQ(parsed["context"], static_cast<unsigned>(here.id())) << got.output;
}

TEST(tool_stats, watches_as_often_as_asked) {
    served one;
    const auto twice = amalgam_tool("stats " + one.address +
                                    " --filter process_threads --json --watch 0.1 --count 2");
    EXPECT_EQ(twice.code, 0) << twice.output;
    const std::size_t first = twice.output.find('\n');
    ASSERT_NE(first, std::string::npos) << twice.output;
    EXPECT_TRUE(nlohmann::json::accept(twice.output.substr(0, first)));
    EXPECT_TRUE(nlohmann::json::accept(twice.output.substr(first + 1)));
}

TEST(tool_stats, give_up_on_an_engine_that_does_not_answer) {
    amalgam::engine stuck("shm://");
    std::atomic<bool> reached = false;
    std::atomic<bool> ends = false;
    stuck.define(amalgam::detail::library_name{"amalgam.metrics"}, [&] {
        reached = true;
        while (!ends)
            amalgam::this_task::yield();
        return amalgam::metric_snapshot();
    });
    const auto got = amalgam_tool("stats " + stuck.address() + " --timeout 200");
    ends = true;
    EXPECT_TRUE(reached);
    EXPECT_EQ(got.code, 1) << got.output;
    EXPECT_TRUE(contains(got.output, "no answer before the deadline")) << got.output;
}

TEST(tool_stats, says_how_an_engine_would_offer_them) {
    amalgam::engine silent("shm://");
    const auto got = amalgam_tool("stats " + silent.address());
    EXPECT_EQ(got.code, 1) << got.output;
    EXPECT_TRUE(contains(got.output,
                         "does not offer its metrics; to offer them, call "
                         "am::offer_metrics(engine) there"))
        << got.output;
}

}  // namespace

// The commands that call other engines, where those are at tcp+tls://.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/rpc/engine.hpp>

#include "contains.hpp"
#include "temp_folder.hpp"
#include "tool/run_tool.hpp"

namespace amalgam::tool_testing {
namespace {

namespace files = std::filesystem;

/// A lab, an engine that it certified, and a user's key.
class tool_tls : public testing::Test {
protected:
    tool_tls() {
        make_key(folder.with("lab"), {.name = "lab", .authority = true});
        for (const char* each : {"node", "user"}) {
            make_key(folder.with(each), {.name = each, .hosts = {"127.0.0.1"}});
            sign_key(folder.with(each), folder.with("lab"));
        }
        server.emplace("tcp+tls://127.0.0.1:0?credentials=" + folder.with("node"));
        server->define("sum", [](int a, int b) { return a + b; });
    }
    std::string with_option() const { return server->address() + "?credentials=" + user; }
    std::string with_flag() const { return server->address() + " --credentials " + user; }
    static void expect_one_sentence(const outcome& got, int code, const std::string& part) {
        EXPECT_EQ(got.code, code) << got.output;
        EXPECT_TRUE(contains(got.output, part)) << got.output;
        EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
    }

    const temp_folder folder;
    const std::string user = folder.with("user");
    std::optional<engine> server;
};

TEST_F(tool_tls, ping_and_call_prove_themselves_by_the_uri_or_by_an_option) {
    for (const std::string& target : {with_option(), with_flag()}) {
        const auto pinged = amalgam_tool("ping " + target + " --count 3 --interval 0");
        EXPECT_EQ(pinged.code, 0) << pinged.output;
        EXPECT_TRUE(contains(pinged.output, "3 of 3 calls answered")) << pinged.output;
        const auto listed = amalgam_tool("call " + target);
        EXPECT_EQ(listed.code, 0) << listed.output;
        EXPECT_TRUE(contains(listed.output, "sum ")) << listed.output;
        const auto health = amalgam_tool("call " + target + " --health");
        EXPECT_EQ(health.code, 0) << health.output;
        EXPECT_TRUE(contains(health.output, "serving")) << health.output;
    }
    EXPECT_EQ(amalgam_tool("call " + with_option() + " sum '[1, 2]'").output, "3\n");
}

TEST_F(tool_tls, a_folder_that_a_uri_cannot_name_is_refused_with_a_way_out) {
    for (const std::string other : {"no de", "a&peer=b", "a&b"}) {
        files::rename(user, folder.with(other));
        const std::string named = " --credentials '" + folder.with(other) + "'";
        expect_one_sentence(amalgam_tool("ping --count 1 " + server->address() + named), 2,
                            "ln -s");
        files::rename(folder.with(other), user);
    }
}

TEST_F(tool_tls, packets_of_other_libraries_are_reached_in_the_same_way) {
    const auto all = transport_registry::installed();
    for (const std::string library : {"ofi", "ucx"}) {
        if (all.find(library) == nullptr) continue;
        const std::string where = library + "+tcp+tls://127.0.0.1:0?credentials=";
        engine sealed(where + folder.with("node"));
        const auto pinged = amalgam_tool("ping " + sealed.address() + " --credentials " + user +
                                         " --count 2 --interval 0");
        EXPECT_EQ(pinged.code, 0) << pinged.output;
        const auto told = amalgam_tool("info --explain '" + where + user + "'");
        EXPECT_EQ(told.code, 0) << told.output;
        for (const char* part : {"encrypted: yes, packets, under keys of TLS 1.3",
                                 "each packet is sealed by", "proves itself as user"})
            EXPECT_TRUE(contains(told.output, part)) << told.output;
    }
}

TEST_F(tool_tls, without_credentials_the_sentence_is_about_the_uri_that_was_given) {
    const std::string address = server->address();
    for (const std::string command :
         {"ping ", "call ", "find --at ", "perf rpc-latency --seconds 0.02 --uri "}) {
        const auto got = amalgam_tool(command + address);
        expect_one_sentence(got, 2, address + " is for those who prove who they are");
        EXPECT_TRUE(contains(got.output, "example: " + address + "?credentials=node8"))
            << got.output;
    }
    expect_one_sentence(amalgam_tool("ping " + with_option() + " --credentials other"), 2,
                        "expected one of them");
    expect_one_sentence(amalgam_tool("ping " + address + " --credentials ./nobody"), 1,
                        "./nobody/certificate.pem\" cannot be read");
}

TEST_F(tool_tls, perf_runs_every_test) {
    const auto got = amalgam_tool(
        "perf all --seconds 0.05 --json --uri tcp+tls://127.0.0.1:0 "
        "--credentials " +
        folder.with("node"));
    ASSERT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 12) << got.output;
}

TEST_F(tool_tls, find_asks_a_directory_that_trusts_it) {
    const directory_server directory(*server);
    context here({"tcp+tls://127.0.0.1:0?credentials=" + folder.with("node")},
                 {.directory = server->address()});
    const resource added = here.add({{"type", "server"}});
    const auto got = amalgam_tool("find type=server --at " + with_flag());
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(contains(got.output, "type: \"server\"")) << got.output;
}

}  // namespace
}  // namespace amalgam::tool_testing

// The command line tool as users see it: real processes, their output, their exit codes.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/fabric/transport.hpp>
#include <amalgam/rpc/describe.hpp>
#include <amalgam/rpc/engine.hpp>

#include "contains.hpp"
#include "temp_folder.hpp"
#include "tool/json_lines.hpp"
#include "tool/run_tool.hpp"

using amalgam::contains;
using amalgam::temp_folder;
using amalgam::tool_testing::amalgam_tool;
using amalgam::tool_testing::lines_of_json;
using amalgam::tool_testing::run_tool;

TEST(tool_info, lists_every_native_transport) {
    const auto got = amalgam_tool("info");
    EXPECT_EQ(got.code, 0) << got.output;
    for (const char* name : {"loop", "shm", "tcp"})
        EXPECT_TRUE(contains(got.output, name)) << got.output;
}

TEST(tool_info, json_says_the_same_as_the_table) {
    const auto table = amalgam_tool("info");
    const auto got = amalgam_tool("info --json");
    ASSERT_EQ(got.code, 0) << got.output;
    const auto parsed = nlohmann::json::parse(got.output);
    std::set<std::string> usable;
    for (const auto& one : parsed["transports"]) {
        EXPECT_TRUE(contains(table.output, one["name"].get<std::string>())) << one;
        if (one["usable"].get<bool>()) usable.insert(one["name"]);
    }
    for (const char* native : {"loop", "shm", "tcp"})
        EXPECT_TRUE(usable.contains(native)) << native;
}

TEST(tool_info, explain_opens_the_port_and_says_where_it_listens) {
    const auto got = amalgam_tool("info --explain tcp://127.0.0.1:0");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(contains(got.output, "tcp://127.0.0.1:")) << got.output;
}

TEST(tool_info, explain_with_json_is_one_object) {
    for (const char* uri : {"tcp://127.0.0.1:0", "tcp://"}) {
        const auto got = amalgam_tool(std::string("info --json --explain ") + uri);
        ASSERT_EQ(got.code, 0) << got.output;
        const auto parsed = nlohmann::json::parse(got.output);
        EXPECT_EQ(parsed["uri"], uri);
        EXPECT_EQ(parsed["reaches"], "other hosts");
        EXPECT_GT(parsed["max_message_bytes"].get<std::size_t>(), 0u);
        EXPECT_FALSE(parsed["explanation"].get<std::string>().empty());
        EXPECT_EQ(parsed["address"].is_null(), std::string(uri) == "tcp://") << parsed;
        EXPECT_EQ(parsed["encrypted"], false);
    }
}

TEST(tool_info, explain_tells_what_a_uri_protects) {
    const temp_folder keys;
    ASSERT_EQ(amalgam_tool("key new " + keys.with("lab") + " --authority").code, 0);
    ASSERT_EQ(amalgam_tool("key new " + keys.with("me") + " --with " + keys.with("lab")).code, 0);
    const std::pair<std::string, std::vector<std::string>> all[] = {
        {"tcp://127.0.0.1:0", {"encrypted: no", "every process on this host may connect"}},
        {"tcp://0.0.0.0:0?insecure=yes", {"encrypted: no", "whoever reaches it may connect"}},
        {"tcp://", {"encrypted: no", "nobody can connect"}},
        {"shm://", {"encrypted: no", "only processes of this user connect"}},
        {"tcp+tls://0.0.0.0:0?credentials=" + keys.with("me"),
         {"encrypted: yes, by TLS 1.3", "proves itself as me", "trusts who was certified by"}}};
    for (const auto& [uri, parts] : all) {
        const auto got = amalgam_tool("info --explain '" + uri + "'");
        EXPECT_EQ(got.code, 0) << got.output;
        for (const std::string& part : parts)
            EXPECT_TRUE(contains(got.output, part)) << part << " in " << got.output;
    }
    const auto refused = amalgam_tool("info --explain tcp://0.0.0.0:0");
    EXPECT_EQ(refused.code, 1) << refused.output;
    EXPECT_TRUE(contains(refused.output, "?insecure=yes")) << refused.output;
}

TEST(tool_info, a_wrong_uri_gets_one_sentence_with_an_example) {
    const auto got = amalgam_tool("info --explain tcp://127.0.0.1:99999");
    EXPECT_EQ(got.code, 2);
    EXPECT_TRUE(contains(got.output, "99999")) << got.output;
    EXPECT_TRUE(contains(got.output, "example: ")) << got.output;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
}

TEST(tool_inject, sign_says_when_where_and_which_version_and_revoke_takes_it_back) {
    const temp_folder own;
    const std::string image = own.with("two.image"), key = own.with("our.key"),
                      list = own.with("revoked.txt");
    std::ofstream(own.with("two.c")) << "void two_main(void* p, unsigned long n, void* t) {}\n";
    ASSERT_EQ(amalgam_tool("inject build " + own.with("two.c") + " -o " + image).code, 0);
    EXPECT_FALSE(contains(amalgam_tool("inject show " + image).output, "manifest"));
    const std::string signer = amalgam_tool("inject key " + key).output.substr(0, 64);
    const auto sign = [&](const std::string& how) {
        const auto got = amalgam_tool("inject sign " + image + " --key " + key + how);
        EXPECT_EQ(got.code, 0) << got.output;
        return amalgam_tool("inject show " + image).output;
    };
    const std::string some =
        sign(" --image-version 3 --for node7 --for node8 --for-group lab --days 2");
    EXPECT_TRUE(contains(some, "signed by  " + signer)) << some;
    EXPECT_TRUE(contains(some, "manifest   version 3, from 20")) << some;
    EXPECT_TRUE(contains(some, "UTC, for node7, node8, group lab")) << some;
    const auto json = nlohmann::json::parse(amalgam_tool("inject show --json " + image).output);
    EXPECT_EQ(json["name"], "two");
    EXPECT_EQ(json["signed_by"], signer);
    EXPECT_EQ(json["signature_valid"], true);
    EXPECT_EQ(json["manifest"]["version"], 3);
    EXPECT_EQ(json["manifest"]["names"], (std::vector<std::string>{"node7", "node8"}));
    EXPECT_TRUE(
        contains(some, "until " + json["manifest"]["not_after"].get<std::string>().substr(0, 10)))
        << some << json;
    const std::string all = sign(" --forever");
    EXPECT_TRUE(contains(all, ", without an end, for all targets")) << all;

    for (const std::string& what : {"--image " + image, "--key " + signer})
        EXPECT_EQ(amalgam_tool("inject revoke " + list + " " + what).code, 0);
    std::ifstream file(list);
    std::string kind, digits;
    file >> kind >> digits;
    EXPECT_EQ(kind, "image");
    EXPECT_TRUE(contains(all, digits)) << digits;
    file >> kind >> digits;
    EXPECT_EQ(kind + " " + digits, "key " + signer);

    EXPECT_NE(amalgam_tool("inject revoke " + list + " --image 12").code, 0);
    EXPECT_EQ(amalgam_tool("inject build x.c --days 3").code, 2) << "of what is not signed";
    const auto none = amalgam_tool("inject revoke " + list);
    EXPECT_TRUE(contains(none.output, "nothing to revoke; expected --image or --key"))
        << none.output;
}

TEST(tool_info, an_unknown_transport_is_told_which_there_are) {
    const auto got = amalgam_tool("info --explain pigeon://roof");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(contains(got.output, "pigeon")) << got.output;
    EXPECT_TRUE(contains(got.output, "tcp")) << got.output;
}

TEST(tool, a_wrong_command_line_gets_one_sentence_with_an_example) {
    const std::pair<const char*, const char*> cases[] = {
        {"", "no command; expected one of: info, ping, call, perf, run"},
        {"fly", "unknown command \"fly\"; expected one of: info, ping, call, perf, run"},
        {"ping", "ping: uri is required"},
        {"perf rpc-latency --seconds soon",
         "--seconds: \"soon\" is not a number of seconds from 0.01 to 3600"},
        {"run", "run: --config is required"},
        {"info --loud", "--loud"}};
    for (const auto& [line, why] : cases) {
        const auto got = amalgam_tool(line);
        EXPECT_NE(got.code, 0) << line;
        EXPECT_TRUE(got.output.starts_with("amalgam: ")) << got.output;
        EXPECT_TRUE(contains(got.output, why)) << got.output;
        EXPECT_TRUE(contains(got.output, "; example: amalgam ")) << got.output;
        EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
    }
}

TEST(tool, help_is_printed_with_code_0) {
    for (const char* line : {"--help", "ping --help"}) {
        const auto got = amalgam_tool(line);
        EXPECT_EQ(got.code, 0) << line;
        EXPECT_TRUE(contains(got.output, "Usage:")) << got.output;
    }
}

TEST(tool, a_wrong_command_line_ends_with_code_2) {
    for (const char* line :
         {"", "fly", "ping", "info --loud", "perf speed", "perf rpc-latency --seconds soon",
          "perf all --plot out.png", "inject", "inject fly", "inject show",
          "inject build x.cpp --processor mips", "inject build x.cpp --align 3",
          "inject build x.cpp --name 'a b'", "ping shm://x --count -1", "ping ''",
          "ping tcp://x:70000", "find type=x type"})
        EXPECT_EQ(amalgam_tool(line).code, 2) << line;
}

TEST(tool, a_full_device_is_told_and_ends_with_code_1) {
    for (const char* line : {"info", "info --json", "info --explain loop://x", "--help"}) {
        const auto got = amalgam_tool(std::string(line) + " 2>&1 >/dev/full; exit $?; :");
        EXPECT_EQ(got.code, 1) << line;
        EXPECT_TRUE(contains(got.output, "amalgam: cannot write all output to standard output"))
            << got.output;
        EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
    }
}

TEST(tool_inject, without_a_command_of_its_own_says_which_there_are) {
    for (const auto& [line, why] : {std::pair{"inject", "inject: no command; expected"},
                                    {"inject fly", "inject: unknown command \"fly\"; expected"},
                                    {"inject show", "inject show: image is required"}}) {
        const auto got = amalgam_tool(line);
        EXPECT_TRUE(contains(got.output, why)) << got.output;
        EXPECT_TRUE(contains(got.output, "; example: amalgam inject ")) << got.output;
        EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
    }
}

TEST(tool_inject, an_unknown_processor_is_told_which_there_are_by_their_names) {
    const auto got = amalgam_tool("inject build x.cpp --processor mips");
    EXPECT_TRUE(contains(got.output, "unknown processor \"mips\", expected x86-64 or aarch64;"))
        << got.output;
    EXPECT_FALSE(contains(got.output, "->")) << got.output;
    EXPECT_FALSE(contains(amalgam_tool("inject build --help").output, "->"));
}

class tool_ping : public testing::TestWithParam<const char*> {};

TEST_P(tool_ping, answers_with_round_trips_and_code_0) {
    const auto opened = amalgam::transport_registry::installed().open(GetParam());
    if (!opened) GTEST_SKIP() << opened.sentence();
    amalgam::engine server(GetParam());
    const auto got = amalgam_tool("ping " + server.address() + " --count 3 --interval 0");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(contains(got.output, "3 of 3 calls answered")) << got.output;
}

INSTANTIATE_TEST_SUITE_P(native, tool_ping, testing::Values("shm://", "tcp://127.0.0.1:0"));
INSTANTIATE_TEST_SUITE_P(plugins, tool_ping,
                         testing::Values("ucx+tcp://127.0.0.1:0", "ucx+shm://127.0.0.1:0",
                                         "ofi+tcp://127.0.0.1:0"));

TEST(tool_call, calls_with_json_by_the_signature_that_the_engine_tells) {
    amalgam::engine server("tcp://127.0.0.1:0");
    server.define("sum", [](int a, const std::vector<double>& b) { return a + b.at(0); },
                  {.about = "Adds a number and the first of a list."});
    server.define("none", [] {}, {.provider = 2});
    server.define("fail", [] { throw amalgam::error(amalgam::errc::denied, "not yours"); });
    const std::string call = "call " + server.address();
    const auto sum = amalgam_tool(call + " sum '[1, [2.5]]'");
    EXPECT_EQ(sum.code, 0) << sum.output;
    EXPECT_EQ(sum.output, "3.5\n");
    const auto none = amalgam_tool(call + " none --provider 2");
    EXPECT_EQ(none.code, 0) << none.output;
    EXPECT_EQ(none.output, "");
    const auto all = amalgam_tool(call);
    EXPECT_TRUE(
        contains(all.output, "sum f64(i32,vector<f64>): Adds a number and the first of a list."))
        << all.output;
    EXPECT_TRUE(contains(all.output, "none void() provider 2\n")) << all.output;
    const auto health = amalgam_tool(call + " --health");
    EXPECT_EQ(health.code, 0);
    EXPECT_TRUE(contains(health.output, "serving; ")) << health.output;
    set_health(server, false, "the disk is full");
    const auto ill = amalgam_tool(call + " --health");
    EXPECT_EQ(ill.code, 1);
    EXPECT_TRUE(contains(ill.output, "not serving: the disk is full")) << ill.output;
    for (const auto& [line, code, why] :
         {std::tuple{" sum '[1]'", 2, "the arguments are 1 value, expected a JSON list of 2"},
          {" sum '[1, 2]'", 2, "argument 2 has 2, expected vector<f64>; example: [1.5]"},
          {" sum '{'", 2, "expected a JSON list"},
          {" summ", 1, "serves no procedure \"summ\"; it has: sum, none, fail"},
          {" none", 1, "serves no procedure \"none\"; provider 2 does; add --provider 2"},
          {" ''", 2, "is not a procedure's name"},
          {" sum --health", 2, "name excludes --health"},
          {" fail", 1, "not yours"}}) {
        const auto got = amalgam_tool(call + line);
        EXPECT_EQ(got.code, code) << line << got.output;
        EXPECT_TRUE(contains(got.output, why)) << got.output;
    }
}

TEST(tool_call, the_text_of_a_handler_cannot_drive_the_terminal) {
    amalgam::engine server("tcp://127.0.0.1:0");
    // An escape; the same order in one character, in UTF-8 and in a byte that is no UTF-8; a change
    // of direction.
    server.define("fail", [] {
        throw std::runtime_error(
            "one\x1b[2J\ntwo \xc2\x9b"
            "2J \x9b"
            "3J \xe2\x80\xae end \xc3\xa4");
    });
    const auto got = amalgam_tool("call " + server.address() + " fail");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(contains(got.output,
                         "one\\x1b[2J\\x0atwo \\xc2\\x9b2J \\x9b3J \\xe2\\x80\\xae end \xc3\xa4"))
        << got.output;
}

TEST(tool_call, nor_can_a_result) {
    amalgam::engine server("tcp://127.0.0.1:0");
    server.define("text", [] {
        return std::string(
            "one\x1b[2J \xc2\x9b"
            "2J\x7f \xe2\x80\xae end \xc3\xa4");
    });
    const auto got = amalgam_tool("call " + server.address() + " text");
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.output, "\"one\\u001b[2J \\u009b2J\\u007f \\u202e end \xc3\xa4\"\n");
}

TEST(tool_call, tells_how_many_names_it_leaves_out) {
    amalgam::engine server("tcp://127.0.0.1:0");
    for (int i = 0; i < 13; ++i)
        server.define("f" + std::to_string(i), [] {});
    const auto got = amalgam_tool("call " + server.address() + " g");
    EXPECT_TRUE(contains(got.output, "f9 …and 3 more")) << got.output;
}

TEST(tool_call, an_engine_that_does_not_describe_itself_is_told) {
    amalgam::engine server("tcp://127.0.0.1:0", {.reflection = false});
    const auto got = amalgam_tool("call " + server.address());
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(contains(got.output, "engine_options::reflection")) << got.output;
}

TEST(tool_ping_several, addresses_of_one_engine_tells_which_is_used_and_why) {
    amalgam::engine server({"tcp://127.0.0.1:0", "shm://"});
    const auto all = server.addresses();
    const auto got = amalgam_tool("ping " + all[0] + " " + all[1] + " --count 2 --interval 0");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(contains(got.output, all[1] + " is used (on this host")) << got.output;
    EXPECT_TRUE(contains(got.output, all[0] + " (also works, over the network")) << got.output;
    EXPECT_TRUE(contains(got.output, all[1] + ": call 2:")) << got.output;
}

TEST(tool_json, ping_prints_a_line_for_each_call_and_one_for_all) {
    amalgam::engine server({"tcp://127.0.0.1:0", "shm://"});
    const auto all = server.addresses();
    auto got = amalgam_tool("ping " + all[0] + " --count 2 --interval 0 --json");
    EXPECT_EQ(got.code, 0) << got.output;
    auto lines = lines_of_json(got.output);
    ASSERT_EQ(lines.size(), 3u) << got.output;
    EXPECT_EQ(lines[1]["address"], all[0]);
    EXPECT_EQ(lines[1]["call"], 2);
    EXPECT_GT(lines[1]["us"].get<double>(), 0);
    EXPECT_EQ(lines[2]["calls"], 2);
    EXPECT_EQ(lines[2]["answered"], 2);
    EXPECT_LE(lines[2]["best_us"].get<double>(), lines[2]["worst_us"].get<double>());
    EXPECT_FALSE(lines[2].contains("explanation"));

    got = amalgam_tool("ping " + all[0] + " " + all[1] + " --count 1 --json");
    lines = lines_of_json(got.output);
    ASSERT_EQ(lines.size(), 2u) << got.output;
    EXPECT_TRUE(contains(lines[1]["explanation"].get<std::string>(), " is used ")) << got.output;
}

TEST(tool_json, call_lists_procedures_and_tells_health) {
    amalgam::engine server("shm://");
    server.define("sum", [](int a, int b) { return a + b; }, {.about = "Adds \xff two"});
    auto got = amalgam_tool("call " + server.address() + " --json");
    EXPECT_EQ(got.code, 0) << got.output;
    auto lines = lines_of_json(got.output);
    ASSERT_EQ(lines.size(), 1u) << got.output;
    EXPECT_EQ(lines[0]["name"], "sum");
    EXPECT_EQ(lines[0]["provider"], 0);
    EXPECT_EQ(lines[0]["about"], "Adds \xef\xbf\xbd two");
    EXPECT_FALSE(lines[0]["signature"].get<std::string>().empty());

    set_health(server, false, "loading");
    got = amalgam_tool("call " + server.address() + " --health --json");
    EXPECT_EQ(got.code, 1) << got.output;
    lines = lines_of_json(got.output);
    ASSERT_EQ(lines.size(), 1u) << got.output;
    EXPECT_EQ(lines[0]["serving"], false);
    EXPECT_EQ(lines[0]["sentence"], "loading");
}

TEST(tool_json, run_shows_each_process_that_it_would_start) {
    const temp_folder own;
    std::ofstream(own.with("groups.json"))
        << R"({"groups": {"G1": {"endpoint": "shm://"}, "G2": {"endpoint": "shm://", "replicas": 2}}})";
    const auto got =
        amalgam_tool("run -c " + own.with("groups.json") + " --show --json -- ./program 'a b'");
    EXPECT_EQ(got.code, 0) << got.output;
    const auto lines = lines_of_json(got.output);
    ASSERT_EQ(lines.size(), 3u) << got.output;
    EXPECT_EQ(lines[2]["group"], "G2");
    EXPECT_EQ(lines[2]["replica"], 1);
    EXPECT_EQ(lines[2]["command"], (std::vector<std::string>{"./program", "a b"}));
}

TEST(tool_ping_nobody, ends_with_code_1_and_says_unreachable) {
    std::string gone;
    {
        amalgam::engine server("tcp://127.0.0.1:0");
        gone = server.address();
    }
    const auto got = amalgam_tool("ping " + gone + " --count 2 --interval 0 --timeout 2000");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(contains(got.output, "0 of 2 calls answered")) << got.output;
}

class tool_perf : public testing::TestWithParam<const char*> {};

TEST_P(tool_perf, each_test_prints_one_json_object_with_every_field) {
    for (const char* test :
         {"message-latency", "rpc-latency", "rpc-rate", "post-rate", "put-bandwidth",
          "get-bandwidth", "put-block-bandwidth", "get-block-bandwidth", "bulk-pull",
          "bulk-pull-pooled", "bulk-push", "stream-rate"}) {
        const auto got = amalgam_tool(std::string("perf ") + test +
                                      " --seconds 0.05 --json --uri " + GetParam());
        ASSERT_EQ(got.code, 0) << got.output;
        const auto one = nlohmann::json::parse(got.output);
        EXPECT_EQ(one["test"], test);
        for (const char* field :
             {"uri", "size_bytes", "depth", "ops_per_s", "bytes_per_s", "p50_us", "p99_us"})
            EXPECT_TRUE(one.contains(field)) << one;
        EXPECT_GT(one["ops_per_s"].get<double>(), 0) << one;
    }
}

TEST_P(tool_perf, all_runs_every_test) {
    const auto got =
        amalgam_tool(std::string("perf all --seconds 0.05 --json --uri ") + GetParam());
    ASSERT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 12) << got.output;
}

INSTANTIATE_TEST_SUITE_P(native, tool_perf, testing::Values("shm://", "tcp://127.0.0.1:0"));

#ifdef AMALGAM_WITH_MPI
TEST(tool_perf_by_ranks, starts_mpirun_and_measures_between_two) {
    for (const std::string test : {"rpc-latency", "bulk-pull", "stream-rate"}) {
        const auto got = amalgam_tool("perf " + test + " --seconds 0.02 --json --uri mpi+static");
        ASSERT_EQ(got.code, 0) << got.output;
        const auto m = nlohmann::json::parse(got.output);
        EXPECT_EQ(m["test"], test);
        EXPECT_GT(m["ops_per_s"].get<double>(), 0);
    }
}
#endif

TEST(tool_perf_misuse, an_unknown_test_is_told_which_there_are) {
    const auto got = amalgam_tool("perf speed");
    EXPECT_EQ(got.code, 2);
    EXPECT_TRUE(contains(got.output, "rpc-latency")) << got.output;
}

TEST(tool_perf_misuse, a_transport_there_is_not_is_told_in_one_sentence) {
    const auto got = amalgam_tool("perf message-latency --uri pigeon://loft --seconds 0.05");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(got.output.starts_with("amalgam: ")) << got.output;
    EXPECT_TRUE(contains(got.output, "no transport \"pigeon\"")) << got.output;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1) << got.output;
}

TEST(tool_perf_misuse, a_transport_within_one_process_is_refused_with_the_reason) {
    const auto got = amalgam_tool("perf message-latency --uri loop://here --seconds 0.05");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(contains(got.output, "two")) << got.output;
}

TEST(tool_addresses, that_no_process_can_have_are_refused_as_a_wrong_command_line) {
    for (const char* command : {"ping", "find --at", "directory", "directory --join"}) {
        for (const char* address : {"nonsense", "loop://other"}) {
            const auto got = amalgam_tool(std::string(command) + ' ' + address);
            EXPECT_EQ(got.code, 2) << command << ' ' << address << ": " << got.output;
            EXPECT_TRUE(contains(got.output, "example: ")) << got.output;
        }
    }
    EXPECT_EQ(amalgam_tool("ping tcp://127.0.0.1").code, 2);
}

TEST(tool_seconds, that_are_not_a_number_are_refused) {
    for (const char* command : {"directory --silence", "perf message-latency --seconds"}) {
        for (const char* seconds : {"nan", "-1", "soon"}) {
            const auto got = amalgam_tool(std::string(command) + ' ' + seconds);
            EXPECT_EQ(got.code, 2) << got.output;
            EXPECT_TRUE(contains(got.output, "is not a number of seconds from ")) << got.output;
        }
    }
}

TEST(tool_perf_vs, a_missing_library_is_one_line_and_the_rest_goes_on) {
    const auto got =
        amalgam_tool("perf all --vs nosuch --seconds 0.02 --uri shm:// --uri tcp://127.0.0.1:0");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(
        contains(got.output,
                 "amalgam perf: skipping nosuch: no program amalgam-peer-nosuch beside this one "
                 "or in PATH; it is built with Amalgam if the library is installed\n"))
        << got.output;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1 + 1 + 24) << got.output;
}

/// A folder with a peer that answers every question with a known figure.
class tool_perf_with_a_peer : public testing::Test {
protected:
    void SetUp() override {
        folder_ = testing::TempDir() + "peer" + std::to_string(::getpid());
        ASSERT_EQ(::mkdir(folder_.c_str(), 0700), 0);
        std::ofstream(folder_ + "/amalgam-peer-known") << R"(#!/bin/sh
[ $1 != put-bandwidth ] || exit 3
echo a warning >&2
echo "{\"test\":\"$1\",\"uri\":\"known $2\",\"size_bytes\":$3,\"depth\":$4,\"ops_per_s\":1e6,\"bytes_per_s\":1073741824,\"p50_us\":1,\"p99_us\":1}"
)";
        ASSERT_EQ(::chmod((folder_ + "/amalgam-peer-known").c_str(), 0700), 0);
        path_ = std::getenv("PATH");
        ::setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
    }
    void TearDown() override {
        ::setenv("PATH", path_.c_str(), 1);
        ::unlink((folder_ + "/amalgam-peer-known").c_str());
        ::unlink((folder_ + "/out.svg").c_str());
        ::rmdir(folder_.c_str());
    }
    std::string folder_, path_;
};

TEST_F(tool_perf_with_a_peer, prints_ours_over_theirs) {
    const auto got = amalgam_tool("perf rpc-latency --vs known --seconds 0.05");
    ASSERT_EQ(got.code, 0) << got.output;
    std::istringstream words(got.output.substr(got.output.find('\n') + 1));
    std::string test, uri, size, depth, unit, ours, theirs, ratio;
    words >> test >> uri >> size >> depth >> unit >> ours >> theirs >> ratio;
    EXPECT_EQ(test, "rpc-latency");
    EXPECT_EQ(unit, "us");
    EXPECT_EQ(theirs, "1.000");
    EXPECT_TRUE(ratio.ends_with("x")) << ratio;
    EXPECT_NEAR(std::stod(ratio), std::stod(ours), 0.01);
}

TEST_F(tool_perf_with_a_peer, shows_nothing_where_the_library_has_no_such_thing) {
    for (const char* test : {"bulk-push", "stream-rate"}) {
        const auto got = amalgam_tool(std::string("perf ") + test + " --vs known --seconds 0.05");
        ASSERT_EQ(got.code, 0) << got.output;
        EXPECT_TRUE(got.output.ends_with("            -      -\n")) << got.output;
    }
}

TEST_F(tool_perf_with_a_peer, draws_a_line_for_each_uri_and_library) {
    const auto got = amalgam_tool(
        "perf message-latency --seconds 0.01 --uri shm:// --uri "
        "tcp://127.0.0.1:0 --vs known --plot " +
        folder_ + "/out.svg");
    ASSERT_EQ(got.code, 0) << got.output;
    std::ifstream file(folder_ + "/out.svg");
    const std::string svg(std::istreambuf_iterator<char>(file), {});
    EXPECT_TRUE(svg.starts_with("<svg xmlns=")) << svg;
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    for (const char* text : {">amalgam shm://<", ">amalgam tcp://127.0.0.1:0<", ">bare known shm<",
                             ">bare known tcp<", ">size (bytes)<", ">round trip (us)<", ">256 Ki<",
                             ">message-latency: full round trip of a message<"})
        EXPECT_TRUE(contains(svg, text)) << text << " in " << svg;
    EXPECT_EQ(std::count(got.output.begin(), got.output.end(), '\n'), 1 + 2 + 2 * 7);
}

TEST(tool_perf_misuse, an_image_that_is_not_named_svg_is_refused) {
    const auto got = amalgam_tool("perf all --plot perf.png");
    EXPECT_EQ(got.code, 2);
    EXPECT_TRUE(contains(got.output, "\"perf.png\" does not end in .svg")) << got.output;
}

TEST(tool_perf_misuse, an_image_that_cannot_be_written_is_told_before_anything_is_measured) {
    const auto got = amalgam_tool("perf all --plot /no/such/folder/out.svg");
    EXPECT_EQ(got.code, 1);
    EXPECT_TRUE(contains(got.output, "cannot write to the file \"/no/such/folder/out.svg\""))
        << got.output;
}

TEST(tool_inject, build_finds_the_headers_beside_which_it_is_installed) {
    namespace files = std::filesystem;
    const files::path prefix = testing::TempDir() + "prefix" + std::to_string(::getpid());
    files::create_directories(prefix / "bin");
    std::error_code far;
    files::create_hard_link(AMALGAM_TOOL, prefix / "bin/amalgam", far);
    if (far) files::copy_file(AMALGAM_TOOL, prefix / "bin/amalgam");
    files::create_directory_symlink(AMALGAM_INCLUDE_FOLDER, prefix / "include");
    std::ofstream(prefix / "seven.cpp") << "#include <amalgam/inject/injected.hpp>\n"
                                           "int seven(long&) { return 7; }\n"
                                           "AMALGAM_INJECT(seven)\n";
    const std::string image = (prefix / "seven.image").string();
    const auto got = run_tool((prefix / "bin/amalgam").string(),
                              "inject build " + (prefix / "seven.cpp").string() + " -o " + image);
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_TRUE(contains(amalgam_tool("inject show " + image).output, "seven_main"));
    files::remove_all(prefix);
}

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/loop_pair.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

engine_config read(const std::string& json) {
    return parse_engine_config(json, "e.json").value();
}

constexpr const char* everything = R"({
    "endpoints": ["shm://", "tcp://127.0.0.1:0"],
    "name": "all",
    "streams": [{"name": "net", "cpu": -1}, {"pools": ["work", "io"], "scheduler": "priority"},
                {"name": "helper", "pools": ["work"], "scheduler": "work_stealing"}],
    "pools": {"io": {"kind": "fifo"}, "work": {"kind": "priority", "levels": 7}},
    "handlers": "work",
    "progress": {"by": "own_stream", "spin": "5us"},
    "spin": "1ms",
    "ports": {"silence_limit": "2s", "max_queued_bytes": 1000,
              "max_queued_bytes_total": 3000,
              "frame_limit": "9s", "max_strangers": 7, "insecure": true},
    "max_queued": 11, "max_running": 12, "max_unread_bytes": 13, "max_values_bytes": 14,
    "max_borrowed_bytes": 15, "max_borrowed_bytes_total": 16, "max_reader_bytes": 17,
    "encoding": "xdr", "checksum": true, "remote_stop": true, "reflection": false,
    "keepalive": {"interval": "3s", "timeout": "4s"},
    "drain": "1500ms"})";

TEST(engine_config, reads_every_option) {
    const engine_config config = read(everything);
    const engine_options& options = config.options;
    EXPECT_EQ(config.endpoints, (std::vector<std::string>{"shm://", "tcp://127.0.0.1:0"}));
    EXPECT_EQ(options.name, "all");
    EXPECT_EQ(
        options.streams,
        (stream_set{
            {.name = "net"},
            {.pools = {"work", "io"}, .scheduler = scheduler_kind::priority},
            {.name = "helper", .pools = {"work"}, .scheduler = scheduler_kind::work_stealing}}));
    EXPECT_EQ(options.pools, (std::vector<pool_options>{
                                 {.name = "io", .kind = pool_kind::fifo},
                                 {.name = "work", .kind = pool_kind::priority, .levels = 7}}));
    EXPECT_EQ(options.handlers, "work");
    EXPECT_EQ(options.progress, (progress_options{progress_by::own_stream, 5us}));
    EXPECT_EQ(options.spin, 1ms);
    EXPECT_EQ(options.ports.silence_limit, 2s);
    EXPECT_EQ(options.ports.max_queued_bytes, 1000u);
    EXPECT_EQ(options.ports.frame_limit, 9s);
    EXPECT_EQ(options.ports.max_strangers, 7u);
    EXPECT_TRUE(options.ports.insecure);
    EXPECT_EQ(options.ports.max_queued_bytes_total, 3000u);
    EXPECT_EQ(options.max_queued, 11u);
    EXPECT_EQ(options.max_running, 12u);
    EXPECT_EQ(options.max_unread_bytes, 13u);
    EXPECT_EQ(options.max_values_bytes, 14u);
    EXPECT_EQ(options.max_borrowed_bytes, 15u);
    EXPECT_EQ(options.max_borrowed_bytes_total, 16u);
    EXPECT_EQ(options.max_reader_bytes, 17u);
    EXPECT_EQ(options.encoding, encoding::xdr);
    EXPECT_TRUE(options.checksum);
    EXPECT_TRUE(options.remote_stop);
    EXPECT_FALSE(options.reflection);
    EXPECT_EQ(options.keepalive, (keepalive_options{3s, 4s}));
    EXPECT_EQ(options.drain, 1500ms);
}

TEST(engine_config, what_is_left_out_is_as_in_the_struct) {
    const engine_config config = read(R"({"endpoints": "shm://"})");
    EXPECT_EQ(to_json(config), to_json(engine_config{{"shm://"}, {}}));
    EXPECT_EQ(read(R"({"endpoints": "shm://", "streams": 3})").options.streams, stream_set(3));
    EXPECT_EQ(read(R"({"endpoints": "shm://", "spin": "always"})").options.spin, always_spin);
    EXPECT_EQ(read(R"({"endpoints": "shm://", "spin": "adaptive"})").options.spin, adaptive_spin);
}

TEST(engine_config, what_it_writes_reads_back_the_same) {
    const std::string once = to_json(read(everything));
    EXPECT_EQ(to_json(read(once)), once);
}

TEST(engine_config, the_configuration_of_an_engine_makes_an_equal_one) {
    std::string first;
    {
        engine one(read(everything));
        first = one.configuration();
        EXPECT_NE(first.find(one.addresses()[1]), std::string::npos);
        EXPECT_NE(first.find("all-1"), std::string::npos);  // The unnamed stream.
    }
    engine two(read(first));
    EXPECT_EQ(two.configuration(), first);
    EXPECT_EQ(two.stream_count(), 3u);
}

TEST(engine_config, streams_are_bound_to_sets_of_cpus) {
    const engine_config several =
        read(R"({"endpoints": "shm://", "streams": [{"cpus": "0-3,8"}, {"cpus": ""}]})");
    EXPECT_EQ(several.options.streams, (stream_set{{.cpus = cpu_set("0-3,8")}, {}}));
    EXPECT_EQ(read(to_json(several)).options.streams, several.options.streams);
    const unsigned first = cpu_set::of_this_thread().ids().front();
    const std::string cpu = std::to_string(first);
    engine here(read(R"({"endpoints": "shm://", "streams": [{}, {"name": "w", "cpus": ")" + cpu +
                     R"(,)" + cpu + R"("}], "handlers": "w"})"));
    EXPECT_EQ(here.run([] { return cpu_set::of_this_thread(); }), cpu_set{first});
    EXPECT_EQ(here.stream(1).cpus(), cpu_set{first});
    EXPECT_TRUE(here.stream(0).cpus().empty());
    EXPECT_EQ(read(here.configuration()).options.streams.each[1].cpus, cpu_set{first});
}

TEST(engine_config, names_of_cpus_are_written_as_the_cpus_that_they_stand_for) {
    constexpr const char* json = R"({"endpoints": "shm://", "streams": [{"cpus": "core:0"}]})";
    const auto config = parse_engine_config(json, "e.json");
    if (!config.ok() && config.sentence().find("hwloc") != std::string::npos)
        GTEST_SKIP() << config.sentence();
    EXPECT_EQ(config->options.streams.each[0].cpus, cpu_set("core:0"));
    EXPECT_EQ(read(to_json(*config)).options.streams.each[0].cpus, cpu_set("core:0"));
}

TEST(engine_config, limits_that_are_none_read_back) {
    constexpr std::size_t endless = std::numeric_limits<std::size_t>::max();
    for (const auto limit :
         {std::chrono::milliseconds::max(), std::chrono::milliseconds(8 * 24h)}) {
        const engine_options most{.progress = {.spin = always_spin - 1ns},
                                  .spin = always_spin - 1ns,
                                  .ports = {.silence_limit = limit,
                                            .frame_limit = limit,
                                            .max_strangers = endless,
                                            .max_queued_bytes = endless,
                                            .max_queued_bytes_total = endless},
                                  .max_queued = endless,
                                  .max_running = endless,
                                  .max_one_ways = endless,
                                  .max_unread_bytes = endless,
                                  .max_unread_bytes_total = endless,
                                  .max_borrowed_bytes = endless,
                                  .max_borrowed_bytes_total = endless,
                                  .max_reader_bytes = endless,
                                  .max_values_bytes = endless,
                                  .drain = limit,
                                  .keepalive = {.interval = limit, .timeout = limit}};
        const engine one{"shm://", most};
        const std::string all = one.configuration();
        EXPECT_EQ(to_json(read(all)), all);
    }
    const engine none{"shm://", {.drain = std::chrono::milliseconds::min()}};
    EXPECT_EQ(read(none.configuration()).options.drain, 0ms);
}

TEST(engine_config, names_with_control_bytes_are_shown_in_what_is_said_of_them) {
    const auto said = [](const char* json) {
        return std::string(parse_engine_config(json, "e.json").sentence());
    };
    EXPECT_EQ(said("{\"endpoints\": \"shm://\", \"a\\u0000b\": 1}").find("e.json: a\\x00b is not"),
              0u);
    EXPECT_EQ(said("{\"endpoints\": \"shm://\", \"pools\": {\"a\\nb\": {}}}")
                  .find("e.json: no stream serves pools.a\\x0ab"),
              0u);
    engine here{"shm://"};
    try {
        here.pool(std::string_view("a\0b", 3));
        ADD_FAILURE();
    } catch (const error& why) {
        EXPECT_STREQ(why.what(), "this engine has no pool \"a\\x00b\", expected one of: amalgam");
    }
}

TEST(engine_config, the_configuration_tells_what_changed_since) {
    engine here{"shm://", {.name = "e"}};
    here.set_progress({.by = progress_by::own_stream, .spin = 3us});
    const engine_config now = read(here.configuration());
    EXPECT_EQ(now.options.progress, (progress_options{progress_by::own_stream, 3us}));
    EXPECT_EQ(now.options.streams, (stream_set{{.name = "e"}, {.name = "e-1"}}));
    EXPECT_EQ(now.endpoints, here.addresses());
    engine tcp{"tcp://"};
    EXPECT_EQ(read(tcp.configuration()).endpoints, std::vector<std::string>{"tcp://"});
}

TEST(engine_config, the_configuration_names_the_credentials_that_the_uris_named) {
    const temp_folder folder;
    const std::string lab = folder.with("lab"), node = folder.with("node");
    make_key(lab, {.name = "lab", .authority = true});
    make_key(node, {.name = "node", .hosts = {"127.0.0.1"}});
    sign_key(node, lab);
    std::string first;
    {
        engine one(std::vector<std::string>{"tcp+tls://127.0.0.1:0?credentials=" + node,
                                            "tcp+tls://?credentials=" + node, "shm://"});
        first = one.configuration();
        EXPECT_EQ(read(first).endpoints,
                  (std::vector<std::string>{one.addresses()[0] + "?credentials=" + node,
                                            "tcp+tls://?credentials=" + node, one.addresses()[1]}));
    }
    engine two(read(first));
    EXPECT_EQ(two.configuration(), first);
}

TEST(engine_config, a_lookup_that_names_credentials_goes_by_the_port_that_has_them) {
    const temp_folder folder;
    make_key(folder.with("lab"), {.name = "lab", .authority = true});
    for (const char* each : {"one", "two"}) {
        make_key(folder.with(each), {.name = each, .hosts = {"127.0.0.1"}});
        sign_key(folder.with(each), folder.with("lab"));
    }
    engine server("tcp+tls://127.0.0.1:0?credentials=" + folder.with("one"));
    server.define("who", [] { return to_text(call_context::current().who()); });
    engine client(std::vector<std::string>{"tcp+tls://?credentials=" + folder.with("one"),
                                           "tcp+tls://?credentials=" + folder.with("two")});
    const auto who = client.procedure<std::string()>("who");
    const std::string address = server.address();
    EXPECT_EQ(who.on(client.lookup(address + "?credentials=" + folder.with("two")))(), "two");
    EXPECT_EQ(who.on(client.lookup(address + "?credentials=" + folder.with("one")))(), "one");
    EXPECT_EQ(who.on(client.lookup(address))(), "one");
    const auto other = client.try_lookup(address + "?credentials=other");
    EXPECT_EQ(other.code(), errc::invalid);
    EXPECT_NE(other.sentence().find("are those that it was opened with"), std::string::npos);
}

TEST(engine_config, the_configuration_names_the_uris_that_are_meant_to_be_open) {
    std::string first;
    {
        engine one("tcp://0.0.0.0:0?insecure=yes");
        first = one.configuration();
        EXPECT_EQ(read(first).endpoints, std::vector<std::string>{one.address() + "?insecure=yes"});
    }
    engine two(read(first));  // Refused without.
    EXPECT_EQ(two.configuration(), first);
}

TEST(engine_config, handlers_run_where_the_config_says) {
    engine server(read(everything));
    engine client{"shm://"};
    const auto stream_name = [] { return std::string(execution_stream::current()->name()); };
    server.define("default", stream_name);
    server.define("io", stream_name, {.in_pool = "io"});
    server.define("net", stream_name, {.in_pool = "net"});
    const auto ask = [&](const char* name) {
        return client.procedure<std::string()>(name).on(server.address())();
    };
    for (int i = 0; i < 20; ++i) {
        EXPECT_NE(ask("default"), "net");
        EXPECT_EQ(ask("io"), "all-1");
        EXPECT_EQ(ask("net"), "net");
    }
}

TEST(engine_config, every_kind_of_pool_and_scheduler_serves_calls) {
    for (const char* kind : {"fifo", "shared_fifo", "lifo", "priority", "work_stealing"}) {
        for (const char* order : {"in_turn", "priority", "work_stealing"}) {
            const std::string json = std::string(R"({"endpoints": "shm://", "handlers": "p",
                "pools": {"p": {"kind": ")") +
                                     kind + R"("}}, "streams": [{"pools": ["p"], "scheduler": ")" +
                                     order + R"("}]})";
            engine server(read(json));
            engine client{"shm://"};
            server.define("f", [](int n) { return n; });
            auto f = client.procedure<int(int)>("f").on(server.address());
            for (int i = 0; i < 20; ++i)
                EXPECT_EQ(f(i), i);
        }
    }
}

TEST(engine_config, streams_that_share_a_pool_with_the_ports_serve_calls) {
    engine server{"shm://",
                  {.streams = {{.pools = {"all"}}, {.pools = {"all"}}, {.pools = {"all"}}},
                   .pools = {{.name = "all"}},
                   .handlers = "all"}};
    engine client{"shm://"};
    server.define("f", [](int n) {
        this_task::yield();
        return n;
    });
    auto f = client.procedure<int(int)>("f").on(server.address());
    client.run([&] {
        std::vector<future<int>> calls;
        for (int i = 0; i < 1000; ++i)
            calls.push_back(f.start(i));
        for (int i = 0; i < 1000; ++i)
            EXPECT_EQ(calls[static_cast<std::size_t>(i)].get(), i);
    });
}

TEST(engine_config, a_pool_that_is_not_there_is_refused_with_those_that_are) {
    engine here{"shm://", {.streams = {{.name = "a"}, {.pools = {"b"}}}, .pools = {{.name = "b"}}}};
    const error none = error_of([&] { here.pool("c"); });
    EXPECT_EQ(none.code(), errc::not_found);
    EXPECT_NE(std::string(none.what()).find("expected one of: b, a"), std::string::npos);
    EXPECT_EQ(error_of([&] { here.define("f", [] {}, {.in_pool = "c"}); }).code(), errc::not_found);
    EXPECT_EQ(error_of([&] { here.define("f", [] {}, {.in_pool = "b", .streams = 1}); }).code(),
              errc::invalid);
    EXPECT_EQ(&here.pool("a"), &here.stream(0).main_pool());
    EXPECT_EQ(&here.pool("b"), &here.stream(1).main_pool());
}

TEST(engine_config, files_are_read_and_a_missing_one_is_named) {
    const temp_folder folder;
    const std::string path = folder.with("engine.json", R"({"endpoints": "shm://"})");
    EXPECT_EQ(load_engine_config(path).value().endpoints, std::vector<std::string>{"shm://"});
    std::remove(path.c_str());
    const auto gone = load_engine_config(path);
    EXPECT_EQ(gone.code(), errc::not_found);
    EXPECT_NE(gone.sentence().find(path), std::string::npos);
}

TEST(engine_config, a_folder_a_file_without_end_and_a_number_too_large_are_refused) {
    const auto folder = load_engine_config(testing::TempDir());
    EXPECT_EQ(folder.code(), errc::not_found);
    EXPECT_NE(folder.sentence().find(testing::TempDir() + "\" cannot be read"), std::string::npos);
    const auto endless = load_engine_config("/dev/zero");
    EXPECT_EQ(endless.code(), errc::invalid);
    EXPECT_NE(endless.sentence().find("\"/dev/zero\" is longer than 16 MiB"), std::string::npos);
    const auto large = parse_engine_config(R"({"endpoints": 1e999})", "e.json");
    EXPECT_EQ(large.code(), errc::invalid);
    EXPECT_EQ(large.sentence().find("e.json: a number is too large"), 0u);
}

TEST(engine_config, more_than_100_lists_in_each_other_are_refused) {
    const auto sentence_for = [](std::size_t lists) {
        const std::string deep = std::string(lists, '[') + std::string(lists, ']');
        const auto config = parse_engine_config(R"({"endpoints": )" + deep + "}", "e.json");
        return std::string(config.sentence());
    };
    const std::string refusal =
        "e.json: more than 100 lists and objects in each other, expected fewer";
    EXPECT_EQ(sentence_for(200000).find(refusal), 0u);
    EXPECT_EQ(sentence_for(100).find(refusal), 0u);
    EXPECT_EQ(sentence_for(99).find("e.json: endpoints[0] is [[["), 0u);
}

struct wrong_config {
    const char* json;      ///< Follows {"endpoints": "shm://", unless it starts with a brace.
    const char* expected;  ///< The sentence after "e.json: ".
};

class wrong_engine_configs : public testing::TestWithParam<wrong_config> {};

TEST_P(wrong_engine_configs, get_one_sentence_that_names_the_place) {
    std::string json = GetParam().json;
    if (json[0] != '{' && json[0] != '[') json = R"({"endpoints": "shm://", )" + json + "}";
    const auto config = parse_engine_config(json, "e.json");
    ASSERT_FALSE(config.ok()) << json;
    EXPECT_EQ(config.code().code, errc::invalid);
    EXPECT_EQ(config.sentence(), std::string("e.json: ") + GetParam().expected);
}

constexpr wrong_config wrong[] = {
    {"{\n\"endpoints\": ,",
     R"(line 2 is not JSON, expected an object; example: {"endpoints": "tcp://127.0.0.1:0"})"},
    {"[1]",
     R"(the config is [1], expected an object; example: {"endpoints": "tcp://127.0.0.1:0"})"},
    {"{}", R"(endpoints is missing, expected a URI, or a list of them; )"
           R"(example: {"endpoints": "tcp://127.0.0.1:0"})"},
    {R"({"endpoints": []})", R"(endpoints is [], expected a URI, or a list of them; )"
                             R"(example: ["shm://", "tcp://127.0.0.1:0"])"},
    {R"({"endpoints": ["shm://", 7]})",
     R"(endpoints[1] is 7, expected a URI; example: "tcp://127.0.0.1:0")"},
    {R"("name": "a", "name": "b")", R"(the key "name" appears twice in one object, expected once)"},
    {R"("stream": 2)",
     "stream is not known, expected one of: endpoints, name, streams, pools, "
     "handlers, progress, spin, ports, max_queued, max_running, "
     "max_one_ways, max_unread_bytes, max_unread_bytes_total, max_borrowed_bytes, "
     "max_borrowed_bytes_total, max_reader_bytes, max_values_bytes, encoding, "
     "checksum, drain, remote_stop, reflection, keepalive, statistics, allow, allow_for"},
    {R"("allow": {})", R"(allow is {}, expected an object with names, groups or uids; )"
                       R"(example: {"groups": ["operators"], "uids": [0]})"},
    {R"("allow": {"name": ["a"]})",
     "allow.name is not known, expected one of: names, groups, uids"},
    {R"("allow": {"names": "a"})",
     R"(allow.names is "a", expected a list of names; example: ["node7"])"},
    {R"("allow": {"groups": [7]})",
     R"(allow.groups[0] is 7, expected a group; example: "operators")"},
    {R"("allow": {"uids": [-1]})",
     "allow.uids[0] is -1, expected a number from 0 to 4294967295; example: 1000"},
    {R"("allow_for": [])", R"(allow_for is [], expected an object of allow lists by procedure; )"
                           R"(example: {"sum": {"groups": ["operators"]}})"},
    {R"("allow_for": {"sum": {}})",
     R"(allow_for.sum is {}, expected an object with names, groups or uids; )"
     R"(example: {"groups": ["operators"], "uids": [0]})"},
    {R"("keepalive": {"interval": "1s", "timeout": "0s"})",
     "keepalive.timeout is 0 ms, expected 1 ms or more; example: \"20s\""},
    {R"("streams": 0)", "streams is 0, expected a number from 1 to 1024; example: 2"},
    {R"("streams": -18446744073709551615)",
     "streams is -1.8446744073709552e+19, expected a number from 1 to 1024; example: 2"},
    {R"("streams": [])", R"(streams is [], expected a number or a list of 1 to 1024 streams; )"
                         R"(example: [{"cpu": 0}, {"cpu": 1}])"},
    {R"("streams": [{"cpu": "two"}])",
     R"(streams[0].cpu is "two", expected a number from -1 to 1023; example: 0)"},
    {R"("streams": [{"core": 2}])",
     "streams[0].core is not known, expected one of: name, cpu, cpus, pools, scheduler"},
    {R"("streams": [{"cpus": 3}])",
     R"(streams[0].cpus is 3, expected a set of CPUs; example: "numa:1")"},
    {R"("streams": [{}, {"cpus": "0-"}])",
     R"(streams[1].cpus: "0-" in the set of CPUs "0-" cannot be read, expected a number, a range, )"
     R"(or one after socket:, numa:, core:, whole_core: or thread:; example: "0-3,core:8")"},
    {R"("streams": [{}, {"cpu": 0, "cpus": "0-1"}])",
     R"(streams[1] has cpu 0 and cpus 0-1, expected one of them; example: {"cpus": "0-3"})"},
    {R"("progress": {"by": "caller"}, "streams": [{"cpus": "0"}])",
     R"(streams[0].cpus is "0", expected none, as progress.by is caller and the thread is the )"
     R"(caller's; example: {"cpus": ""})"},
    {R"("streams": [{}, {"pools": ["wrk"]}], "pools": {"work": {}})",
     "no stream serves pools.work, expected a stream that lists it; example: \"streams\": "
     "[{}, {\"pools\": [\"work\"]}]"},
    {R"("streams": [{}, {"pools": ["work", "wrk"]}], "pools": {"work": {}})",
     R"(streams[1].pools[1] is "wrk", expected one of pools: work)"},
    {R"("streams": [{"pools": ["w", "w"]}], "pools": {"w": {}})",
     R"(streams[0].pools has "w" twice, expected each pool once; example: ["w"])"},
    {R"("streams": [{"pools": ["w"]}, {"pools": ["w"]}], "pools": {"w": {"kind": "fifo"}})",
     R"(pools.w.kind is fifo, but 2 streams list the pool, expected a kind that )"
     R"(several streams can serve; example: "shared_fifo")"},
    {R"("streams": [{"name": "w", "pools": ["w"]}], "pools": {"w": {}})",
     R"(pools and streams use the name "w" twice, expected unique names; example: "io")"},
    {R"("streams": [{"name": "a"}, {"name": "a"}])",
     R"(pools and streams use the name "a" twice, expected unique names; example: "io")"},
    {R"("pools": ["a"])",
     R"(pools is ["a"], expected an object of pools by name; example: {"io": {"kind": "fifo"}})"},
    {R"("pools": {"a": {"kind": "fast"}})",
     R"(pools.a.kind is "fast", expected one of "shared_fifo", "fifo", "lifo", "priority", )"
     R"("work_stealing"; example: "shared_fifo")"},
    {R"("handlers": "x", "name": "e")",
     R"(handlers is "x", expected one of: e; or empty, for the first stream's pool)"},
    {R"("handlers": "e", "name": "e", "progress": {"by": "own_stream"})",
     R"(handlers is "e", which the first stream serves, expected a pool of another stream, )"
     R"(as progress.by is own_stream; example: "streams": [{}, {"name": "work"}], "handlers": "work")"},
    {R"("progress": {"by": "magic"})",
     R"(progress.by is "magic", expected one of "shared", "own_stream", "caller"; )"
     R"(example: "shared")"},
    {R"("progress": {"by": "caller"}, "streams": [{"cpu": 0}])",
     R"(streams[0].cpu is 0, expected -1, as progress.by is caller and the thread is the )"
     R"(caller's; example: {"cpu": -1})"},
    {R"("spin": "20")",
     R"(spin is "20", expected a time in ns, us, ms or s, "adaptive" or "always"; example: "20us")"},
    {R"("encoding": "json")",
     R"(encoding is "json", expected one of "native", "xdr"; example: "native")"},
    {R"("checksum": "on")", R"(checksum is "on", expected true or false; example: true)"},
    {R"("drain": "99999999s")",
     R"(drain is "99999999s", expected a time in ns, us, ms or s; example: "500ms")"},
    {R"("ports": {"silence_limit": "0s"})",
     R"(ports.silence_limit is "0s", expected a positive duration; example: "5s")"},
    {R"("max_running": 1.5)",
     "max_running is 1.5, expected a number from 0 to 1125899906842624; example: 16384"},
};
INSTANTIATE_TEST_SUITE_P(engine_config, wrong_engine_configs, testing::ValuesIn(wrong));

TEST(engine_config, the_same_mistakes_in_the_struct_get_the_same_sentence) {
    const error wrong_pool =
        error_of([] { engine here("shm://", {.streams = {{.pools = {"wrk"}}}}); });
    EXPECT_EQ(wrong_pool.code(), errc::invalid);
    EXPECT_NE(std::string(wrong_pool.what()).find("streams[0].pools[0] is \"wrk\""),
              std::string::npos);
    loop_network net;
    EXPECT_EQ(error_of([&] { engine here(net.port("a"), {.streams = 2}); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] {
                  engine here(net.port("a"), {.progress = {.by = progress_by::caller}});
              }).code(),
              errc::invalid);
}

}  // namespace
}  // namespace amalgam

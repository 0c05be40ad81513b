#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

TEST(added_pool, runs_procedures_that_are_defined_in_it_or_moved_there) {
    engine server{"tcp://127.0.0.1:0"};
    engine client{"tcp://"};
    const auto stream = [] { return std::string(execution_stream::current()->name()); };
    server.define("first", stream);
    server.add_pool({.name = "io"}, 2);
    server.define("second", stream, {.in_pool = "io"});
    const peer there = client.lookup(server.address());
    const auto first = client.procedure<std::string()>("first").on(there);
    const auto second = client.procedure<std::string()>("second").on(there);
    EXPECT_EQ(first(), "amalgam");
    EXPECT_EQ(second(), "amalgam-io");
    server.move_procedure("first", "io");
    EXPECT_EQ(first(), "amalgam-io");
    EXPECT_EQ(error_of([&] { server.remove_pool("io"); }).code(), errc::in_use);
    server.move_procedure("first", {});
    server.move_procedure("second", "amalgam");
    EXPECT_EQ(first(), "amalgam");
    EXPECT_EQ(second(), "amalgam");
    EXPECT_FALSE(server.remove_pool("none"));
    EXPECT_EQ(error_of([&] { server.move_procedure("first", "none"); }).code(), errc::not_found);
    EXPECT_EQ(error_of([&] { server.move_procedure("none", "io"); }).code(), errc::not_found);
    EXPECT_EQ(error_of([&] { server.add_pool({.name = "io"}); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { server.add_pool({.name = ""}); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { server.add_pool({.name = "x"}, 0); }).code(), errc::invalid);
}

TEST(change_engine, adds_pools_moves_procedures_and_removes_pools_by_json) {
    engine server{"tcp://127.0.0.1:0"};
    const auto stream = [] { return std::string(execution_stream::current()->name()); };
    server.define("where", stream, {.provider = 3});
    const auto where =
        server.procedure<std::string()>("where").on(server.lookup(server.address()), 3);
    change_engine(server, R"({"add_pools": {"io": {"kind": "lifo", "streams": 2}},
                              "move": [{"name": "where", "provider": 3, "to": "io"}]})");
    EXPECT_EQ(where(), "amalgam-io");
    EXPECT_EQ(error_of([&] { change_engine(server, R"({"remove_pools": ["io"]})"); }).code(),
              errc::in_use);
    change_engine(server, R"({"move": [{"name": "where", "provider": 3, "to": "amalgam"}]})");
    EXPECT_EQ(where(), "amalgam");
}

TEST(change_engine, a_mistake_is_told_with_its_place_and_nothing_is_changed) {
    engine server{"tcp://127.0.0.1:0"};
    server.define("f", [] { return std::string(execution_stream::current()->name()); });
    server.add_pool({.name = "busy"});
    server.define("in busy", [] {}, {.in_pool = "busy"});
    const auto f = server.procedure<std::string()>("f").on(server.lookup(server.address()));
    const std::pair<const char*, const char*> cases[] = {
        {R"({"pools": {}})",
         "pools is not known, expected one of: add_pools, add_streams, move, remove_streams, "
         "remove_pools"},
        {R"({"add_pools": {"io": {"streams": 0}}})",
         "add_pools.io.streams is 0, expected a number from 1 to 1024; example: 2"},
        {R"({"add_pools": {"io": {}}, "move": [{"name": "f"}]})",
         R"(move[0] is {"name":"f"}, expected a procedure's name and a pool; )"
         R"(example: {"name": "sum", "to": "io"})"},
        {R"({"add_pools": {"io": {}, "amalgam": {}}})",
         "changes: add_pools.amalgam: the pool \"amalgam\" cannot be added"},
        {R"({"add_pools": {"io": {}}, "move": [{"name": "f", "to": "io"}, {"name": "g", "to": "io"}]})",
         "changes: move[1]: this engine serves no procedure \"g\""},
        {R"({"add_pools": {"io": {}}, "move": [{"name": "f", "to": "io"}],
             "remove_pools": ["busy"]})",
         "changes: remove_pools[0]: the pool \"busy\" cannot be removed"},
        {R"({"add_pools": {"io": {}}, "remove_pools": ["none"]})",
         "changes: remove_pools[0]: this engine has no added pool \"none\""},
        {R"({"add_pools": {"io": {}}, "add_streams": [{"cores": 1}]})",
         "add_streams[0].cores is not known, expected one of: name, cpu, cpus, pools, scheduler"},
        {R"({"add_pools": {"io": {}}, "add_streams": {"pools": ["io"]}})",
         R"(expected a list of streams; example: [{"pools": ["io"]}])"},
        {R"({"add_pools": {"io": {}}, "add_streams": [{"name": "x", "pools": ["io"]}, {"pools": ["no"]}]})",
         "changes: add_streams[1]: this engine has no pool \"no\", expected one of: amalgam, busy, "
         "io"},
        {R"({"add_pools": {"io": {}}, "add_streams": [{"pools": ["io"]}], "remove_streams": ["no"]})",
         "changes: remove_streams[0]: this engine has no stream \"no\" to remove"},
        {R"({"add_pools": {"io": {}}, "remove_streams": "no"})",
         R"(remove_streams is "no", expected a list of stream names; example: ["worker"])"},
        {R"({"remove_pools": ["none"]})", "this engine has no added pool \"none\" to remove"},
        {"{", "changes"}};
    for (const auto& [json, why] : cases) {
        const error wrong = error_of([&, &json = json] { change_engine(server, json); });
        EXPECT_NE(std::string(wrong.what()).find(why), std::string::npos) << wrong.what();
        EXPECT_EQ(error_of([&] { server.pool("io"); }).code(), errc::not_found) << json;
        EXPECT_EQ(f(), "amalgam") << json;
    }
}

TEST(added_pool, is_not_removed_while_a_call_of_an_undefined_procedure_runs_and_says_so) {
    engine server{"tcp://127.0.0.1:0"};
    server.add_pool({.name = "io"});
    event begun, go_on;
    server.define("wait",
                  [&] {
                      begun.set();
                      go_on.wait();
                  },
                  {.in_pool = "io"});
    auto call = server.procedure<void()>("wait").on(server.lookup(server.address())).start();
    begun.wait();
    EXPECT_TRUE(server.undefine("wait"));
    const error why = error_of([&] { server.remove_pool("io"); });
    EXPECT_EQ(why.code(), errc::in_use);
    EXPECT_NE(std::string(why.what()).find("calls run there"), std::string::npos) << why.what();
    go_on.set();
    EXPECT_TRUE(call.wait().ok());
}

TEST(added_pool, reserved_procedures_are_not_moved) {
    engine server{"tcp://127.0.0.1:0"};
    server.add_pool({.name = "io"});
    EXPECT_EQ(error_of([&] { server.move_procedure("amalgam.ping", "io"); }).code(), errc::denied);
    EXPECT_TRUE(server.remove_pool("io"));
}

TEST(added_pool, is_removed_once_nothing_is_in_it) {
    engine server{"tcp://127.0.0.1:0"};
    server.add_pool({.name = "io", .kind = pool_kind::fifo});
    EXPECT_TRUE(server.remove_pool("io"));
    EXPECT_EQ(error_of([&] { server.pool("io"); }).code(), errc::not_found);
    server.add_pool({.name = "io"});
    server.define("f", [] {}, {.in_pool = "io"});  // Ends with the engine.
}

}  // namespace
}  // namespace amalgam

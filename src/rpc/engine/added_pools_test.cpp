#include <string>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>

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

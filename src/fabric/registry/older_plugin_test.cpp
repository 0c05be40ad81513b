// A plug-in built for version 2 of the interface: it keeps every promise that version made, and
// what it lacks never reaches it.
#include <array>
#include <cstdint>

#include <stdlib.h>

#include "conformance/transport_suite.hpp"
#include "fabric/port/port_testing.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

transport_registry with_older() {
    ::setenv("AMALGAM_PLUGIN_PATH", PLUGIN_FOLDER, 1);
    auto all = transport_registry::installed();
    ::unsetenv("AMALGAM_PLUGIN_PATH");
    return all;
}

const bool described = conformance::describe_transport(
    "for-test-older", {.registry = &with_older, .stays_within_process = true});

[[maybe_unused]] const bool over_loop = conformance::run_briefly("for-test-older://test-{}");
INSTANTIATE_TEST_SUITE_P(older, transport_suite, testing::Values("for-test-older://test-{}"));

struct older_plugin : testing::Test {
    transport_registry all = with_older();
    std::unique_ptr<port> here = all.open("for-test-older://here").value();
    std::unique_ptr<port> there = all.open("for-test-older://there").value();
    peer_id peer = here->lookup(there->address()).value();
    std::array<std::uint64_t, 8> numbers{};
    region target =
        there->open_region(std::as_writable_bytes(std::span(numbers)), access::read_write).value();
    std::array<recorded, 3> ops;
    std::uint64_t old = 77;

    void post_what_is_new() {
        const const_bytes bytes = as_bytes_of(old);
        EXPECT_EQ(here->post_put_notify(peer, {&bytes, 1}, target.key(), 0, 1, ops[0]),
                  posted::pending);
        EXPECT_EQ(here->post_fetch_add(peer, target.key(), 0, 1, &old, ops[1]), posted::pending);
        EXPECT_EQ(here->post_compare_swap(peer, target.key(), 0, 0, 1, &old, ops[2]),
                  posted::pending);
    }
};

TEST_F(older_plugin, says_that_it_lacks_what_is_new) {
    EXPECT_EQ(here->can().atomics, atomic_mode::none);
    EXPECT_EQ(here->can().transport, "for-test-older");
    EXPECT_NE(here->explain().find("older than notified puts and atomic operations"),
              std::string::npos)
        << here->explain();
}

TEST_F(older_plugin, what_is_new_ends_unsupported_in_progress) {
    post_what_is_new();
    EXPECT_EQ(here->open_operations(), 3u);
    EXPECT_FALSE(here->prepare_to_sleep());
    here->cancel(ops[1]);
    EXPECT_EQ(ops[1].runs, 0);
    EXPECT_EQ(here->progress(2), 2u);
    EXPECT_EQ(here->open_operations(), 1u);
    here->progress();
    for (const recorded& each : ops) {
        EXPECT_TRUE(each.ended_with(errc::unsupported));
        EXPECT_EQ(each.bytes, 0u);
    }
    EXPECT_EQ(old, 77u);
    EXPECT_EQ(here->open_operations(), 0u);
    here->cancel(ops[0]);
    EXPECT_EQ(ops[0].runs, 1);
}

TEST_F(older_plugin, what_is_new_ends_closed_with_the_port_and_may_post_then) {
    post_what_is_new();
    recorded more;
    ops[2].then = [&] {
        EXPECT_EQ(here->post_fetch_add(peer, target.key(), 0, 1, &old, more), posted::full);
    };
    delete here.get();  // Not reset(): the port is posted to inside its end.
    (void)here.release();
    for (const recorded& each : ops)
        EXPECT_TRUE(each.ended_with(errc::closed));
    EXPECT_EQ(more.runs, 0);
}

TEST_F(older_plugin, what_it_had_goes_on_beside_what_is_refused) {
    post_what_is_new();
    recorded put;
    const std::uint64_t value = 5;
    const const_bytes bytes = as_bytes_of(value);
    EXPECT_EQ(here->post_put(peer, {&bytes, 1}, target.key(), 16, put), posted::pending);
    for (int i = 0; i < 1000 && put.runs == 0; ++i) {
        here->progress();
        there->progress();
    }
    EXPECT_TRUE(put.ended_with(errc::ok));
    EXPECT_EQ(numbers[2], 5u);
    target = region();
}

}  // namespace
}  // namespace amalgam::detail

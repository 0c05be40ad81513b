#include "fabric/registry/older_port.hpp"

#include <cstdint>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/fabric/transport.hpp>

#include "fabric/port/port_testing.hpp"
#include "fabric/port/scripted_port.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

TEST(older_port, counts_copies_since_version_5) {
    for (std::uint32_t version = 2; version <= 6; ++version) {
        auto inner = std::make_unique<scripted_port>();
        inner->copied = 7;
        EXPECT_EQ(inner->transfers().copied_bytes, 7u);
        const auto older = make_older_port(std::move(inner), version);
        EXPECT_EQ(older->transfers().copied_bytes, version < 5 ? 0u : 7u) << version;
    }
}

TEST(older_port, knows_who_it_is_itself_since_version_6) {
    for (std::uint32_t version = 2; version <= 6; ++version) {
        auto inner = std::make_unique<scripted_port>();
        inner->own.name = "node7";
        const auto older = make_older_port(std::move(inner), version);
        EXPECT_EQ(older->self().name, version < 6 ? "" : "node7") << version;
    }
}

TEST(older_port, knows_who_a_peer_is_since_version_4) {
    for (std::uint32_t version = 2; version <= 6; ++version) {
        const auto open = [] { return transport_registry::native().open("shm://").value(); };
        const auto older = make_older_port(open(), version);
        const auto there = open();
        recorded_messages arrived;
        there->set_sink(&arrived);
        const peer_id peer = older->lookup(there->address()).value();
        recorded sent;
        const posted how = older->post_send(peer, 1, {}, sent);
        for (int i = 0; i < 1'000'000 && arrived.all.empty(); ++i) {
            older->progress(64);
            there->progress(64);
        }
        ASSERT_FALSE(arrived.all.empty());
        EXPECT_EQ(older->who(peer).kind, version < 4 ? identity_kind::none : identity_kind::process)
            << version;
        if (how == posted::pending) {
            while (sent.runs == 0)
                older->progress(64);
        }
        there->set_sink(nullptr);
    }
}

}  // namespace
}  // namespace amalgam::detail

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>

#include "directory/limits.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/protocol/procedures.hpp"
#include "directory/resources/store.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(ring_ids, a_claim_that_was_refused_is_none_any_more_when_the_owner_is_gone) {
    loop_network net;
    net.delay(50us, 150us);
    engine host(net.port("host")), other_host(net.port("other")), user(net.port("user"));
    const directory_server directory(host, {.ring = {.seed = 1}});
    net.run_for(1s);
    const directory_server other(other_host, {.ring = {.others = {host.address()}, .seed = 2}});
    net.run_for(2s);
    namespace d = detail::at_directory;
    const auto in_user = [&](auto work) {
        auto done = user.spawn(std::move(work));
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(10ms);
        EXPECT_TRUE(done.ready());
        return done.get();
    };
    const resource_id its = in_user([&] {
        return user.procedure<d::open>(d::open_name)
            .on(other_host.address())(attribute_list())
            .take();
    });
    const auto reopens = [&] {
        return in_user([&] {
            return user.procedure<d::reopen>(d::reopen_name)
                .on(host.address())(its, its, attribute_list())
                .code;
        });
    };
    EXPECT_EQ(reopens(), errc::denied);
    net.kill("other");
    net.run_for(4s);
    EXPECT_EQ(directory.servers(), 1u);
    EXPECT_EQ(reopens(), errc::ok);
}

// Servers that are not there have all ranges, until they are found to be gone.
TEST(ring_ids, a_server_that_found_no_free_range_looks_again_when_it_is_asked) {
    using namespace detail;
    loop_network net;
    net.delay(50us, 150us);
    engine host(net.port("host")), liar(net.port("liar")), user(net.port("user"));
    std::vector<member> all;
    for (std::uint32_t range = 0; range < limits::id_ranges; ++range) {
        if (range % limits::max_ranges == 0)
            all.push_back({2 + range, 1, {liar.address()}, {}, {}});
        all.back().ranges.push_back(range);
    }
    liar.define<in_ring::members>(library_name{in_ring::members_name}, [&] { return all; });
    liar.define<in_ring::join>(library_name{in_ring::join_name}, [](const member&) {});
    liar.define<in_ring::ping>(library_name{in_ring::ping_name}, [](std::uint64_t, std::uint32_t) {
        return alive_answer{true, 1, 0};
    });
    const directory_server directory(host, {.ring = {.others = {liar.address()}, .seed = 1}});
    net.run_for(100ms);
    EXPECT_EQ(directory.servers(), all.size() + 1);
    const auto opens = [&] {
        auto done = user.spawn([&] {
            return user.procedure<at_directory::open>(at_directory::open_name)
                .on(host.address())(attribute_list())
                .code;
        });
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(10ms);
        return done.get();
    };
    EXPECT_EQ(opens(), errc::overloaded);
    EXPECT_LT(directory.servers(), all.size() + 1);
    EXPECT_EQ(opens(), errc::ok);
}

}  // namespace
}  // namespace amalgam

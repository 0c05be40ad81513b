#include <memory>

#include <gtest/gtest.h>

#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>

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

}  // namespace
}  // namespace amalgam

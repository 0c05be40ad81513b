#include <string>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

TEST(directory_server, is_one_of_each_engine) {
    engine on("shm://");
    for (const std::string secret : {"", "swordfish"}) {
        const directory_server first(on, {.secret = secret});
        const error why = error_of([&] { const directory_server second(on, {.secret = secret}); });
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_STREQ(why.what(),
                     "this engine already has a directory_server, expected at most one per engine: "
                     "use that one, or create another engine");
        // It keeps working.
        context here{"shm://", {.directory = on.address(), .secret = secret}};
        const resource box = here.add({{"type", "box"}});
        EXPECT_EQ(first.resources(), 2u);
    }
}

TEST(directory_server, that_was_refused_leaves_its_engine_to_another) {
    engine on("shm://");
    EXPECT_EQ(error_of([&] { const directory_server none(on, {.ring = {.fanout = 0}}); }).code(),
              errc::invalid);
    const directory_server right(on);
    const context here{"shm://", {.directory = on.address()}};
    EXPECT_EQ(right.contexts(), 1u);
}

}  // namespace
}  // namespace amalgam

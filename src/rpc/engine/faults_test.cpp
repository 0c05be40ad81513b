#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>

#include "memory/memory.hpp"
#include "rpc/loop_pair.hpp"

// A failed construction of an engine leaves nothing behind: every allocation of the constructor
// fails once.

namespace amalgam {
namespace {

/// Whether `make()` succeeds although allocation number `n` fails.
template <typename Make>
bool survives(std::size_t n, Make make) {
    try {
        const memory::failing failing(n);
        make();
        if (!memory::failing::struck()) return true;
    } catch (const std::bad_alloc&) {
        return false;
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::no_memory) << why.what();
        return false;
    }
    ADD_FAILURE() << "a failure was swallowed";
    return true;
}

class engine_faults : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(loop, engine_faults, testing::Values("loop://faults"));
INSTANTIATE_TEST_SUITE_P(shm, engine_faults, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, engine_faults, testing::Values("tcp://127.0.0.1:0"));

TEST_P(engine_faults, one_that_cannot_be_made_gives_back_its_address_and_threads) {
    std::optional<engine> made{GetParam()};  // Initializes what exists once per process.
    made.reset();
    std::size_t n = 1;
    while (!survives(n, [&] { made.emplace(GetParam(), engine_options{.streams = 2}); })) {
        ASSERT_FALSE(::testing::Test::HasFailure()) << "at allocation " << n;
        ++n;
    }
    EXPECT_GT(n, 10u);
    made->define("one", [] { return 1; });
    EXPECT_EQ(made->procedure<int()>("one").on(made->address())(), 1);
}

TEST(engine_faults_driven, one_that_cannot_be_made_is_not_polled_any_more) {
    loop_network net;
    std::optional<engine> made{net.port("first")};
    made.reset();
    std::size_t n = 1;
    for (;; ++n) {
        auto line = net.port("port" + std::to_string(n));
        if (survives(n, [&] { made.emplace(std::move(line)); })) break;
        line.reset();
        net.run_until_idle();
    }
    EXPECT_GT(n, 10u);
    EXPECT_EQ(made->address(), "loop://port" + std::to_string(n));
}

TEST(engine_faults_driven, a_configuration_is_told_or_throws_whatever_allocation_fails) {
    loop_network net;
    const engine here{net.port("here"),
                      {.streams = {{.name = "s", .pools = {"io", "work"}}},
                       .pools = {{.name = "io"}, {.name = "work", .kind = pool_kind::priority}}}};
    const std::string whole = here.configuration();
    std::size_t n = 1;
    while (!survives(n, [&] { EXPECT_EQ(here.configuration(), whole); }))
        ++n;
    EXPECT_GT(n, 10u);
}

}  // namespace
}  // namespace amalgam

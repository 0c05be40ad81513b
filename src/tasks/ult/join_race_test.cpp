// A stream ends ULTs and tasklets it created for itself without an atomic exchange; these tests
// join and detach from another thread at the same moment.
#include <array>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "conformance/slow_build.hpp"

namespace amalgam {
namespace {

constexpr std::size_t rounds = conformance::slow_build ? 300 : 1'000;

struct make_ult {
    using handle = ult;
    template <typename Body>
    static handle in(execution_stream& where, Body&& body) {
        return spawn(where, std::forward<Body>(body));
    }
};

struct make_tasklet {
    using handle = tasklet;
    template <typename Body>
    static handle in(execution_stream& where, Body&& body) {
        return spawn_tasklet(where, std::forward<Body>(body));
    }
};

/// A ULT creates them for its own stream, one at a time; the test's thread gets each as soon as it
/// is created.
template <typename Make>
struct made_at_home : testing::Test {
    using handle = typename Make::handle;

    template <typename End>
    void give_away(End&& end) {
        std::atomic<handle*> given{nullptr};
        std::atomic<std::size_t> ran{0};
        execution_stream stream;
        ult maker = spawn(stream, [&] {
            for (std::size_t i = 0; i < rounds; ++i) {
                handle made = Make::in(stream, [&] { ++ran; });
                given.store(&made, std::memory_order_release);
                // It may end before or after the join.
                while (given.load(std::memory_order_acquire) != nullptr)
                    this_task::yield();
            }
        });
        for (std::size_t i = 0; i < rounds; ++i) {
            handle* from = nullptr;
            while ((from = given.load(std::memory_order_acquire)) == nullptr)
                std::this_thread::yield();
            handle mine = std::move(*from);
            given.store(nullptr, std::memory_order_release);
            end(mine);
        }
        maker.join();
        while (ran.load() != rounds)
            std::this_thread::yield();
        EXPECT_EQ(ran.load(), rounds);
    }
};

using makers = testing::Types<make_ult, make_tasklet>;
TYPED_TEST_SUITE(made_at_home, makers);

TYPED_TEST(made_at_home, is_joined_from_another_thread_while_it_ends) {
    this->give_away([](auto& mine) { mine.join(); });
}

TYPED_TEST(made_at_home, is_let_go_from_another_thread_while_it_ends) {
    this->give_away([](auto& mine) { mine.detach(); });
}

TYPED_TEST(made_at_home, is_joined_by_a_ult_of_another_stream_while_it_ends) {
    execution_stream elsewhere;
    this->give_away([&](auto& mine) { spawn(elsewhere, [&] { mine.join(); }).join(); });
}

}  // namespace
}  // namespace amalgam

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {

/// One of several actors in a round: its random numbers, and how it lets others run.
class actor {
public:
    actor(std::size_t number, std::uint64_t seed, execution_stream (&streams)[2])
        : index(number), streams_(streams), dice_(seed) {}

    std::size_t below(std::size_t limit) { return dice_() % limit; }
    bool chance(std::size_t percent) { return below(100) < percent; }
    /// A time that may pass before or after the awaited event.
    std::chrono::nanoseconds soon() { return std::chrono::nanoseconds(below(20'000)); }
    /// For ULTs and threads.
    void pause() {
        if (chance(30)) this_task::yield();
    }
    /// For coroutines: `if (who.chance(30)) co_await who.elsewhere();`
    auto elsewhere() { return continue_in(streams_[below(2)].main_pool()); }

    const std::size_t index;

private:
    execution_stream (&streams_)[2];
    seeded_random dice_;
};

/// Two streams on which ULTs and coroutines run the same program as plain threads, in a different
/// order every round. Errors appear as failed expectations, sanitizer reports, or a test that
/// hangs.
struct interleavings : testing::Test {
    static constexpr int rounds = 1000;
    static constexpr std::size_t most_actors = 7;

    /// Runs 2 to most_actors actors to completion, as chance decides; returns how many.
    template <typename Blocking, typename Awaiting>
    void crowd(std::size_t actors, Blocking blocking, Awaiting awaiting) {
        std::vector<actor> all;
        all.reserve(actors);
        for (std::size_t i = 0; i < actors; ++i)
            all.emplace_back(i, seeds(), streams);
        std::vector<std::thread> threads;
        std::vector<future<void>> coroutines;
        {
            std::vector<ult> ults;
            for (std::size_t i = 1; i < actors; ++i) {
                execution_stream& where = streams[seeds() % 2];
                const auto kind = seeds() % 16;
                if (kind == 0) {
                    threads.emplace_back([&, i] { blocking(all[i]); });
                } else if (kind < 10) {
                    ults.push_back(spawn(where, [&, i] { blocking(all[i]); }));
                } else {
                    coroutines.push_back(spawn_coroutine(where, awaiting(all[i])));
                }
            }
            blocking(all[0]);
        }
        for (auto& each : threads)
            each.join();
        for (auto& each : coroutines)
            each.get();
    }
    std::size_t some_actors() { return 2 + seeds() % (most_actors - 1); }

    seeded_random seeds{20261121};
    execution_stream streams[2];
};

}  // namespace amalgam

// Random programs of ULTs over pools whose streams come and go, against a model of how each ULT
// ends: normally, or canceled on request, once, with nothing left behind.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>

#include "seeded_runs.hpp"

namespace amalgam {
namespace {

enum class ending { normal, exits, throws_int, throws_text, throws_error, canceled };

struct no_exception {
    int number;
};

class world {
public:
    explicit world(std::uint64_t seed) : random_(seed), keeper_(new_stream(true)) {}
    ~world() {
        go_.set();
        while (!ults_.empty())
            join(ults_.size() - 1);
        for (const shared_fifo_pool& each : pools_)
            EXPECT_EQ(each.ults(), 0u);
        EXPECT_EQ(bodies_.load(), 0);
        EXPECT_EQ(keeper_->next_timer(), std::nullopt);
        for (const auto& each : others_)
            EXPECT_EQ(each->next_timer(), std::nullopt);
    }

    void run(int steps) {
        for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i)
            step();
    }

private:
    struct known {
        ult handle;
        ending will = ending::normal;
        bool asked_to_end = false;
        std::unique_ptr<std::atomic<int>> runs = std::make_unique<std::atomic<int>>(0);
    };

    /// Counts live closures.
    struct counted {
        explicit counted(std::atomic<int>& of) noexcept : count(&of) { ++*count; }
        counted(counted&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
        ~counted() {
            if (count != nullptr) --*count;
        }
        std::atomic<int>* count;
    };

    pool& some_pool(seeded_random& random) { return pools_[random.below(pools_.size())]; }

    std::unique_ptr<execution_stream> new_stream(bool of_all) {
        std::vector<pool*> served;
        const std::size_t first = random_.below(pools_.size());
        for (std::size_t i = 0; i < pools_.size(); ++i) {
            if (i == 0 || of_all || random_.chance(0.5)) {
                served.push_back(&pools_[(first + i) % pools_.size()]);
            }
        }
        return std::make_unique<execution_stream>(
            std::make_unique<basic_scheduler>(std::move(served)));
    }

    void step() {
        switch (random_.below(10)) {
            case 0:
                if (others_.size() < 3) others_.push_back(new_stream(false));
                return;
            case 1:
                if (!others_.empty()) others_.erase(others_.begin() + some(others_.size()));
                return;
            case 2: {  // replaces the stream that serves all pools
                auto next = new_stream(true);
                keeper_.swap(next);
                return;
            }
            case 3:
                if (!ults_.empty()) {
                    known& one = ults_[random_.below(ults_.size())];
                    one.asked_to_end = true;
                    one.handle.cancel();
                }
                return;
            case 4:
                if (!ults_.empty())
                    ults_[random_.below(ults_.size())].handle.migrate(some_pool(random_));
                return;
            case 5:
                if (ults_.size() > 8) {
                    go_.set();
                    join(random_.below(ults_.size()));
                    go_.reset();
                }
                return;
            default:
                start();
        }
    }
    std::ptrdiff_t some(std::size_t of) { return static_cast<std::ptrdiff_t>(random_.below(of)); }

    void start() {
        known made;
        made.will = static_cast<ending>(random_.below(5));
        made.handle =
            spawn(some_pool(random_), [this, own = seeded_random(random_()), will = made.will,
                                       runs = made.runs.get(), alive = counted(bodies_)]() mutable {
                ++*runs;
                live(own, will);
            });
        ults_.push_back(std::move(made));
    }

    void live(seeded_random& random, ending will) {
        using std::chrono::microseconds;
        for (auto steps = random.below(6); steps-- > 0;) {
            switch (random.below(7)) {
                case 0:
                    this_task::yield();
                    break;
                case 1:
                    this_task::sleep_for(microseconds(random.below(800)));
                    break;
                case 2:
                    go_.wait_for(microseconds(random.below(800)));
                    break;
                case 3:
                    go_.wait_for(std::chrono::hours(1));
                    break;
                case 4:
                    this_task::migrate(some_pool(random));
                    break;
                case 5: {
                    int seen = 0;
                    spawn([&] {
                        this_task::sleep_for(microseconds(50));
                        seen = 1;
                    }).join();
                    EXPECT_EQ(seen, 1);
                    break;
                }
                default: {
                    const std::lock_guard hold(busy_);
                    const int mine = ++guarded_;
                    this_task::yield();  // a cancel unwinds from here, and unlocks
                    EXPECT_EQ(guarded_, mine);
                }
            }
        }
        switch (will) {
            case ending::exits:
                this_task::exit();
            case ending::throws_int:
                throw no_exception{7};
            case ending::throws_text:
                throw std::string("thrown");
            case ending::throws_error:
                throw error(errc::denied, "as it was told to");
            default:
                return;
        }
    }
    void join(std::size_t index) {
        known one = std::move(ults_[index]);
        ults_.erase(ults_.begin() + static_cast<std::ptrdiff_t>(index));
        ending was = ending::normal;
        try {
            one.handle.join();
            if (one.will == ending::exits) was = ending::exits;
        } catch (const no_exception& what) {
            EXPECT_EQ(what.number, 7);
            was = ending::throws_int;
        } catch (const std::string& what) {
            EXPECT_EQ(what, "thrown");
            was = ending::throws_text;
        } catch (const error& why) {
            was = why.code() == errc::denied ? ending::throws_error : ending::canceled;
            EXPECT_TRUE(was == ending::throws_error || why.code() == errc::canceled) << why.what();
        }
        if (was == ending::canceled) {
            EXPECT_TRUE(one.asked_to_end);
            EXPECT_LE(one.runs->load(), 1);
        } else {
            EXPECT_EQ(was, one.will);
            EXPECT_EQ(one.runs->load(), 1);
        }
    }

    seeded_random random_;
    std::array<shared_fifo_pool, 3> pools_;
    event go_;
    mutex busy_;
    int guarded_ = 0;
    std::atomic<int> bodies_{0};
    std::unique_ptr<execution_stream> keeper_;
    std::vector<std::unique_ptr<execution_stream>> others_;
    std::vector<known> ults_;
};

TEST(tasks_model, each_ult_ends_once_as_told_while_streams_come_and_go) {
    for (const std::uint64_t seed : seeded_runs(20)) {
        world one(seed);
        one.run(200);
    }
}

}  // namespace
}  // namespace amalgam

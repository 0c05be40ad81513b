// The checker itself: what the model allows is found, what it forbids is not.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "model_check/checker/checker.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto acq_rel = std::memory_order_acq_rel;
constexpr auto seq_cst = std::memory_order_seq_cst;

/// What the threads of a litmus test share, and read.
struct words {
    std::atomic<int> x{0}, y{0}, z{0};
    std::mutex lock;
    int plain = 0;
    std::array<int, 4> read{};
};
using outcome = std::array<int, 4>;
using bodies = std::vector<std::function<void(words&)>>;

std::set<outcome> outcomes(const bodies& threads, bool reduce = true) {
    std::set<outcome> seen;
    options how;
    how.reduce = reduce;
    const result found = explore(
        [&](execution& run) {
            words& of = run.make<words>();
            for (const auto& each : threads)
                run.thread([&each, &of] { each(of); });
            run.afterwards([&] { seen.insert(of.read); });
        },
        how);
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
    return seen;
}

bool has(const std::set<outcome>& seen, outcome which) {
    return seen.count(which) != 0;
}

bodies store_buffering(std::memory_order store, std::memory_order load) {
    return {[=](words& w) {
                w.x.store(1, store);
                w.read[0] = w.y.load(load);
            },
            [=](words& w) {
                w.y.store(1, store);
                w.read[1] = w.x.load(load);
            }};
}

TEST(litmus, store_buffering_is_seen_unless_all_is_seq_cst) {
    const outcome both_miss{0, 0};
    EXPECT_TRUE(has(outcomes(store_buffering(relaxed, relaxed)), both_miss));
    EXPECT_TRUE(has(outcomes(store_buffering(release, acquire)), both_miss));
    EXPECT_TRUE(has(outcomes(store_buffering(seq_cst, acquire)), both_miss));
    EXPECT_TRUE(has(outcomes(store_buffering(release, seq_cst)), both_miss));
    const auto strong = outcomes(store_buffering(seq_cst, seq_cst));
    EXPECT_FALSE(has(strong, both_miss));
    EXPECT_EQ(strong.size(), 3u);
}

TEST(litmus, a_change_of_the_own_word_does_not_order_what_follows) {
    const auto one = [](auto mine, auto theirs, std::size_t which) {
        return [=](words& w) {
            (w.*mine).exchange(1, acq_rel);
            w.read[which] = (w.*theirs).load(relaxed);
        };
    };
    const auto seen = outcomes({one(&words::x, &words::y, 0), one(&words::y, &words::x, 1)});
    EXPECT_TRUE(has(seen, {0, 0}));
}

TEST(litmus, fences_forbid_store_buffering_on_both_sides_only) {
    const auto one = [](auto mine, auto theirs, std::size_t which, bool fenced) {
        return [=](words& w) {
            (w.*mine).store(1, relaxed);
            if (fenced) std::atomic_thread_fence(seq_cst);
            w.read[which] = (w.*theirs).load(relaxed);
        };
    };
    const outcome both_miss{0, 0};
    EXPECT_FALSE(
        has(outcomes({one(&words::x, &words::y, 0, true), one(&words::y, &words::x, 1, true)}),
            both_miss));
    EXPECT_TRUE(
        has(outcomes({one(&words::x, &words::y, 0, true), one(&words::y, &words::x, 1, false)}),
            both_miss));
}

TEST(litmus, a_barrier_in_all_threads_is_enough_on_one_side) {
    const auto seen = outcomes({[](words& w) {
                                    w.x.store(1, relaxed);
                                    w.read[0] = w.y.load(relaxed);
                                },
                                [](words& w) {
                                    w.y.store(1, relaxed);
                                    barrier_in_all();
                                    w.read[1] = w.x.load(relaxed);
                                }});
    EXPECT_FALSE(has(seen, {0, 0}));
    EXPECT_EQ(seen.size(), 3u);
}

bodies message_passing(std::memory_order store, std::memory_order load) {
    return {[=](words& w) {
                w.x.store(1, relaxed);
                w.y.store(1, store);
            },
            [=](words& w) {
                w.read[0] = w.y.load(load);
                w.read[1] = w.x.load(relaxed);
            }};
}

TEST(litmus, a_message_needs_release_and_acquire) {
    const outcome stale{1, 0};
    EXPECT_FALSE(has(outcomes(message_passing(release, acquire)), stale));
    EXPECT_TRUE(has(outcomes(message_passing(relaxed, acquire)), stale));
    EXPECT_TRUE(has(outcomes(message_passing(release, relaxed)), stale));
    EXPECT_EQ(outcomes(message_passing(relaxed, relaxed)).size(), 4u);
}

TEST(litmus, a_change_in_between_carries_the_message_on) {
    const auto seen = [](std::memory_order between) {
        return outcomes({[](words& w) {
                             w.x.store(1, relaxed);
                             w.y.store(1, release);
                         },
                         [=](words& w) { w.y.fetch_add(1, between); },
                         [](words& w) {
                             w.read[0] = w.y.load(acquire);
                             w.read[1] = w.x.load(relaxed);
                         }});
    };
    EXPECT_FALSE(has(seen(relaxed), {2, 0}));
}

TEST(litmus, a_relaxed_store_in_between_does_not) {
    const auto seen = outcomes({[](words& w) {
                                    w.x.store(1, relaxed);
                                    w.y.store(1, release);
                                    w.y.store(2, relaxed);
                                },
                                [](words& w) {
                                    w.read[0] = w.y.load(acquire);
                                    w.read[1] = w.x.load(relaxed);
                                }});
    EXPECT_TRUE(has(seen, {2, 0}));
    EXPECT_FALSE(has(seen, {1, 0}));
}

TEST(litmus, two_readers_agree_on_the_order_of_two_writers_only_by_seq_cst) {
    const auto seen = [](std::memory_order store, std::memory_order load) {
        return outcomes({[=](words& w) { w.x.store(1, store); },
                         [=](words& w) { w.y.store(1, store); },
                         [=](words& w) {
                             w.read[0] = w.x.load(load);
                             w.read[1] = w.y.load(load);
                         },
                         [=](words& w) {
                             w.read[2] = w.y.load(load);
                             w.read[3] = w.x.load(load);
                         }});
    };
    const outcome disagree{1, 0, 1, 0};
    EXPECT_TRUE(has(seen(release, acquire), disagree));
    const auto strong = seen(seq_cst, seq_cst);
    EXPECT_FALSE(has(strong, disagree));
    EXPECT_EQ(strong.size(), 15u);
}

/// As with a version that is looked at again after what it guards.
TEST(litmus, a_seq_cst_load_may_overtake_a_relaxed_one) {
    const auto seen = [](std::memory_order load) {
        return outcomes({[](words& w) {
                             w.x.fetch_or(1, seq_cst);
                             w.y.store(1, release);
                         },
                         [=](words& w) {
                             w.read[0] = w.y.load(load);
                             w.read[1] = w.x.load(seq_cst);
                         }});
    };
    EXPECT_TRUE(has(seen(relaxed), {1, 0}));
    EXPECT_FALSE(has(seen(acquire), {1, 0}));
}

TEST(litmus, reads_of_one_word_never_go_back) {
    const auto seen = outcomes({[](words& w) {
                                    w.x.store(1, relaxed);
                                    w.x.store(2, relaxed);
                                },
                                [](words& w) {
                                    w.read[0] = w.x.load(relaxed);
                                    w.read[1] = w.x.load(relaxed);
                                }});
    EXPECT_EQ(seen.size(), 6u);
    EXPECT_FALSE(has(seen, {2, 1}));
}

TEST(litmus, a_store_may_be_overtaken_by_a_later_one_of_another_thread) {
    const auto one = [](auto first, auto second, std::size_t which) {
        return [=](words& w) {
            (w.*first).store(1, relaxed);
            (w.*second).store(2, relaxed);
            w.read[which] = (w.*second).load(relaxed);
        };
    };
    const auto seen = [&](bool reduce) {
        std::set<outcome> last;
        const result found = explore(
            [&](execution& run) {
                words& of = run.make<words>();
                run.thread([&] { one(&words::x, &words::y, 0)(of); });
                run.thread([&] { one(&words::y, &words::x, 1)(of); });
                run.afterwards([&] { last.insert({of.x.load(), of.y.load()}); });
            },
            {.reduce = reduce});
        EXPECT_TRUE(found.complete);
        return last;
    };
    EXPECT_TRUE(has(seen(true), {1, 1}));  // Each word ends with what was stored first.
    EXPECT_EQ(seen(true), seen(false));
}

/// Not found, as a thread's steps take effect in the order of its program: see the README.md.
TEST(litmus, load_buffering_is_left_out) {
    const auto one = [](auto from, auto to, std::size_t which) {
        return [=](words& w) {
            w.read[which] = (w.*from).load(relaxed);
            (w.*to).store(1, relaxed);
        };
    };
    EXPECT_FALSE(
        has(outcomes({one(&words::x, &words::y, 0), one(&words::y, &words::x, 1)}), {1, 1}));
}

TEST(litmus, additions_are_not_lost) {
    const auto add = [](words& w) { w.x.fetch_add(1, relaxed); };
    std::set<int> sums;
    const result found = explore([&](execution& run) {
        words& of = run.make<words>();
        for (int i = 0; i < 3; ++i)
            run.thread([&] { add(of); });
        run.afterwards([&] { sums.insert(of.x.load()); });
    });
    EXPECT_TRUE(found.complete);
    EXPECT_EQ(sums, std::set<int>{3});
}

TEST(litmus, what_is_left_out_changes_no_outcome) {
    const auto orders = {relaxed, release, seq_cst};
    for (const auto store : orders) {
        for (const auto load : {relaxed, acquire, seq_cst}) {
            for (const auto& program : {store_buffering(store, load), message_passing(store, load)})
                EXPECT_EQ(outcomes(program, true), outcomes(program, false));
            // Three threads that write, change and read the same two words.
            const bodies mixed{[=](words& w) {
                                   w.x.store(1, store);
                                   w.read[0] = w.y.load(load);
                                   w.x.store(3, store);
                               },
                               [=](words& w) {
                                   w.y.store(1, store);
                                   w.read[1] = w.x.exchange(2, acq_rel);
                               },
                               [=](words& w) {
                                   w.read[2] = w.x.load(load);
                                   w.read[3] = w.y.load(load);
                               }};
            EXPECT_EQ(outcomes(mixed, true), outcomes(mixed, false));
            // The same with some of it under a mutex.
            const bodies locked{[=](words& w) {
                                    w.x.store(1, store);
                                    const std::lock_guard hold(w.lock);
                                    w.read[0] = ++w.plain;
                                },
                                [=](words& w) {
                                    {
                                        const std::lock_guard hold(w.lock);
                                        w.read[1] = ++w.plain;
                                    }
                                    w.read[2] = w.x.load(load);
                                },
                                [=](words& w) {
                                    const std::lock_guard hold(w.lock);
                                    w.read[3] = 10 * ++w.plain + w.x.load(load);
                                }};
            EXPECT_EQ(outcomes(locked, true), outcomes(locked, false));
        }
    }
}

std::string failure_of(const bodies& threads) {
    return explore([&](execution& run) {
               words& of = run.make<words>();
               for (const auto& each : threads)
                   run.thread([&each, &of] { each(of); });
           })
        .failure;
}

TEST(litmus, races_for_plain_memory_are_found) {
    const auto handed_over = [](std::memory_order store, std::memory_order load) {
        return failure_of({[=](words& w) {
                               w.plain = 1;
                               w.x.store(1, store);
                           },
                           [=](words& w) {
                               if (w.x.load(load) == 1) require(w.plain == 1, "an old value");
                           }});
    };
    EXPECT_EQ(handed_over(release, acquire), "");
    EXPECT_EQ(handed_over(relaxed, acquire), "two threads race for plain memory");
    EXPECT_EQ(handed_over(release, relaxed), "two threads race for plain memory");
}

TEST(litmus, use_after_free_is_found) {
    const auto freed = [](bool waits) {
        return explore([=](execution& run) {
                   words& w = run.make<words>();
                   int*& shared = run.make<int*>(new int(1));
                   run.thread([&] {
                       require(*shared == 1, "an old value");
                       w.x.store(1, release);
                   });
                   run.thread([&, waits] {
                       if (!waits || w.x.load(acquire) == 1) delete shared;
                   });
               })
            .failure;
    };
    EXPECT_NE(freed(false), "");
    EXPECT_EQ(freed(true), "");
}

TEST(litmus, waiting_for_ever_is_found) {
    const auto looks = [](std::memory_order announced) {
        return explore([=](execution& run) {
                   words& w = run.make<words>();
                   wake_up& bell = run.make<wake_up>();
                   run.thread([&, announced] {  // Announces its sleep, then looks.
                       w.y.store(1, announced);
                       if (w.x.load(seq_cst) == 0) bell.wait();
                   });
                   run.thread([&] {
                       w.x.store(1, seq_cst);
                       if (w.y.load(seq_cst) == 1) bell.strike();
                   });
               })
            .failure;
    };
    EXPECT_EQ(looks(seq_cst), "");
    EXPECT_EQ(looks(release), "all threads wait for ever");
}

TEST(litmus, a_loop_ends_once_another_thread_has_stored) {
    const auto loops = [](bool yields, bool stores) {
        return failure_of({[=](words& w) {
                               while (w.x.load(acquire) == 0) {
                                   if (yields) yield();
                               }
                               require(w.plain == 1, "an old value");
                           },
                           [=](words& w) {
                               w.plain = 1;
                               w.x.store(stores ? 1 : 0, release);
                           }});
    };
    EXPECT_EQ(loops(true, true), "");
    EXPECT_EQ(loops(false, true), "");
    EXPECT_EQ(loops(false, false), "all threads wait for ever");
    EXPECT_EQ(loops(true, false), "all threads wait for ever");
}

TEST(litmus, a_loop_that_looks_by_an_exchange_ends_once_another_thread_has_stored) {
    const auto locks = [](std::memory_order unlock) {
        return failure_of({[](words& w) {
                               while (w.x.exchange(1, acquire) == 1)
                                   yield();
                               ++w.plain;
                           },
                           [=](words& w) {
                               if (w.x.exchange(1, acquire) == 1) return;
                               ++w.plain;
                               w.x.store(0, unlock);
                           }});
    };
    EXPECT_EQ(locks(release), "");
    EXPECT_EQ(locks(relaxed), "two threads race for plain memory");
}

TEST(litmus, a_mutex_keeps_others_out_and_orders_what_is_done_in_turn) {
    const auto turns = [](std::memory_order order) {
        return explore([=](execution& run) {
            auto& lock = run.make<std::mutex>();
            int& plain = run.make<int>(0);
            run.weaken_at(&lock, act::change, order);
            for (int i = 0; i < 3; ++i) {
                run.thread([&] {
                    const std::lock_guard hold(lock);
                    ++plain;
                });
            }
            run.afterwards([&] { require(plain == 3, "one turn is lost"); });
        });
    };
    const result found = turns(acq_rel);
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_EQ(found.executions, 6u);
    EXPECT_EQ(turns(acquire).failure, "two threads race for plain memory");
}

TEST(litmus, a_mutex_that_is_not_unlocked_is_found) {
    const result found = explore([](execution& run) {
        auto& lock = run.make<std::mutex>();
        run.thread([&] { lock.lock(); });
        run.thread([&] { lock.lock(); });
    });
    EXPECT_EQ(found.failure, "all threads wait for ever");
}

TEST(litmus, copies_of_any_length_are_plain_accesses) {
    const auto races = [](std::size_t bytes) {
        return explore([=](execution& run) {
                   auto& from = run.make<std::array<char, 64>>();
                   auto& to = run.make<std::array<char, 64>>();
                   run.thread([&, bytes] { std::memcpy(to.data(), from.data(), bytes); });
                   run.thread([&, bytes] { from[bytes - 1] = 1; });
               })
            .failure;
    };
    EXPECT_EQ(races(3), "two threads race for plain memory");
    EXPECT_EQ(races(64), "two threads race for plain memory");
}

}  // namespace
}  // namespace amalgam::model

// core: the pool of buffers.
#include <optional>

#include <gtest/gtest.h>

#include "model_check/checker/checker.hpp"
// What a pool is made of is known in this file only.
#include "core/buffer.cpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

/// All threads of a program use the same shard: they are one thread of this process, whose number
/// is drawn before the first execution.
const std::size_t home = detail::thread_number() % detail::shard_count;

using fault = std::function<void(execution&, detail::pool_core&)>;

auto& shard_of(detail::pool_core& core) {
    return core.shards_[0][home];
}

struct a_pool {
    std::optional<buffer_pool> pool{std::in_place, buffer_pool_options{}};
    std::optional<buffer> taken;
};

a_pool& make_pool(execution& run, const fault& weaken) {
    auto& made = run.make<a_pool>();
    detail::pool_core& core = *made.pool->core_;
    run.name(&shard_of(core).busy, "lock");
    run.name(&shard_of(core).returned, "returned");
    if (weaken) weaken(run, core);
    return made;
}

/// One returns a buffer while another takes and returns some.
result of_exchange(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        a_pool& of = make_pool(run, weaken);
        of.taken.emplace(of.pool->take(1));
        run.thread([&of] {
            *of.taken->data() = std::byte{1};
            of.taken.reset();
        });
        run.thread([&of] {
            for (int i = 0; i < 2; ++i) {
                buffer mine = of.pool->take(1);
                *mine.data() = std::byte{2};
            }
        });
    });
}

/// One returns a buffer while another ends the pool.
result of_end(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        a_pool& of = make_pool(run, weaken);
        of.taken.emplace(of.pool->take(1));
        run.thread([&of] { of.taken.reset(); });
        run.thread([&of] { of.pool.reset(); });
    });
}

TEST(buffer_model, a_buffer_is_used_by_one_and_freed_once) {
    for (const result& found : {of_exchange(), of_end()}) {
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

TEST(buffer_model, weaker_orders_are_found) {
    for (const act what : {act::change, act::store}) {
        EXPECT_NE(of_exchange([what](execution& run, auto& core) {
                      run.weaken(shard_of(core).busy, what, relaxed);
                  }).failure,
                  "");
    }
    for (const auto order : {acquire, release}) {
        EXPECT_NE(of_exchange([order](execution& run, auto& core) {
                      run.weaken(shard_of(core).returned, act::change, order);
                  }).failure,
                  "");
        EXPECT_NE(of_end([order](execution& run, auto& core) {
                      run.weaken(core.references_, act::change, order);
                  }).failure,
                  "");
    }
}

}  // namespace
}  // namespace amalgam::model

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/engine.hpp>

#include "distributed/link.hpp"
#include "memory/memory.hpp"

namespace ff::detail {
namespace {

using amalgam::memory::failing;
using amalgam::memory::spared;

/// A run with one other group, which takes all batches.
class run final : public run_base {
    amalgam::engine there_{"shm://"};
    amalgam::engine mine_{"shm://"};
    group_settings settings_;
    bool failed_ = false;

public:
    run() {
        there_.define("ff.batch", [](std::uint64_t, amalgam::const_bytes) {});
        over = &mine_;
        calls.emplace(mine_);
        settings_.name = "G2";
        settings_.address = "shm://G2";
        settings_.batch_size = settings_.batch_bytes = 1000;
        group.emplace(*this, settings_, settings_);
        group->to = mine_.lookup(there_.address());
    }
    void fail(words why) noexcept override {
        const spared mine;
        failed_ = true;
        for (const std::string_view& each : why)
            said += each;
    }
    bool failed() const noexcept override { return failed_; }

    std::optional<far_group> group;
    std::string said;
};

/// Batches leave by `send`, of whose allocations the first, the second, … and the `how_many - 1`
/// after it fail.
void expect_sent_or_failed(std::uint64_t how_many, const std::function<void(far_group&)>& send) {
    bool struck = true;
    std::uint64_t n = 1;
    for (; struck; ++n) {
        run one;
        one.group->append(0, 0, "item", 4, false);
        {
            const failing each(n, how_many);
            send(*one.group);
            struck = failing::struck();
        }
        EXPECT_EQ(one.group->batches(), one.failed() ? 0U : 1U) << "allocation " << n;
        EXPECT_EQ(one.said.find("cannot send to group G2 at shm://G2: "),
                  one.failed() ? 0U : std::string::npos)
            << one.said;
    }
    EXPECT_GT(n, 2U) << "no allocation was counted";
}

// Nobody else could tell: the other group would wait for it for ever.
TEST(far_group, a_batch_that_gets_no_memory_when_it_is_due_ends_the_run) {
    for (const std::uint64_t how_many : {1, 1000})
        expect_sent_or_failed(how_many, [](far_group& to) { to.flush_or_fail(); });
}
TEST(far_group, a_batch_that_gets_no_memory_when_it_has_waited_ends_the_run) {
    for (const std::uint64_t how_many : {1, 1000})
        expect_sent_or_failed(how_many, [](far_group& to) { to.flush_old(); });
}

}  // namespace
}  // namespace ff::detail

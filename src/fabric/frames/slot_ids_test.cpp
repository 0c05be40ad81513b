#include "fabric/frames/slot_ids.hpp"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

namespace amalgam::detail {
namespace {

TEST(slot_ids, no_id_is_given_out_twice_and_slots_are_used_again) {
    slot_ids ids;
    std::set<std::uint64_t> seen;
    std::vector<std::uint64_t> taken;
    seeded_random random(5);
    std::size_t most = 0;
    for (int i = 0; i < 20000; ++i) {
        if (!taken.empty() && random.chance(0.5)) {
            const std::size_t which = random.below(taken.size());
            ids.give_back(taken[which]);
            taken[which] = taken.back();
            taken.pop_back();
            continue;
        }
        const std::size_t slot = ids.make_room();
        const std::uint64_t id = ids.take();
        EXPECT_EQ(slot_ids::slot(id), slot);
        EXPECT_NE(id, 0u);
        EXPECT_TRUE(seen.insert(id).second);
        taken.push_back(id);
        most = std::max(most, taken.size());
        EXPECT_LT(slot_ids::slot(id), most);
    }
    std::set<std::size_t> slots;
    for (std::uint64_t id : taken)
        EXPECT_TRUE(slots.insert(slot_ids::slot(id)).second);
}

}  // namespace
}  // namespace amalgam::detail

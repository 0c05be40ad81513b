// Memory that cannot be read or written, such as truncated files and read-only pages: only its
// transfer fails, and the status tells on which side.
#include <vector>

#include <gtest/gtest.h>

#include "emulated.hpp"
#include "fabric/memory/guarded_memory.hpp"
#include "fabric/memory/truncated_file.hpp"
#include "fabric/transports/shm/memory/layout.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

struct shm_bad_memory : testing::Test {
    shm_bad_memory() {
        here.send(to, 1, {});
        move_until({&here, &there}, [&] { return !there.tags.empty(); });
    }
    status outcome(posted how, recorded& op) {
        if (how == posted::done) return {};
        move_until({&here, &there}, [&] { return op.runs > 0; });
        return op.what;
    }
    status put(const_bytes from, const region& target) {
        recorded op;
        return outcome(here.end().post_put(to, gather(&from, 1), target.key(), 0, op), op);
    }
    status get(mutable_bytes into, const region& source) {
        recorded op;
        return outcome(here.end().post_get(to, scatter(&into, 1), source.key(), 0, op), op);
    }
    void expect_connected() {
        there.tags.clear();
        here.send(to, 2, {});
        move_until({&here, &there}, [&] { return !there.tags.empty(); });
        EXPECT_TRUE(here.losses.empty());
        EXPECT_TRUE(there.losses.empty());
        EXPECT_EQ(here.end().open_operations() + there.end().open_operations(), 0u);
    }
    static void expect(status what, status wanted) {
        EXPECT_EQ(what, wanted);
        EXPECT_EQ(what.native, wanted.native);
    }

    shm_test_port here{"shm://"}, there{"shm://"};
    peer_id to = here.reach(there);
    std::vector<std::byte> memory = std::vector<std::byte>(256 * shm_page_bytes);
    region all = there.end().open_region(memory, access::read_write).value();
};

TEST_F(shm_bad_memory, of_ours_fails_a_transfer_and_is_said_to_be_ours) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_look_first;
    for (const std::size_t left : {std::size_t{0}, shm_page_bytes, 20 * shm_page_bytes}) {
        SCOPED_TRACE(left);
        truncated_file file(memory.size()), fixed(memory.size(), PROT_READ);
        file.truncate(left);
        expect(put(file.bytes(), all), no_access);
        expect(get(file.bytes(), all), no_access);
        expect(get(fixed.bytes(), all), no_access);
        expect_connected();
    }
}

TEST_F(shm_bad_memory, of_the_peer_fails_a_transfer_and_is_said_to_be_the_peers) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_look_first;
    for (const std::size_t left : {std::size_t{0}, shm_page_bytes, 20 * shm_page_bytes}) {
        SCOPED_TRACE(left);
        truncated_file file(memory.size()), fixed(memory.size(), PROT_READ);
        file.truncate(left);
        const region gone = there.end().open_region(file.bytes(), access::read_write).value();
        const region kept = there.end().open_region(fixed.bytes(), access::read_write).value();
        expect(put(memory, gone), no_access_there);
        expect(get(memory, gone), no_access_there);
        expect(put(memory, kept), no_access_there);
        expect(get(memory, kept), {});
        expect_connected();
    }
}

}  // namespace
}  // namespace amalgam::detail

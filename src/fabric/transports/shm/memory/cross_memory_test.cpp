#include "fabric/transports/shm/memory/cross_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "emulated.hpp"
#include "fabric/memory/guarded_memory.hpp"

namespace amalgam::detail {
namespace {

using conformance::channel;
using conformance::child_process;

// The tests copy within their own process, which the kernel treats like any other.
const pid_t self = ::getpid();

/// `whole` cut into pieces of `size` bytes; the last may be shorter.
template <typename Bytes>
std::vector<Bytes> cut(Bytes whole, std::size_t size) {
    std::vector<Bytes> pieces;
    for (std::size_t at = 0; at < whole.size(); at += size)
        pieces.push_back(whole.subspan(at, std::min(size, whole.size() - at)));
    return pieces;
}

std::vector<std::byte> counting(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i)
        bytes[i] = static_cast<std::byte>(i * 31 + i / 256);
    return bytes;
}

TEST(cross_memory, segments_of_any_cut_are_copied_in_order) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    const std::vector<std::byte> source = counting(10000);
    for (std::size_t near : {1u, 7u, 999u, 10000u}) {
        for (std::size_t far : {3u, 64u, 5000u, 10000u}) {
            std::vector<std::byte> target(source.size());
            const auto into = cut(mutable_bytes(target), near);
            const auto from = cut(const_bytes(source), far);
            cross_place<mutable_bytes> to{into, {}};
            cross_place<const_bytes> there{from, {}};
            ASSERT_TRUE(copy_from_process(self, to, there, source.size()).ok());
            EXPECT_EQ(target, source) << near << " into " << far;

            std::fill(target.begin(), target.end(), std::byte{0});
            const auto out = cut(const_bytes(source), near);
            const auto back = cut(const_bytes(target), far);
            cross_place<const_bytes> here{out, {}};
            cross_place<const_bytes> goal{back, {}};
            ASSERT_TRUE(copy_to_process(self, here, goal, source.size()).ok());
            EXPECT_EQ(target, source);
        }
    }
}

TEST(cross_memory, copy_goes_on_from_where_it_came_to) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    const std::vector<std::byte> source = counting(1000);
    std::vector<std::byte> target(1000);
    const auto into = cut(mutable_bytes(target), 300);
    const const_bytes from(source);
    cross_place<mutable_bytes> to{into, {}};
    cross_place<const_bytes> there{{&from, 1}, {}};
    for (std::size_t some : {250u, 0u, 350u, 400u})
        ASSERT_TRUE(copy_from_process(self, to, there, some).ok());
    EXPECT_EQ(target, source);
}

TEST(cross_memory, failure_says_on_which_side_memory_is_bad) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    // One accessible page and one inaccessible page.
    constexpr std::size_t page = 4096;
    auto* const half = static_cast<std::byte*>(
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_EQ(::mprotect(half + page, page, PROT_NONE), 0);
    std::vector<std::byte> whole(2 * page);
    for (const std::size_t at : {std::size_t{0}, page - 5, page, page + 5}) {
        SCOPED_TRACE(at);
        const mutable_bytes good(whole), bad(half + at, 2 * page - at);
        const auto fetch = [&](mutable_bytes into, const_bytes from) {
            cross_place<mutable_bytes> to{{&into, 1}, {}};
            cross_place<const_bytes> source{{&from, 1}, {}};
            return copy_from_process(self, to, source, bad.size()).native;
        };
        const auto store = [&](const_bytes from, const_bytes into) {
            cross_place<const_bytes> source{{&from, 1}, {}};
            cross_place<const_bytes> to{{&into, 1}, {}};
            return copy_to_process(self, source, to, bad.size()).native;
        };
        EXPECT_EQ(fetch(good, bad), no_access_there.native);
        EXPECT_EQ(fetch(bad, good), no_access.native);
        EXPECT_EQ(store(good, bad), no_access_there.native);
        EXPECT_EQ(store(bad, good), no_access.native);
    }
    ::munmap(half, 2 * page);
}

TEST(cross_memory, process_that_is_gone_is_disconnected) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    child_process gone([](channel&) { return 0; });
    const pid_t pid = gone.pid();
    gone.join();
    std::vector<std::byte> near(8);
    const mutable_bytes into(near);
    const const_bytes there(near);
    cross_place<mutable_bytes> to{{&into, 1}, {}};
    cross_place<const_bytes> from{{&there, 1}, {}};
    EXPECT_EQ(copy_from_process(pid, to, from, 8), errc::disconnected);
}

TEST(cross_memory, probe_tells_whose_memory_it_is) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    const shm_probe mine{1234, 0};
    const auto address = reinterpret_cast<std::uint64_t>(&mine);
    EXPECT_TRUE(try_cross_memory(self, address, 1234).ok());
    EXPECT_EQ(try_cross_memory(self, address, 1235), errc::mismatch);
    EXPECT_TRUE(is_refusal_of_kernel(try_cross_memory(self, 8, 1234)));
}

}  // namespace
}  // namespace amalgam::detail

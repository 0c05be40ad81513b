// What a port promises in steady state: no memory is taken from the heap.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/transports/shm/test_port.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) noexcept {
    allocations.fetch_add(1, std::memory_order_relaxed);
    void* memory = nullptr;
    return ::posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) == 0 ? memory : nullptr;
}

void* counted_or_throw(std::size_t bytes, std::size_t alignment) {
    void* const memory = counted(bytes, alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
}  // namespace

// All four: AddressSanitizer has its own of those that are missing here.
void* operator new(std::size_t bytes) {
    return counted_or_throw(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return counted(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return counted(bytes, static_cast<std::size_t>(alignment));
}
// Not inlined: GCC would see free() end what it saw operator new begin, and warn.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}

namespace amalgam::detail {
namespace {

/// Counts what comes, and keeps nothing.
struct counter_sink final : message_sink {
    void on_message(message&) noexcept override { ++came; }
    std::uint64_t came = 0;
};

class shm_steady_state : public testing::TestWithParam<const char*> {};

TEST_P(shm_steady_state, takes_no_memory_for_messages_and_transfers) {
    test_port a(GetParam()), b(GetParam());
    const peer_id to = a.reach(b);
    counter_sink sink;
    b.end().set_sink(&sink);
    std::vector<std::byte> memory(300000);
    const region target = b.end().open_region(memory, access::read_write).value();
    std::vector<std::byte> here(300000);
    for (std::size_t bytes : {0u, 8u, 500u, 30000u, 40000u, 200000u}) {
        const const_bytes out = const_bytes(here).first(bytes);
        const mutable_bytes into = mutable_bytes(here).first(bytes);
        auto round = [&] {
            noted sent, put, get;
            const std::uint64_t before = sink.came;
            const bool send_pends =
                a.end().post_send(to, 1, gather(&out, 1), sent) == posted::pending;
            const bool put_pends =
                a.end().post_put(to, gather(&out, 1), target.key(), 0, put) == posted::pending;
            const bool get_pends =
                a.end().post_get(to, scatter(&into, 1), target.key(), 0, get) == posted::pending;
            while (sink.came == before || (send_pends && sent.runs == 0) ||
                   (put_pends && put.runs == 0) || (get_pends && get.runs == 0)) {
                a.progress();
                b.progress();
            }
        };
        for (int i = 0; i < 30; ++i)
            round();
        const std::uint64_t before = allocations.load();
        for (int i = 0; i < 100; ++i)
            round();
        EXPECT_EQ(allocations.load(), before) << bytes << " bytes";
    }
}

INSTANTIATE_TEST_SUITE_P(shm, shm_steady_state, testing::Values("shm://", "shm://?rma=ring"));

}  // namespace
}  // namespace amalgam::detail

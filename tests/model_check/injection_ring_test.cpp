// inject: the ring of messages with their code. What the source's port does is reduced to what
// transports promise: a put begins after those before it, and its bytes come in any order.
#include <array>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include "model_check/checker/checker.hpp"
// The target's side is known in this file only.
#include "inject/target/injection_ring.cpp"

namespace amalgam {
namespace {

constexpr std::size_t ring_bytes = 4096, code_bytes = 8;
/// Two messages fill the ring, but for 64 bytes, which have no room for a third.
constexpr std::size_t payload_bytes = 1984 - sizeof(detail::ring_message) - code_bytes;

/// Of the program.
struct shared_ring {
    alignas(64) std::array<std::byte, ring_bytes> memory{};
    std::array<std::uint64_t, payload_bytes / 8> payload{};  ///< Of the message that is written.
    std::uint64_t code = 7;
    std::uint64_t ran = 0;  ///< Messages.
    bool puts_are_ordered = true;
};
shared_ring* ring = nullptr;

const_bytes bytes_of_code() {
    return {reinterpret_cast<const std::byte*>(&ring->code), code_bytes};
}

}  // namespace

// In place of the library's, which need an engine.
bulk_cache::bulk_cache(engine&, const bulk_cache_options&) {}
bulk_cache::~bulk_cache() = default;
bulk_buffer bulk_cache::take(std::size_t bytes) {
    bulk_buffer made;
    made.size_ = bytes;
    return made;
}
std::byte* bulk_buffer::data() const noexcept {
    return ring->memory.data();
}
bulk bulk_buffer::descriptor() const {
    return {};
}
void bulk_buffer::give_back() noexcept {}
const_bytes code_image::bytes() const noexcept {
    return bytes_of_code();
}
std::size_t code_image::payload_alignment() const noexcept {
    return 8;
}
const_bytes injection::payload() const noexcept {
    return {reinterpret_cast<const std::byte*>(ring->payload.data()), payload_bytes};
}
void detail::refuse_empty(bool, const char*) {}
void detail::target_core::run_polled(const_bytes code, const_bytes payload) {
    ++ring->ran;
    model::require(code.size() == code_bytes && payload.size() == payload_bytes &&
                       std::memcmp(code.data(), &ring->code, code_bytes) == 0,
                   "half a message");
    std::array<std::uint64_t, payload_bytes / 8> seen{};
    std::memcpy(seen.data(), payload.data(), payload_bytes);
    for (const std::uint64_t each : seen)
        model::require(each == ring->ran, "half a message");
}

void bulk::push(std::uint64_t offset, const const_segments& from, const bulk_options&) const {
    for (const const_bytes& each : from.list()) {
        std::byte* const to = ring->memory.data() + offset;
        if (each.size() == sizeof(std::uint64_t) && from.list().size() == 1) {
            std::uint64_t number = 0;
            std::memcpy(&number, each.data(), sizeof number);
            std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to))
                .store(number, ring->puts_are_ordered ? std::memory_order_release
                                                      : std::memory_order_relaxed);
        } else {
            std::memcpy(to, each.data(), each.size());
        }
        offset += each.size();
    }
}
void bulk::pull(std::uint64_t offset, const segments& into, const bulk_options&) const {
    const std::uint64_t number =
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(ring->memory.data() + offset))
            .load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    std::memcpy(into.list().front().data(), &number, sizeof number);
}

namespace model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

/// Both ends of a ring.
struct both_ends {
    both_ends() {
        ring = &shared;
        message.image_ = std::shared_ptr<const detail::source_image>(
            std::shared_ptr<void>(), reinterpret_cast<const detail::source_image*>(this));
        bulk whole;
        whole.bytes_ = ring_bytes;
        writer.emplace(std::move(whole));
        const std::shared_ptr<detail::target_core> nobody(
            std::shared_ptr<void>(), reinterpret_cast<detail::target_core*>(this));
        reader.emplace(nobody, ring_bytes);
    }
    void post(std::uint64_t number) {
        shared.payload.fill(number);
        writer->post(message);
    }

    shared_ring shared;
    injection message;
    std::optional<injection_ring_writer> writer;
    std::optional<detail::ring_memory> reader;
};

using fault = std::function<void(execution&, both_ends&)>;

/// That many messages are there from the start, and one more is written.
result of_ring(std::uint64_t filled, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& ends = run.make<both_ends>();
        run.name(ends.shared.memory.data(), "target's position");
        for (std::uint64_t i = 1; i <= filled; ++i)
            ends.post(i);
        if (weaken) weaken(run, ends);
        run.thread([&ends, filled] { ends.post(filled + 1); });
        run.thread([&ends, filled] {
            while (ends.shared.ran <= filled) {
                if (!ends.reader->run_next()) yield();
            }
        });
    });
}

TEST(injection_ring_model, a_message_runs_whole_and_is_not_overwritten_before) {
    for (const std::uint64_t filled : {0, 2}) {
        const result found = of_ring(filled);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

TEST(injection_ring_model, weaker_orders_are_found) {
    EXPECT_EQ(of_ring(0,
                      [](execution& run, both_ends& ends) {
                          run.weaken_at(ends.shared.memory.data() + 64, act::load, relaxed);
                      })
                  .failure,
              "a plain access races with an atomic one");
    EXPECT_EQ(of_ring(2,
                      [](execution& run, both_ends& ends) {
                          run.weaken_at(ends.shared.memory.data(), act::store, relaxed);
                      })
                  .failure,
              "two threads race for plain memory");
    EXPECT_EQ(of_ring(0, [](execution&, both_ends& ends) { ends.shared.puts_are_ordered = false; })
                  .failure,
              "a plain access races with an atomic one");
}

}  // namespace
}  // namespace model
}  // namespace amalgam

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include <amalgam/rpc/detail/outgoing_values.hpp>

namespace amalgam {
class engine;
}

namespace amalgam::detail {

/// An engine's streams of values to handlers: those of its own calls, by id, and the memory granted
/// to callers of its handlers.
///
/// Threads: any.
class value_streams {
public:
    /// See engine_options::max_reader_bytes.
    explicit value_streams(std::size_t most) noexcept : most_(most) {}

    /// Takes over the reference. Throws std::bad_alloc.
    void add(values_reference values);
    void remove(std::uint64_t id) noexcept;
    /// Empty: no such stream, or its call is over.
    values_reference find(std::uint64_t id) noexcept;

    /// How many there are.
    std::size_t open() noexcept;

    /// Grants up to `wanted` values of `each` bytes: what is left, but at least one.
    std::uint32_t reserve(std::uint32_t wanted, std::size_t each) noexcept;
    /// False: that much is not left, and nothing was taken.
    bool try_take(std::size_t bytes) noexcept;
    void give_back(std::size_t bytes) noexcept;
    std::size_t reserved() const noexcept { return reserved_.load(std::memory_order_relaxed); }

private:
    const std::size_t most_;
    std::atomic<std::size_t> reserved_{0};
    std::mutex lock_;
    std::unordered_map<std::uint64_t, values_reference> open_;
};

value_streams& value_streams_of(engine_core& core) noexcept;

/// Defines what readers call.
void define_value_streams(engine& here);

}  // namespace amalgam::detail

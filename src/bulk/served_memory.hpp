#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include <amalgam/bulk/memory_kind.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/tasks/semaphore.hpp>
#include <amalgam/tasks/shared_mutex.hpp>

#include "bulk/bulk_source.hpp"

/// Memory that is moved by calls to its owner: see docs/wire/bulk.md.
namespace amalgam::detail {

inline constexpr std::string_view read_served_name = "amalgam.bulk.read";
inline constexpr std::string_view write_served_name = "amalgam.bulk.write";
using read_served = std::vector<std::byte>(std::uint64_t secret, std::uint64_t offset,
                                           std::uint32_t bytes);
using write_served = void(std::uint64_t secret, std::uint64_t offset, std::span<const std::byte>);
/// Longest piece of one call. Wire.
inline constexpr std::size_t served_piece_bytes = std::size_t{1} << 20;

/// One block that is served. Readers and writers of its bytes share its lock; closing takes it.
class served_block {
public:
    served_block(const memory_view& memory, access rights, std::uint64_t secret) noexcept
        : memory_(memory), rights_(rights), secret_(secret) {}

    std::uint64_t secret() const noexcept { return secret_; }
    void close() noexcept;
    void read(std::uint64_t offset, mutable_bytes into);
    void write(std::uint64_t offset, const_bytes from);

private:
    void check(access asked, std::uint64_t offset, std::size_t bytes) const;

    shared_mutex lock_;
    std::atomic<bool> is_open_{true};
    const memory_view memory_;
    const access rights_;
    const std::uint64_t secret_;
};

/// Those of an engine. Threads: any.
class served_blocks {
public:
    explicit served_blocks(std::size_t buffers) noexcept : buffers_(buffers) {}

    void add(const std::shared_ptr<served_block>& block);
    std::vector<std::byte> read(std::uint64_t secret, std::uint64_t offset, std::uint32_t bytes);
    void write(std::uint64_t secret, std::uint64_t offset, const_bytes from);
    void close_all() noexcept;

private:
    std::shared_ptr<served_block> find(std::uint64_t secret);

    semaphore buffers_;
    std::mutex lock_;
    std::map<std::uint64_t, std::weak_ptr<served_block>> all_;
};

/// The descriptor's state.
std::shared_ptr<bulk_source> served_source(engine_core& core, std::uint64_t secret,
                                           std::uint64_t bytes, access rights);

/// A pull or push of a source of kind `served`.
future<void> start_served_pull(const std::shared_ptr<const bulk_source>& source,
                               std::uint64_t offset, scatter into, const bulk_options& how);
future<void> start_served_push(const std::shared_ptr<const bulk_source>& source,
                               std::uint64_t offset, gather from, const bulk_options& how);

}  // namespace amalgam::detail

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/segments.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam {

/// Options of transfers. The defaults suit most.
struct transfers_options {
    /// Time limit for all of it; inside a handler, the earlier of this and the handler's own.
    std::chrono::nanoseconds within = std::chrono::nanoseconds::max();
    std::size_t chunk_bytes = 0;  ///< As bulk_options::chunk_bytes.
    bool striped = false;         ///< As bulk_options::striped.
    /// Called after each piece with the bytes moved so far and those of all, where
    /// bulk_options::on_progress is called; never twice at once. It must not wait. An exception
    /// ends the transfer of that piece with `handler_failed`.
    std::function<void(std::uint64_t bytes_done, std::uint64_t bytes)> on_progress{};
};

/// Several pulls and pushes, of memory of one peer or several, that run at once and end as one:
///
///     transfers all;
///     all.pull(left, my_left);
///     all.push(right, my_right);
///     all.run({.on_progress = [](std::uint64_t done, std::uint64_t of) { … }});
///
/// Owner:   borrows the local bytes until the end of each run; copies descriptors and segment
///          lists. May be run again.
/// Threads: one at a time; the futures as any.
/// Failure: of the first transfer that failed, with its number and the sentence that it would have
///          alone. The others are awaited, not canceled; those not yet started are left out. After
///          the end no byte moves, as after bulk::pull() and bulk::push().
/// Cost:    two allocations per run, and what the transfers take alone.
class transfers {
public:
    transfers() = default;
    transfers(const transfers&) = default;
    transfers(transfers&& other) noexcept
        : all_(std::move(other.all_)), bytes_(std::exchange(other.bytes_, 0)) {}
    /// What is moved from is an empty list.
    transfers& operator=(transfers other) noexcept {
        all_.swap(other.all_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }

    /// Reads from `offset` of `from`, filling `into`.
    void pull(const bulk& from, std::uint64_t offset, const segments& into);
    void pull(const bulk& from, const segments& into) { pull(from, 0, into); }
    /// Writes `from` to `offset` of `to`.
    void push(const bulk& to, std::uint64_t offset, const const_segments& from);
    void push(const bulk& to, const const_segments& from) { push(to, 0, from); }

    std::size_t size() const noexcept { return all_.size(); }
    /// Of all together.
    std::uint64_t bytes() const noexcept { return bytes_; }

    /// Runs them, and parks the ULT or thread until all have ended. Throws amalgam::error.
    void run(const transfers_options& how = {}) const;
    /// Starts them; the future is ready when all have ended. Canceling or destroying it cancels all
    /// of them, and waits as the future of bulk::start_pull() does. The list may change meanwhile.
    future<void> start(const transfers_options& how = {}) const;

private:
    friend class transfer_group;
    struct one {
        bulk far;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
        std::vector<mutable_bytes> into{};
        std::vector<const_bytes> from{};
        bool is_push = false;
    };

    std::vector<one> all_;
    std::uint64_t bytes_ = 0;
};

}  // namespace amalgam

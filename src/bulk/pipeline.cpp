#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "bulk/bulk_source.hpp"
#include "bulk/progress.hpp"

// A transfer that overlaps with the work on it: a ring of buffers, each with its transfer in
// flight.

namespace amalgam {
namespace detail {

namespace {

class pipeline {
public:
    pipeline(const amalgam::bulk& what, engine_core* core, std::size_t chunk, std::size_t depth,
             const pipeline_options& how)
        : what_(what), core_(core), chunk_(chunk) {
        if (chunk == 0 || depth == 0) {
            throw error(errc::invalid,
                        fmt::format("the chunk and depth of a pipeline are {} and {}, expected at "
                                    "least 1; example: pull_pipelined(1 << 20, 4, work)",
                                    chunk, depth));
        }
        if (core != nullptr) check_may_wait(*core);
        if (core != nullptr) {
            const clock::time_point begin = now_of(*core);
            if (how.within < deadline_ - begin) deadline_ = begin + how.within;
        }
        chunks_ = what.bytes() / chunk + (what.bytes() % chunk != 0 ? 1 : 0);
        const auto slots = static_cast<std::size_t>(std::min<std::uint64_t>(depth, chunks_));
        const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(chunk, what.bytes()));
        for (std::size_t i = 0; i < slots; ++i) {
            if (how.buffers != nullptr) {
                pooled_.push_back(how.buffers->take(bytes));
                slots_.push_back(pooled_.back().bytes());
            } else {
                heap_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
                slots_.push_back({heap_.back().get(), bytes});
            }
        }
        flights_.resize(slots);
    }

    std::uint64_t chunks() const noexcept { return chunks_; }
    std::size_t depth() const noexcept { return slots_.size(); }
    std::uint64_t offset(std::uint64_t chunk) const noexcept { return chunk * chunk_; }
    /// Where the chunk ends.
    std::uint64_t end(std::uint64_t chunk) const noexcept {
        return offset(chunk) + buffer(chunk).size();
    }
    mutable_bytes buffer(std::uint64_t chunk) const noexcept {
        const std::uint64_t left = what_.bytes() - offset(chunk);
        const mutable_bytes slot = slots_[chunk % depth()];
        return slot.first(static_cast<std::size_t>(std::min<std::uint64_t>(left, slot.size())));
    }
    future<void>& flight(std::uint64_t chunk) noexcept { return flights_[chunk % depth()]; }
    /// Options of one chunk: the time left until the common deadline.
    bulk_options how() const {
        bulk_options each;
        each.chunk_bytes = chunk_;
        if (deadline_ == clock::time_point::max()) return each;
        each.within = std::max(deadline_ - now_of(*core_), clock::duration::zero());
        return each;
    }

private:
    const amalgam::bulk& what_;
    engine_core* core_;
    std::size_t chunk_;
    std::uint64_t chunks_ = 0;
    clock::time_point deadline_ = clock::time_point::max();
    std::vector<bulk_buffer> pooled_;
    std::vector<std::unique_ptr<std::byte[]>> heap_;
    std::vector<mutable_bytes> slots_;
    // Last, so destroyed first: cancels transfers in flight, and waits for them.
    std::vector<future<void>> flights_;
};

}  // namespace
}  // namespace detail

void bulk::pull_pipeline(std::size_t chunk, std::size_t depth, detail::pipeline_step work,
                         void* context, const pipeline_options& how) const {
    detail::pipeline line(*this, source_ == nullptr ? nullptr : source_->core, chunk, depth, how);
    const auto start = [&](std::uint64_t i) {
        line.flight(i) = start_pull(line.offset(i), line.buffer(i), line.how());
    };
    for (std::uint64_t i = 0; i < line.depth(); ++i)
        start(i);
    for (std::uint64_t i = 0; i < line.chunks(); ++i) {
        line.flight(i).get();
        work(context, line.buffer(i), line.offset(i));
        detail::tell(how.on_progress, line.end(i));
        if (i + line.depth() < line.chunks()) start(i + line.depth());
    }
}

void bulk::push_pipeline(std::size_t chunk, std::size_t depth, detail::pipeline_step fill,
                         void* context, const pipeline_options& how) const {
    detail::pipeline line(*this, source_ == nullptr ? nullptr : source_->core, chunk, depth, how);
    const auto arrive = [&](std::uint64_t i) {
        line.flight(i).get();
        detail::tell(how.on_progress, line.end(i));
    };
    for (std::uint64_t i = 0; i < line.chunks(); ++i) {
        if (i >= line.depth()) arrive(i - line.depth());
        fill(context, line.buffer(i), line.offset(i));
        line.flight(i) = start_push(line.offset(i), line.buffer(i), line.how());
    }
    for (std::uint64_t i = line.chunks() - line.depth(); i < line.chunks(); ++i)
        arrive(i);
}

}  // namespace amalgam

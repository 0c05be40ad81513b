#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

#include "link.hpp"

namespace ff::detail {
namespace {

/// A batch of so many bytes is not left to the engine's stream.
constexpr std::size_t most_open_bytes = 256 << 10;
constexpr std::size_t most_kept_batches = 8;

/// The group is gone, which the run is told of.
bool is_loss(const std::exception& why) {
    const auto* const known = dynamic_cast<const amalgam::error*>(&why);
    if (known == nullptr) return false;
    const amalgam::errc code = known->code().code;
    return code == amalgam::errc::unreachable || code == amalgam::errc::disconnected ||
           code == amalgam::errc::closed;
}

}  // namespace

far_calls::far_calls(amalgam::engine& over)
    : batch(over.procedure<wire::batch>("ff.batch")),
      item(over.procedure<wire::item>("ff.item")),
      credit(over.procedure<wire::credit>("ff.credit")),
      closed(over.procedure<wire::closed>("ff.closed")),
      failed(over.procedure<wire::failed>("ff.failed")) {}

void far_group::append(std::uint32_t edge, std::uint32_t mark, const char* bytes, std::size_t count,
                       bool last) {
    std::unique_lock guard(lock_);
    open_->add({edge, mark, count}, bytes);
    if (open_->size() >= most_open_bytes) {
        guard.unlock();
        return flush();
    }
    const bool due =
        last || open_->items() >= mine_.batch_size || open_->size() >= mine_.batch_bytes;
    if (!due || asked_) return;
    amalgam::post(run_.over->pool(), [this] { flush_or_fail(); });
    asked_ = true;
}

void far_group::not_sent(const std::exception& why) noexcept {
    if (is_loss(why)) return;
    run_.fail({"cannot send to group ", name, " at ", address, ": ", why.what()});
}

std::shared_ptr<sendable<open_batch>> far_group::unused_batch() {
    for (auto& each : posted_) {
        if (!is_back(*each)) continue;
        each->clear();
        return std::exchange(each, open_);
    }
    auto fresh = std::make_shared<sendable<open_batch>>();
    if (posted_.size() < most_kept_batches) posted_.push_back(open_);
    return fresh;
}

/// With posting_.
void far_group::post_open() {
    std::shared_ptr<sendable<open_batch>> full;
    {
        const std::lock_guard guard(lock_);
        asked_ = false;
        if (open_->items() == 0) return;
        auto next = unused_batch();
        full = std::exchange(open_, std::move(next));
    }
    run_.calls->batch.on(to).post_held(leave(full), number_, full->bytes());
    ++number_;
}

void far_group::append_large(std::uint32_t edge, const std::shared_ptr<const void>& owner,
                             const char* bytes, std::size_t count) {
    const std::lock_guard turn(posting_);
    post_open();
    const amalgam::const_bytes item(reinterpret_cast<const std::byte*>(bytes), count);
    run_.calls->item.on(to).post_held(owner, number_, edge, item);
    ++number_;
}

void far_group::flush() {
    const std::lock_guard turn(posting_);
    post_open();
}

void far_group::flush_or_fail() noexcept {
    or_fail([this] { flush(); });
}

void far_group::flush_old() noexcept {
    or_fail([this] {
        const std::lock_guard turn(posting_);
        if (seen_ == number_) post_open();
        seen_ = number_;
    });
}

std::uint64_t far_group::batches() {
    const std::lock_guard turn(posting_);
    return number_;
}

}  // namespace ff::detail

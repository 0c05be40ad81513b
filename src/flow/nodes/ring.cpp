#include <algorithm>
#include <bit>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/tasks/extension/cpu_relax.hpp>

namespace amalgam::detail {

void throw_stopped() {
    throw error(errc::canceled, "the run is being stopped; send no more items and return");
}

namespace {

bool can_order_threads() noexcept {
    static const bool can = barrier_on_all_threads();
    return can;
}

}  // namespace

ring_core::ring_core(std::size_t capacity, bool across_streams)
    : capacity_(std::max<std::size_t>(capacity, 1)),
      mask_(std::bit_ceil(capacity_) - 1),
      portion_mask_(std::bit_floor(std::max<std::size_t>(capacity_ / 8, 1)) - 1),
      across_streams_(across_streams),
      light_(!across_streams || can_order_threads()) {
    if (across_streams_ && light_) own_consumer_bell_.expect_light_rings();
}

void ring_core::share_consumer_bell(doorbell& shared) noexcept {
    if (across_streams_ && light_) shared.expect_light_rings();
    consumer_bell_ = &shared;
}

void ring_core::close() noexcept {
    closed_.store(true);
    consumer_bell_->ring();
}

void ring_core::mark(std::uint64_t number) noexcept {
    marked_for_ = number;
    mark_.store(pushed_, std::memory_order_seq_cst);  // As in finish_push().
    consumer_bell_->ring();
}

void ring_core::stop() noexcept {
    stopped_.store(true);
    consumer_bell_->ring();
    producer_bell_->ring();
}

void ring_core::give_room_back() noexcept {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    // Counts items that waited since the last time.
    const std::uint64_t waited = tail - head_.load(std::memory_order_relaxed);
    if (waited > deepest_.load(std::memory_order_relaxed))
        deepest_.store(waited, std::memory_order_relaxed);
    head_.store(popped_, std::memory_order_seq_cst);  // As in finish_push().
    // Wakes a waiting producer for half a queue of room, not for each portion; this end returns
    // here before it waits itself.
    if (tail - popped_ <= capacity_ / 2) producer_bell_->ring();
}

void ring_core::wait_for_room() {
    producer_bell_->wait_until("room in a flow queue",
                               [this] { return stopped_.load() || has_room(); });
    if (stopped_.load()) throw_stopped();
}

/// If the producer is pushing right now, lets more items gather: passing items between cores costs
/// per cache line and check, not per item.
void ring_core::let_items_gather() noexcept {
    constexpr std::uint64_t few = 32, worth_it = 4;
    constexpr int pauses = 20;  // About 0.4 us.
    constexpr unsigned most_skipped = 256;
    const std::uint64_t seen = tail_seen_;
    if (seen - popped_ >= few || closed_.load(std::memory_order_relaxed)) return;
    if (skips_left_ != 0) {
        --skips_left_;
        return;
    }
    for (int i = 0; i < pauses; ++i)
        cpu_relax();
    look_for_item();
    // When items come one by one, waiting would only delay them.
    skips_when_in_vain_ =
        tail_seen_ - seen >= worth_it ? 0 : std::min(2 * skips_when_in_vain_ + 1, most_skipped);
    skips_left_ = skips_when_in_vain_;
}

bool ring_core::wait_for_item() {
    if (!stopped_seen() && look_for_item()) {
        if (across_streams_) let_items_gather();
        return true;
    }
    give_room_back();
    // Reads closed_ before the last check, so that items pushed earlier come first.
    const auto ready = [this] {
        return stopped_.load() || closed_.load() || look_for_item() || is_at_mark();
    };
    constexpr const char* what = "item in a flow queue";
    if (across_streams_)
        consumer_bell_->look_and_wait_until(what, ready);
    else
        consumer_bell_->wait_until(what, ready);
    if (stopped_.load()) throw_stopped();
    if (!look_for_item()) return false;
    if (across_streams_) let_items_gather();
    return true;
}

}  // namespace amalgam::detail

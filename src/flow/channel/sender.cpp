#include "flow/channel/sender.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/recorder.hpp>

#include "flow/limits.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t max_item_bytes = std::numeric_limits<std::uint32_t>::max();

void record_batch(std::uint32_t edge, std::size_t to, std::size_t bytes, std::uint64_t began) {
    span_record batch{.kind = span_kind::batch, .begin = began, .end = trace_time()};
    batch.name = trace_text(fmt::format("edge {}", edge));
    batch.peer = trace_text(fmt::format("receiver {}", to));
    batch.bytes = bytes;
    record_span(batch);
}

}  // namespace

sender::sender(engine& over, std::uint32_t edge, std::uint32_t replica, std::size_t receivers,
               channel_limits limits, std::function<void(std::size_t, const failure&)> lost)
    : channel_out(receivers),
      over_(over),
      edge_(edge),
      replica_(replica),
      limits_(limits),
      lost_(std::move(lost)),
      batch_(over.procedure<wire::batch_signature>(wire::batch)),
      links_(receivers) {
    start_batch(0, 0);
}

void sender::connect(std::size_t receiver, peer to) {
    links_[receiver].to = to;
}

void sender::start_batch(std::size_t item_bytes, std::size_t needed) {
    const std::size_t room = std::max(limits_.batch_bytes, needed);
    auto fresh = std::make_shared<buffer>(pool_.take(room));
    if (item_bytes != 0) std::memcpy(fresh->data(), item_, item_bytes);
    batch_memory_ = std::move(fresh);
    begin_ = item_ = batch_memory_->data();
    at_ = begin_ + item_bytes;
    end_ = begin_ + room;
    items_ = 0;
    posted_ = 0;
    committed_.store(0, std::memory_order_seq_cst);
}

void sender::make_room(std::size_t bytes) {
    const auto item_bytes = static_cast<std::size_t>(at_ - item_);
    std::size_t needed = item_bytes + bytes;
    if (needed > max_item_bytes)
        throw error(errc::too_large,
                    "an item takes more than 4 GiB, expected less; split it into several items");
    // Limits copies of an item that grows in small steps.
    if (item_ == begin_) needed = std::min(needed + item_bytes, max_item_bytes);
    std::unique_lock hold(lock_);
    post_all(hold);
    start_batch(item_bytes, needed);
}

void sender::post_committed() {
    std::unique_lock hold(lock_);
    if (is_stopped()) throw_stopped();
    post_if_starving(hold);
}

void sender::post_if_starving(std::unique_lock<mutex>& hold) {
    // Twice: the node may complete an item before it sees the request.
    for (int look = 0; look < 2; ++look) {
        link* receiver = least_busy();
        if (is_starving(*receiver) && has_unposted()) post_to(*receiver, hold);
        starving_.store(is_starving(*least_busy()), std::memory_order_seq_cst);
    }
}

void sender::post_all(std::unique_lock<mutex>& hold) {
    for (;;) {
        if (is_stopped()) throw_stopped();
        if (!has_unposted()) return;
        link* receiver = least_busy();
        if (receiver->in_flight() < limits_.window_bytes) {
            post_to(*receiver, hold);
            continue;
        }
        const counted_wait counted(clock_);
        changed_.wait(hold);
    }
}

void sender::mark(std::uint64_t number) {
    std::unique_lock hold(lock_);
    post_all(hold);
    for (link& one : links_) {
        const auto has_room = [&] {
            return is_stopped() || one.in_flight() < limits_.window_bytes;
        };
        if (!has_room()) {
            const counted_wait counted(clock_);
            changed_.wait(hold, has_room);
        }
        if (is_stopped()) throw_stopped();
        post_mark_to(one, number, hold);
    }
}

/// A batch of no items.
void sender::post_mark_to(link& receiver, std::uint64_t number, std::unique_lock<mutex>& hold) {
    std::array<std::byte, wire::mark_bytes> bytes;
    store_le(bytes.data(), number);
    try {
        batch_.on(receiver.to)
            .post(edge_, replica_, receiver.posted_batches, std::uint32_t{0}, const_bytes(bytes));
    } catch (const error& wrong) {
        hold.unlock();  // lost_ stops this sender.
        lost_(static_cast<std::size_t>(&receiver - links_.data()),
              failure{wrong.code(), wrong.what()});
        throw_stopped();
    }
    ++receiver.posted_batches;
    receiver.posted_bytes += limits::batch_overhead + bytes.size();
}

bool sender::has_unposted() const noexcept {
    return items_of(committed_.load(std::memory_order_seq_cst)) != items_of(posted_);
}

sender::link* sender::least_busy() noexcept {
    link* best = nullptr;
    for (std::size_t i = 0; i < links_.size(); ++i) {
        link& one = links_[(turn_ + i) % links_.size()];
        if (best == nullptr || one.in_flight() < best->in_flight()) best = &one;
    }
    return best;
}

void sender::post_to(link& receiver, std::unique_lock<mutex>& hold) {
    const std::uint64_t until = committed_.load(std::memory_order_seq_cst);
    const std::size_t start = bytes_of(posted_);
    const const_bytes bytes(batch_memory_->data() + start, bytes_of(until) - start);
    const std::uint32_t items = items_of(until) - items_of(posted_);
    const auto which = static_cast<std::size_t>(&receiver - links_.data());
    const std::uint64_t began = recording() ? trace_time() : 0;
    try {
        batch_.on(receiver.to)
            .post_held(batch_memory_, edge_, replica_, receiver.posted_batches, items, bytes);
    } catch (const error& wrong) {
        hold.unlock();  // lost_ stops this sender.
        lost_(which, failure{wrong.code(), wrong.what()});
        throw_stopped();
    }
    if (began != 0) record_batch(edge_, which, bytes.size(), began);
    posted_ = until;
    ++receiver.posted_batches;
    receiver.posted_items += items;
    receiver.posted_bytes += limits::batch_overhead + bytes.size();
    turn_ = which + 1;
    most_waiting_ = std::max(most_waiting_, waiting_items());
}

std::uint64_t sender::waiting_items() const noexcept {
    return std::accumulate(
        links_.begin(), links_.end(), std::uint64_t{0},
        [](std::uint64_t sum, const link& one) { return sum + one.items_before_it(); });
}

channel_out::traffic sender::traffic_so_far() const {
    std::unique_lock hold(lock_);
    traffic all;
    for (const link& one : links_) {
        all.items += one.posted_items;
        all.bytes += one.posted_bytes - one.posted_batches * limits::batch_overhead;
        all.unconsumed_bytes += one.in_flight();
    }
    all.waiting = waiting_items();
    all.most_waiting = most_waiting_;
    return all;
}

void sender::credit(std::size_t receiver, std::uint64_t consumed_bytes,
                    std::uint64_t consumed_items) {
    std::unique_lock hold(lock_);
    if (receiver >= links_.size() || is_stopped()) return;
    link& one = links_[receiver];
    if (consumed_bytes < one.consumed_bytes || consumed_bytes > one.posted_bytes) return;
    if (consumed_items < one.consumed_items || consumed_items > one.posted_items) return;
    one.consumed_bytes = consumed_bytes;
    consumed_items_.fetch_add(consumed_items - one.consumed_items, std::memory_order_seq_cst);
    one.consumed_items = consumed_items;
    ring();
    changed_.notify_one();
    post_if_starving(hold);
}

void sender::end() {
    std::unique_lock hold(lock_);
    post_all(hold);
    starving_.store(false, std::memory_order_seq_cst);
    auto end = over_.procedure<wire::end_signature>(wire::end);
    for (link& one : links_) {
        one.open = false;  // From here on, the answer reports a loss.
        one.ended = end.on(one.to).start(edge_, replica_, one.posted_batches, one.posted_items);
    }
}

void sender::wait_ended() {
    for (std::size_t i = 0; i < links_.size(); ++i) {
        failure why;
        (void)links_[i].ended.wait();  // stop() may cancel it meanwhile.
        std::unique_lock hold(lock_);
        if (is_stopped()) throw_stopped();
        future<std::string> answer = std::move(links_[i].ended);
        try {
            why.sentence = answer.get();
            links_[i].done = why.sentence.empty();
            if (links_[i].done) continue;
            why.what = {errc::handler_failed};
        } catch (const error& wrong) {
            why = {wrong.code(), wrong.what()};
        }
        hold.unlock();  // lost_ stops this sender.
        lost_(i, why);
        throw_stopped();
    }
}

bool sender::has_ended(std::size_t receiver) const {
    std::unique_lock hold(lock_);
    return links_[receiver].done;
}

bool sender::is_open(std::size_t receiver) const {
    std::unique_lock hold(lock_);
    return links_[receiver].open;
}

void sender::stop() noexcept {
    std::unique_lock hold(lock_);
    is_stopped_.store(true, std::memory_order_seq_cst);
    starving_.store(true, std::memory_order_seq_cst);  // The node notices with its next item.
    for (link& one : links_)
        if (one.ended.valid()) one.ended.cancel();  // It may never be answered.
    changed_.notify_all();
    ring();
}

}  // namespace amalgam::detail

#include "flow/channel/receiver.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

#include "flow/channel/wire.hpp"
#include "flow/limits.hpp"

namespace amalgam::detail {
namespace {

std::uint64_t weight_of(const channel_in::batch& one) noexcept {
    return limits::batch_overhead + one.bytes.size();
}

[[noreturn]] void throw_closed() {
    throw error(errc::closed, "the run has ended in this process, which accepts no more items");
}

}  // namespace

void throw_bad_batch(std::string_view why) {
    throw error(errc::mismatch,
                fmt::format("a batch of items cannot be read ({}), expected what serialize() "
                            "wrote; check that it reads and writes the same members",
                            why));
}

bool receiver::next(batch& into) {
    std::unique_lock hold(lock_);
    give_back_held();
    const auto ready = [this] { return queue_.first != nullptr || stopped_ || all_ended(); };
    if (!ready()) {
        const counted_wait counted(clock_);
        changed_.wait(hold, ready);
    }
    if (stopped_) throw error(errc::canceled, "the run is being stopped; return");
    if (queue_.first == nullptr) return false;
    take_first(into);
    return true;
}

receiver::found receiver::try_next(batch& into) {
    std::unique_lock hold(lock_);
    give_back_held();
    if (stopped_) throw error(errc::canceled, "the run is being stopped; return");
    if (queue_.first == nullptr) return all_ended() ? found::end : found::nothing_yet;
    take_first(into);
    return found::batch;
}

bool receiver::is_ready() const noexcept {
    std::unique_lock hold(lock_);
    return stopped_ || queue_.first != nullptr || all_ended();
}

std::uint64_t receiver::items_taken() const {
    std::unique_lock hold(lock_);
    std::uint64_t all = 0;
    for (const link& one : links_)
        all += one.consumed_items;
    return all;
}

void receiver::take_first(batch& into) noexcept {
    arrival* const taken = queue_.pop();
    into = taken->what;
    if (taken == &mark_)
        mark_waits_ = false;
    else
        held_ = taken;
}

void receiver::told_consumer() noexcept {
    changed_.notify_one();
    ring();
}

void receiver::release() noexcept {
    std::unique_lock hold(lock_);
    give_back_held();
}

void receiver::give_back_held() noexcept {
    arrival* done = std::exchange(held_, nullptr);
    if (done == nullptr) return;
    count_consumed(*done);
    const link& from = links_[done->sender];
    over(*done, false);
    if (from.ended && from.waiting == 0) consumed_.notify_all();
}

void receiver::count_consumed(const arrival& one) noexcept {
    link& from = links_[one.sender];
    --from.waiting;
    from.consumed_items += one.what.items;
    from.consumed_bytes += weight_of(one.what);
    from.held_bytes -= weight_of(one.what);
    from.held_items -= one.what.items;
}

/// The batch is no longer needed; it is freed here.
void receiver::over(arrival& one, bool refused) noexcept {
    if (keeps_) {
        delete static_cast<kept_arrival*>(&one);
        return;
    }
    one.refused = refused;
    one.delivered_by.unpark();
}

void receiver::accept(arrival& one, std::uint64_t number) {
    if (stopped_) throw_closed();
    link& from = checked(one.sender);
    bool known = number < from.expected || from.early.count(number) != 0;
    bool past_the_end = from.ended && number >= from.batches;
    if (known || past_the_end)
        throw error(errc::invalid, fmt::format("batch {} is out of sequence, expected batch {}",
                                               number, from.expected));
    const bool is_mark = limits_.takes_marks && one.what.bytes.size() == wire::mark_bytes;
    if (one.what.items == 0 && !is_mark)
        throw error(errc::invalid,
                    fmt::format("batch {} is empty, expected at least one item", number));
    if (!keeps_) count_held(from, number, one.what);
    if (number != from.expected) {
        from.early.emplace(number, &one);
        return;
    }
    enqueue(one);
    for (auto early = from.early.begin();
         early != from.early.end() && early->first == from.expected;
         early = from.early.erase(early))
        enqueue(*early->second);
    pass_mark_if_all_sent_it();
    told_consumer();
}

/// Checks the limits. When sending the last batch in order, the sender had all the earlier ones in
/// flight.
void receiver::count_held(link& from, std::uint64_t number, const batch& what) const {
    const bool is_last = number >= from.came;
    const std::uint64_t bytes = from.held_bytes + (is_last ? 0 : weight_of(what) - from.last_bytes);
    const std::uint64_t items = from.held_items + (is_last ? 0 : what.items - from.last_items);
    if (bytes >= limits_.window_bytes && bytes != 0 && items >= limits_.starving_items)
        throw error(errc::invalid,
                    fmt::format("it sent batch {} while {} bytes were waiting, expected fewer than "
                                "{} (run_options::window_bytes, the same in every process)",
                                number, bytes, limits_.window_bytes));
    from.held_bytes += weight_of(what);
    from.held_items += what.items;
    if (!is_last) return;
    from.came = number + 1;
    from.last_bytes = weight_of(what);
    from.last_items = what.items;
}

bool receiver::deliver(std::size_t sender, std::uint64_t number, batch what, consumed& so_far) {
    std::unique_lock hold(lock_);
    if (keeps_) return keep(sender, number, what, so_far);
    arrival mine;
    mine.what = what;
    mine.sender = sender;
    accept(mine, number);
    hold.unlock();
    mine.delivered_by.waits_for("flow batch to be consumed");
    mine.delivered_by.park();
    if (mine.refused) throw_closed();
    if (mine.is_bad)
        throw error(errc::invalid,
                    fmt::format("batch {} is the mark of a checkpoint before an earlier one was "
                                "over",
                                number));

    hold.lock();
    link& from = links_[sender];
    so_far = {from.consumed_bytes, from.consumed_items};
    // One message for several batches, unless the sender may be waiting for it.
    bool tell = from.waiting == 0 || limits_.tells_at_once ||
                so_far.bytes - from.told_bytes >= limits_.window_bytes / 4;
    if (tell && so_far.bytes == from.told_bytes) return false;
    if (tell) from.told_bytes = so_far.bytes;
    return tell;
}

bool receiver::keep(std::size_t sender, std::uint64_t number, batch what, consumed& so_far) {
    auto mine = std::make_unique<kept_arrival>();
    mine->bytes.assign(what.bytes.begin(), what.bytes.end());
    mine->what = {mine->bytes, what.items};
    mine->sender = sender;
    accept(*mine, number);
    mine.release();  // The queue owns it now.
    link& from = links_[sender];
    from.kept_bytes += weight_of(what);
    from.kept_items += what.items;
    so_far = {from.kept_bytes, from.kept_items};
    return true;
}

receiver::~receiver() {
    stop();
    release();
}

void receiver::finish(std::size_t sender, std::uint64_t batches, std::uint64_t items) {
    std::unique_lock hold(lock_);
    link& from = checked(sender);
    if (from.ended) throw error(errc::invalid, "it has already ended");
    const std::uint64_t came =
        from.early.empty() ? from.expected : std::prev(from.early.end())->first + 1;
    if (batches < came)
        throw error(errc::invalid, fmt::format("it ended after {} batches, but batch {} arrived",
                                               batches, came - 1));
    // Its last batches may still be in flight.
    from.ended = true;
    from.batches = batches;
    pass_mark_if_all_sent_it();
    told_consumer();
    consumed_.wait(
        hold, [&] { return stopped_ || (from.expected >= from.batches && from.waiting == 0); });
    if (stopped_) throw_closed();  // Even if the last batch was taken: perhaps not completely.
    if (from.consumed_items != items)
        throw error(errc::invalid,
                    fmt::format("{} of {} items arrived", from.consumed_items, items));
}

bool receiver::is_open(std::size_t sender) const {
    std::unique_lock hold(lock_);
    const link& from = links_[sender];
    return !from.ended || from.expected < from.batches;
}

void receiver::stop() noexcept {
    std::unique_lock hold(lock_);
    if (stopped_.exchange(true)) return;
    while (arrival* const each = queue_.pop())
        if (each != &mark_) over(*each, true);
    for (link& one : links_) {
        while (arrival* const each = one.behind.pop())
            over(*each, true);
        for (auto& [number, early] : one.early)
            over(*early, true);
        one.early.clear();
    }
    changed_.notify_all();
    consumed_.notify_all();
    ring();
}

receiver::link& receiver::checked(std::size_t sender) {
    if (sender < links_.size()) return links_[sender];
    throw error(errc::invalid, fmt::format("there is no sender {} on this edge", sender));
}

void receiver::enqueue(arrival& one) noexcept {
    link& from = links_[one.sender];
    ++from.expected;
    ++from.waiting;
    if (one.what.items == 0)
        take_mark(one);
    else
        (from.marked ? from.behind : queue_).push(one);
}

/// What that sender has sent before the mark is in the queue; what it sends behind it waits until
/// all others have sent theirs, or have ended.
void receiver::take_mark(arrival& one) noexcept {
    link& from = links_[one.sender];
    const auto number = load_le<std::uint64_t>(one.what.bytes.data());
    one.is_bad = from.marked || number <= (mark_waits_ ? mark_number_ : 0);
    if (!one.is_bad) {
        from.marked = true;
        mark_number_ = number;
    }
    count_consumed(one);
    over(one, false);
    if (from.ended && from.waiting == 0) consumed_.notify_all();
}

void receiver::pass_mark_if_all_sent_it() noexcept {
    const auto sent = [](const link& one) { return one.marked; };
    const auto will_send = [](const link& one) {
        return !one.marked && !(one.ended && one.expected >= one.batches);
    };
    if (std::none_of(links_.begin(), links_.end(), sent) || mark_waits_) return;
    if (std::any_of(links_.begin(), links_.end(), will_send)) return;
    mark_.what.mark = mark_number_;
    mark_waits_ = true;
    queue_.push(mark_);
    for (link& one : links_) {
        one.marked = false;
        while (arrival* const each = one.behind.pop())
            queue_.push(*each);
    }
}

bool receiver::all_ended() const noexcept {
    return std::all_of(links_.begin(), links_.end(),
                       [](const link& one) { return one.ended && one.expected >= one.batches; });
}

}  // namespace amalgam::detail

#include "rpc/serve/item_sender.hpp"

#include <algorithm>
#include <utility>

#include "rpc/serve/answer_record.hpp"
#include "rpc/serve/server.hpp"

namespace amalgam::detail {

item_sender::item_sender(served_call& call, std::uint32_t window) noexcept
    : call_(call),
      counts_(&call.what().sent_values),
      span_(call.what().library ? nullptr
                                : stream_span::begin(call.trace(), call.procedure(), call.from())),
      values_(&call.owner().context().buffers(), &call.what().options.context),
      credit_(std::min(window, most_credit)) {}

engine_core& item_sender::core() noexcept {
    return call_.owner().context().core();
}

void item_sender::await_credit() {
    if (!call_.canceled() && !credit_.try_acquire()) {
        counts_->wait();
        if (span_) span_->end_batch();
        struct waiting {
            std::atomic<bool>& flag;
            ~waiting() { flag.store(false, std::memory_order_relaxed); }
        } const until_then{waits_};
        waits_.store(true, std::memory_order_relaxed);
        credit_.acquire();
    }
    check_wanted();
}

void item_sender::check_wanted() const {
    if (call_.canceled()) {
        throw values_unwanted(errc::canceled, "the caller of this stream canceled it or is gone");
    }
}

void item_sender::send() {
    waited_answer item(call_, values_);
    item.is_last = false;
    item.counts = counts_;
    std::shared_ptr<loan_end> returned;
    try {
        item.frame_item(returned);
    } catch (...) {
        give_back_credit();
        throw;
    }
    const std::size_t bytes = item.value_bytes;
    item.send();
    if (span_) span_->add(bytes);
    // From here on only the engine keeps borrowed buffers: the next line waits for their release.
    values_.lends.clear();
    if (returned) await_return(std::move(returned));
}

void item_sender::await_return(std::shared_ptr<loan_end> returned) {
    {
        const std::lock_guard hold(busy_);
        returned_ = returned;
    }
    // Either this sees that the call is canceled, or stop_waiting() sees the event.
    if (!call_.canceled()) returned->wait();
    // A reader that has the value may leave before this sender wakes.
    if (!returned->is_release()) check_wanted();
}

void item_sender::stop_waiting() noexcept {
    credit_.release();
    const std::lock_guard hold(busy_);
    if (returned_) returned_->set(loan_end::how::stopped);
}

void item_sender::add_credit(std::uint32_t items) noexcept {
    const std::size_t room = most_credit - std::min<std::size_t>(credit_.available(), most_credit);
    credit_.release(std::min<std::size_t>(items, room));
}

}  // namespace amalgam::detail

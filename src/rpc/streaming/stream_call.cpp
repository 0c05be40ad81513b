#include <algorithm>

#include <amalgam/rpc/detail/stream_call.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/call/pending_call.hpp"
#include "rpc/memory/loans.hpp"
#include "rpc/memory/rendezvous.hpp"
#include "rpc/streaming/value_streams.hpp"

namespace amalgam::detail {

struct stream_call::deferred_value {
    rendezvous_values what;
    loan_ids loans;
};

stream_call::stream_call(const call_target& target)
    : core_reference(*target.core),
      call_record(target),
      window_(target.window),
      credit_(&stream_call::run_credit, *this) {
    window = window_;
    expected_ = window_;
}

stream_call::~stream_call() {
    if (bounded_) value_streams_of(*core_).give_back(window_ * value_bytes_);
}

void stream_call::bound_memory(std::size_t bytes) noexcept {
    window_ = value_streams_of(*core_).reserve(window_, bytes);
    window = window_;
    expected_ = window_;
    value_bytes_ = bytes;
    bounded_ = true;
}

void refuse_empty_stream() {
    throw error(errc::invalid, "this stream is empty: it was moved from");
}

void stream_call::launch() noexcept {
    submit_in_turn();
}

void stream_call::over() noexcept {
    if (sent_along_) sent_along_->call_over();
    // On the engine's stream if there are any; a call that was refused ends on its caller's thread.
    if (const loan_ids unfetched = take_unfetched(); !unfetched.empty())
        loans_of(*core_).release(pending().to, unfetched);
    {
        const std::lock_guard hold(busy_);
        ended_ = true;
        if (reader_ != nullptr) std::exchange(reader_, nullptr)->unpark();
    }
    drop_reference();
}

loan_ids stream_call::take_unfetched() noexcept {
    std::unique_ptr<deferred_value> unfetched;
    {
        const std::lock_guard hold(busy_);
        unfetched = std::move(deferred_);
    }
    return unfetched ? std::move(unfetched->loans) : loan_ids{};
}

void stream_call::cancel() noexcept {
    {
        const std::lock_guard hold(busy_);
        if (ended_ || canceled_) return;
        canceled_ = true;
        add_reference();  // Until release(); taken before the reader wakes, which may return at
                          // once.
        if (reader_ != nullptr) std::exchange(reader_, nullptr)->unpark();
    }
    request_cancel();
}

void stream_call::leave() noexcept {
    cancel();
    drop_reference();
}

const void* stream_call::reader_seen() noexcept {
    const std::lock_guard hold(busy_);
    return reader_;
}

bool stream_call::wait_for_value() {
    for (;;) {
        waiter me;
        me.waits_for(reader_wait);
        {
            const std::lock_guard hold(busy_);
            if (has_value()) return true;
            if (ended_) break;
            if (canceled_) throw error(errc::canceled, "the reader of this stream canceled it");
            context_of(*core_).check_may_wait();
            reader_ = &me;
        }
        me.allow_cancel();
        if (me.park_until(waiter::time_point::max())) continue;
        bool unparked = false;
        {
            const std::lock_guard hold(busy_);
            unparked = reader_ != &me;
            reader_ = nullptr;
        }
        if (unparked) {
            me.park();
        } else {
            throw_if_canceled();
        }
    }
    if (!why.what.ok()) raise();
    return false;
}

void stream_call::value_was_read() noexcept {
    if (++read_ < (window_ + 1) / 2 && !(bounded_ && is_deferred_next())) return;
    const std::uint32_t more = std::exchange(read_, 0);
    // The first to add credit hands it over, including what others add meanwhile.
    if (granted_.fetch_add(more, std::memory_order_acq_rel) != 0) return;
    add_reference();
    if (context_of(*core_).on_owner()) return run_credit(credit_);
    if (!context_of(*core_).hand_over(credit_)) drop_reference();
}

void stream_call::run_credit(work_unit& self) noexcept {
    stream_call& mine = static_cast<credit_task&>(self).whose;
    const std::uint32_t more = mine.granted_.exchange(0, std::memory_order_acq_rel);
    mine.expected_ += more;
    caller_of(*mine.core_).send_credit(mine.pending(), more);
    if (mine.bounded_) mine.fetch_deferred();
    mine.drop_reference();
}

bool stream_call::is_deferred_next() noexcept {
    const std::lock_guard hold(busy_);
    return deferred_ != nullptr && !has_value();
}

bool stream_call::defer(const rendezvous_values& what, loan_ids& loans) {
    if (!bounded_) return false;
    auto later = std::make_unique<deferred_value>(deferred_value{what, {}});
    const std::lock_guard hold(busy_);
    if (!has_value()) return false;
    later->loans = std::move(loans);
    deferred_ = std::move(later);
    return true;
}

void stream_call::fetch_deferred() noexcept {
    std::unique_ptr<deferred_value> next;
    {
        const std::lock_guard hold(busy_);
        if (deferred_ == nullptr || has_value() || ended_) return;
        next = std::move(deferred_);
    }
    caller_of(*core_).fetch_value(pending(), next->what, next->loans);
}

bool stream_call::has_room_for(std::size_t bytes) noexcept {
    if (bytes <= value_bytes_ || window_ == 1) return true;
    if (!value_streams_of(*core_).try_take(window_ * (bytes - value_bytes_))) return false;
    value_bytes_ = bytes;
    return true;
}

void stream_call::decode(archive_reader& from) {
    if (fetching_) from.fail("the stream ended before its last value was released");
}

bool stream_call::take_item(archive_reader& from) {
    --expected_;
    decode_item(from);
    if (!from.ok() || from.remaining() != 0) return false;
    const std::lock_guard hold(busy_);
    if (reader_ != nullptr) std::exchange(reader_, nullptr)->unpark();
    return true;
}

}  // namespace amalgam::detail

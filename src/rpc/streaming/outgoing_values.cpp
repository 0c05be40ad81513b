#include <utility>

#include <amalgam/core/random.hpp>
#include <amalgam/rpc/detail/outgoing_values.hpp>

#include "rpc/call/counted_procedure.hpp"
#include "rpc/context/engine_context.hpp"
#include "rpc/serve/item_sender.hpp"
#include "rpc/serve/late_answer.hpp"
#include "rpc/streaming/value_streams.hpp"

namespace amalgam::detail {

values_reference open_values(engine_core& core, const remote_procedure& what,
                             archive_context seen) {
    return values_reference(*new outgoing_values(core, what, std::move(seen)));
}

void refuse_empty_outgoing() {
    throw error(errc::invalid, "this stream is empty: it was moved from");
}

outgoing_values::outgoing_values(engine_core& core, const remote_procedure& what,
                                 archive_context seen)
    : core_reference(core),
      core_(core),
      id_(random_nonzero_u64()),
      what_(what),
      context_(std::move(seen)) {}

void outgoing_values::publish() {
    add_reference();
    value_streams_of(core_).add(values_reference(*this));
    counted(what_).sent_values.begin();
}

bool outgoing_values::wanted() const {
    context_of(core_).check_not_forked();
    const std::lock_guard hold(busy_);
    if (!finished_) return !left_ && !over_;
    throw error(errc::invalid,
                "this stream is finished: send every value before finish() and get()");
}

void outgoing_values::finish() noexcept {
    {
        const std::lock_guard hold(busy_);
        finished_ = true;
    }
    conclude(moment::now);
}

void outgoing_values::leave() noexcept {
    {
        const std::lock_guard hold(busy_);
        if (finished_) return;
        left_ = true;
    }
    conclude(moment::now);
}

bool outgoing_values::attach(late_answer& answer, item_sender_base& items) noexcept {
    {
        const std::lock_guard hold(busy_);
        if (attached_ || over_) return false;
        attached_ = true;
    }
    if (!answer.answer_with(*this)) {
        reader_left();
        return false;
    }
    answer.add_reference();
    static_cast<item_sender&>(items).count_in(counted(what_).sent_values);
    items.room().context = &context_;
    bool ended = false;
    {
        const std::lock_guard hold(busy_);
        answer_ = &answer;
        items_ = &items;
        ended = finished_ || left_ || over_;
    }
    settled_.set();
    if (ended) conclude(moment::now);
    return true;
}

void outgoing_values::reader_left() noexcept {
    {
        const std::lock_guard hold(busy_);
        left_ = true;
    }
    settled_.set();
    conclude(moment::later);
}

void outgoing_values::cancel() noexcept {
    cancelable_call* call = nullptr;
    {
        const std::lock_guard hold(busy_);
        call = std::exchange(call_, nullptr);
        if (call == nullptr) return;
        call->keep();  // It may be over as soon as the lock is free.
    }
    call->cancel_kept();
}

void outgoing_values::call_over() noexcept {
    late_answer* answer = nullptr;
    {
        const std::lock_guard hold(busy_);
        over_ = true;
        call_ = nullptr;
        counted(what_).sent_values.end();
        answer = answer_;
        if (answer != nullptr) answer->add_reference();
    }
    settled_.set();
    if (answer != nullptr) {
        answer->cancel();
        answer->drop_reference();
    }
    value_streams_of(core_).remove(id_);
}

/// Answers the reader, unless a value is being sent: then its sender does.
void outgoing_values::conclude(moment when) noexcept {
    late_answer* answer = nullptr;
    bool whole = false;
    {
        const std::lock_guard hold(busy_);
        if (sending_ || answer_ == nullptr) return;
        answer = std::exchange(answer_, nullptr);
        items_ = nullptr;
        whole = finished_ && !left_ && !over_;
    }
    if (answer->claim()) {
        const status what{whole ? errc::ok : errc::canceled};
        const std::string_view text = whole ? "" : why_left_;
        when == moment::now ? answer->send(what, text) : answer->send_later(what, text);
    }
    answer->drop_reference();
}

const call_context& outgoing_values::about() const noexcept {
    return items_->about();
}

void outgoing_values::await_credit() {
    context_of(core_).check_may_wait();
    settled_.wait();
    {
        const std::lock_guard hold(busy_);
        if (left_ || over_ || answer_ == nullptr) {
            throw values_unwanted(errc::canceled, "the handler reads no more values");
        }
        sending_ = true;
    }
    try {
        items_->await_credit();
    } catch (...) {
        stop_sending();
        throw;
    }
}

void outgoing_values::give_back_credit() noexcept {
    items_->give_back_credit();
    stop_sending();
}

void outgoing_values::send() {
    try {
        items_->send();
    } catch (...) {
        {
            const std::lock_guard hold(busy_);
            left_ = true;  // The reader may have it, in part: none can follow.
            why_left_ = "a send() of the caller ended before the handler had fetched the value";
        }
        stop_sending();
        throw;
    }
    stop_sending();
}

void outgoing_values::stop_sending() noexcept {
    bool ended = false;
    {
        const std::lock_guard hold(busy_);
        sending_ = false;
        ended = left_ || over_;
    }
    if (ended) conclude(moment::now);
}

}  // namespace amalgam::detail

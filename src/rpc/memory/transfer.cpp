#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/extension/transfer.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/context/engine_context.hpp"
#include "rpc/limits.hpp"
#include "rpc/memory/transfer_table.hpp"
#include "rpc/statistics/counted_transfer.hpp"
#include "rpc/tracing/call_span.hpp"

namespace amalgam::detail {

transfer_record::transfer_record(const transfer_target& target)
    : core_(target.core),
      there_(target.there),
      key_(target.key),
      offset_(target.offset),
      timeout_(target.timeout),
      piece_bytes_(target.piece_bytes != 0 ? target.piece_bytes : limits::transfer_piece_bytes),
      submit_(&transfer_record::run_submit, *this),
      cancel_(&transfer_record::run_cancel, *this) {}

void transfer_record::get(scatter into) noexcept {
    into_ = into;
    is_put_ = false;
    total_ = 0;
    for (const mutable_bytes& each : into)
        total_ += each.size();
}

void transfer_record::put(gather from) noexcept {
    from_ = from;
    is_put_ = true;
    total_ = 0;
    for (const const_bytes& each : from)
        total_ += each.size();
}

transfer_record::~transfer_record() = default;

void transfer_record::submit() noexcept {
    if (context_of(*core_).statistics() != nullptr) [[unlikely]]
        counted_ = counted_transfer::begin(context_of(*core_));
    submit(recording() ? trace_of_handler() : nullptr);
}

void transfer_record::submit(const trace_context* under) noexcept {
    if (recording()) [[unlikely]]
        span_ = transfer_span::begin(under);
    engine_context& context = context_of(*core_);
    deadline_ = context.deadline_after(timeout_, call_context::try_current());
    if (context.on_owner()) {
        transfers_of(*core_).begin(*this);  // This may be gone afterwards.
        return context.settle_idle();
    }
    if (context.hand_over(submit_)) return;
    why = in_words({errc::closed}, context.why_closed());
    state_ = state::ended;
    over();
}

bool transfer_record::request_cancel() noexcept {
    engine_context& context = context_of(*core_);
    if (context.on_owner()) {
        transfers_of(*core_).cancel(*this);
        context.settle_idle();
        return true;
    }
    if (context.hand_over(cancel_)) return true;
    // An ended engine has ended this transfer, or ends it before it moves a byte. In a child of
    // fork() the parent's transfers move nothing.
    release();
    return false;
}

void transfer_record::run_submit(work_unit& self) noexcept {
    transfer_record& mine = static_cast<posted_task&>(self).whose;
    transfers_of(*mine.core_).begin(mine);
}

void transfer_record::run_cancel(work_unit& self) noexcept {
    transfer_record& mine = static_cast<posted_task&>(self).whose;
    transfers_of(*mine.core_).cancel(mine);
}

const failure& waited_transfer::run() {
    engine_context& context = context_of(*core_);
    context.check_may_wait();
    who_.waits_for("rpc transfer");
    submit();
    context.wait_for_end(who_, [this] { transfers_of(*core_).cancel(*this); });
    return why;
}

void future_transfer::get_copy(scatter into) {
    if (into.size() == 1) {
        one_into_ = into.front();
        return get({&one_into_, 1});
    }
    many_into_.assign(into.begin(), into.end());
    get(many_into_);
}

void future_transfer::put_copy(gather from) {
    if (from.size() == 1) {
        one_from_ = from.front();
        return put({&one_from_, 1});
    }
    many_from_.assign(from.begin(), from.end());
    put(many_from_);
}

future<void> future_transfer::launch() noexcept {
    on_abandon([](void* self) noexcept { static_cast<future_transfer*>(self)->abandoned(); }, this);
    add_reference();  // The future's reference; ours is dropped in over().
    future<void> later(*this);
    submit();
    return later;
}

bool future_transfer::abandoned() noexcept {
    add_reference();  // Until release().
    return request_cancel();
}

void future_transfer::over() noexcept {
    if (why.what.ok()) {
        set();
    } else {
        fail(std::move(why));
    }
    drop_reference();
}

}  // namespace amalgam::detail

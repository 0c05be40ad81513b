#include "rpc/call/caller.hpp"

#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/detail/printable.hpp>
#include <amalgam/rpc/detail/stream_call.hpp>

#include "rpc/call/extras.hpp"
#include "rpc/call/pending_call.hpp"
#include "rpc/call/result_fetch.hpp"
#include "rpc/limits.hpp"
#include "rpc/statistics/statistics_table.hpp"

namespace amalgam::detail {

namespace {

/// Advice for the user, if the peer sent no message.
std::string_view advice(errc code) noexcept {
    switch (code) {
        case errc::timed_out:
            return "no answer before the deadline; allow more time, or check whether the server is "
                   "overloaded";
        case errc::unreachable:
            return "no answer at this address; check that the server is running and that the "
                   "address is correct";
        case errc::unavailable:
            return "the server is stopping and did not run the call; try again, or use another "
                   "server";
        case errc::disconnected:
            return "the peer is gone; look up its address again once it is back";
        case errc::canceled:
            return "canceled by the caller";
        case errc::closed:
            return "the engine has stopped and accepts no more calls";
        case errc::not_found:
            return "the peer defines no procedure with this name and signature";
        case errc::denied:
            return "the connection was refused for want of trust; the logs of both ends say why";
        case errc::too_large:
            return "the arguments exceed the transport's maximum message size; send them in parts";
        case errc::corrupt:
            return "the answer was corrupted in transit: checksum mismatch; call again";
        case errc::no_memory:
            return "out of memory";
        default:
            return "the call failed";
    }
}

std::uint8_t request_flags(bool naming, const_bytes extras, bool urgent, bool xdr,
                           bool checked) noexcept {
    return static_cast<std::uint8_t>((naming ? wire_flag::named : 0) |
                                     (extras.empty() ? 0 : wire_flag::extras) |
                                     (urgent ? wire_flag::urgent : 0) | (xdr ? wire_flag::xdr : 0) |
                                     (checked ? wire_flag::checked : 0));
}

/// Up to 24 bytes, which are most often whole words.
inline void copy_arguments(std::byte* to, const_bytes from) noexcept {
    static_assert(short_lane::max_bytes - request_bytes == 24);
    if (from.size() % 8 != 0) return short_lane::copy(to, from);
    if (from.empty()) return;
    std::memcpy(to, from.data(), 8);
    if (from.size() == 8) return;
    std::memcpy(to + 8, from.data() + 8, 8);
    if (from.size() == 24) std::memcpy(to + 16, from.data() + 16, 8);
}

/// Header of a request with no other flags than these.
void write_plain(std::byte* to, message_kind kind, std::uint16_t provider, bool xdr, bool urgent,
                 std::uint32_t microseconds, std::uint64_t procedure) noexcept {
    store_le(to, plain_head::of_request(kind, provider, xdr, microseconds) |
                     (urgent ? std::uint64_t{wire_flag::urgent} << 8 : 0));
    store_le(to + 8, procedure);
}

}  // namespace

[[gnu::noinline]] bool caller::add_slot() noexcept {
    try {
        slots_.emplace_back().next_free = none;
    } catch (const std::bad_alloc&) {
        return false;
    }
    first_free_ = static_cast<std::uint32_t>(slots_.size() - 1);
    return true;
}

inline bool caller::take_slot(pending_call& call) noexcept {
    if (first_free_ == none && !add_slot()) [[unlikely]]
        return false;
    take_free_slot(call);
    return true;
}

/// Precondition: there is one.
inline void caller::take_free_slot(pending_call& call) noexcept {
    const std::uint32_t index = first_free_;
    slot& mine = slots_[index];
    first_free_ = std::exchange(mine.next_free, 0);
    mine.call = &call;
    call.id = static_cast<std::uint64_t>(mine.generation) << 32 | index;
    ++pending_;
    if (--until_measured_ == 0) [[unlikely]]
        start_measuring(call, mine);
}

/// Several calls may be measured at once, so that long ones are not dropped for others.
[[gnu::noinline]] void caller::start_measuring(const pending_call& call, slot& in) noexcept {
    const clock::time_point now = context_.now();
    until_measured_ = sampling_.step(now);
    const std::uint32_t index = call.what->index;
    if (call.what->library || index >= limits::max_measured_procedures) return;
    try {
        if (took_.size() <= index) took_.resize(index + 1);
        if (took_[index] == nullptr) took_[index] = std::make_unique<latency_histogram>();
    } catch (const std::bad_alloc&) {
        return;
    }
    for (std::uint32_t i = 0; i < measured_.size(); ++i) {
        if (measured_[i].used) continue;
        measured_[i] = {now, index, true};
        in.next_free = i + 1;
        return;
    }
}

[[gnu::noinline]] void caller::stop_measuring(slot& in) noexcept {
    measured_call& which = measured_[in.next_free - 1];
    took_[which.procedure]->record(context_.now() - which.began);
    which.used = false;
}

pending_call* caller::find(std::uint64_t id) noexcept {
    const auto index = static_cast<std::uint32_t>(id);
    if (index >= slots_.size() || slots_[index].generation != id >> 32) return nullptr;
    return slots_[index].call;
}

/// Frees its slot and its timer: no reply, deadline or loss finds it afterwards.
void caller::detach(pending_call& call) noexcept {
    const auto index = static_cast<std::uint32_t>(call.id);
    slot& mine = slots_[index];
    mine.call = nullptr;
    if (mine.next_free != 0) [[unlikely]]
        stop_measuring(mine);
    if (++mine.generation == 0) mine.generation = 1;  // Id 0 means none.
    mine.next_free = std::exchange(first_free_, index);
    call.id = 0;
    --pending_;
    --call.callee->pending_calls;
    if (call.timer) call.timer.reset();
}

/// Ends a call that begin() cannot accept.
[[gnu::noinline]] void caller::refuse(pending_call& call) noexcept {
    if (closed_) return fail_unsent(call, {errc::closed});
    if (call.canceled_early) return fail_unsent(call, {errc::canceled});
    fail_unsent(
        call, {errc::invalid},
        call.to ? "the peer belongs to another engine; look up its address with the calling engine"
                : "the peer is empty; get one from engine::lookup()");
}

void caller::begin(pending_call& call) noexcept {
    if (closed_ || call.canceled_early || !context_.owns(call.to)) [[unlikely]]
        return refuse(call);
    peer_state* there = peers_.find(call.to);
    if (there == nullptr) there = turn(call);
    if (there == nullptr) return fail_unsent(call, addresses_.why_lost(call.to));
    if (call.deadline != clock::time_point::max() && context_.now() >= call.deadline) {
        return fail_unsent(call, {errc::timed_out}, "the deadline passed before the call was sent");
    }
    if (!take_slot(call)) return fail_unsent(call, {errc::no_memory});
    counts_.calls.add();
    counted(*call.what).sent_bytes += call.record.arguments.size();
    if (call.record.window != 0 && call.extras != nullptr && !call.extras->streams) {
        call.extras->streams = true;
        counted(*call.what).received_values.begin();
    }
    if (call.began == 0) call.began = coarse_cycles();
    call.callee = there;
    ++there->pending_calls;
    if (!call.record.loans_.empty() && !loans_.keep(there->name, call.record.loans_)) {
        return end(call, {errc::no_memory});
    }
    frame(*there, call);
    if (call.deadline != clock::time_point::max()) arm_deadline(call);
    if (out_.send(*there, call) == outbox::result::closed) end(call, {errc::closed});
}

/// The call's path is lost: uses another one, if any. A call that may be retried goes to the engine
/// now at that address.
peer_state* caller::turn(pending_call& call) noexcept {
    try {
        peer_state* there = routes_.way_to(call.to);
        if (there == nullptr && call.extras != nullptr && !call.extras->address.empty()) {
            const result<peer> again = addresses_.find(call.extras->address);
            if (again) there = peers_.find(*again);
        }
        if (there == nullptr) return nullptr;
        call.to = there->name;
        if (call.extras != nullptr && call.extras->arguments != nullptr) call.show_arguments();
        return there;
    } catch (const std::exception&) {
        return nullptr;
    }
}

void caller::frame(peer_state& there, pending_call& call) noexcept {
    body& arguments = call.record.arguments;
    std::uint32_t left = 0;
    if (call.deadline != clock::time_point::max()) {
        left = to_microseconds(call.deadline - context_.now());
    }
    call.naming = !there.verified(call.what->index);
    const const_bytes extras = call.extras != nullptr ? call.extras->wire : const_bytes{};
    call.checked = settings_.checksums;
    const std::uint8_t flags =
        request_flags(call.naming, extras, call.urgent, call.xdr, call.checked);
    std::byte* const header = arguments.front(request_bytes);
    write_request(header, {.flags = flags,
                           .provider = call.provider,
                           .microseconds = left,
                           .procedure = call.what->id});
    call.tag = call.id;
    if (call.naming || !extras.empty()) {
        if (call.extras != nullptr && call.extras->span) call.extras->span->leaves();
        const const_bytes names = call.naming ? as_bytes(call.what->wire_text) : const_bytes{};
        const bool by_rendezvous = call.extras != nullptr && call.extras->arguments != nullptr;
        const const_bytes values = by_rendezvous ? const_bytes{} : arguments.bytes();
        call.pieces = {const_bytes(header, request_bytes), extras, names, values};
        call.piece_count = 4;
    } else {
        call.pieces[0] = {header, request_bytes + arguments.size()};
        call.piece_count = 1;
    }
    if (!call.checked) return;
    call.checksum = checksum_of({call.pieces.data(), call.piece_count});
    call.pieces[call.piece_count++] = call.checksum;
}

void caller::arm(pending_call& call, clock::time_point when, void (*then)(timer&) noexcept) {
    call.timer.emplace(context_.stream(), then);
    call.timer->call = &call;
    call.timer->arm(when);
}

void caller::arm_deadline(pending_call& call) noexcept {
    arm(call, call.deadline, [](timer& self) noexcept {
        pending_call& late = *static_cast<call_timer&>(self).call;
        caller& calls = caller_of(*late.record.core_);
        calls.counts_.timed_out.add();
        calls.give_up(late, {errc::timed_out});
    });
}

/// Ends a call that was never sent.
void caller::fail_unsent(pending_call& call, status what, std::string_view text) noexcept {
    counts_.failed.add();
    counts_.failed_by[static_cast<std::size_t>(what.code) % counts_.failed_by.size()].add();
    explain(call, what, text);
    call.ended = true;
    finish(call);
}

/// The call is in no list, and the port has released it.
void caller::finish(pending_call& call) noexcept {
    const engine_context::busy callbacks_run(context_);
    if (call.extras != nullptr && !finish_extras(call)) [[unlikely]]
        return;
    call.record.over();
    if (!context_.driven()) context_.stay_in_parent();  // If driven, the child may be the caller.
}

[[gnu::noinline]] bool caller::finish_extras(pending_call& call) noexcept {
    if (result_fetch* const under_way = std::exchange(call.extras->result, nullptr)) {
        under_way->give_up();
    }
    if (!call.record.why.what.ok() && try_again_later(call)) return false;
    if (call.extras->watched) {
        tell_called(settings_, *call.what, call.to, call.record.why.what,
                    context_.now() - call.extras->began);
    }
    if (call.extras->counted) count(call);
    if (call.extras->span) record(call);
    if (std::exchange(call.extras->streams, false)) counted(*call.what).received_values.end();
    call.extras->values.reset();
    call.extras->arguments.reset();
    return true;
}

void caller::count(const pending_call& call) noexcept {
    context_.statistics()->called(
        {call.what->name, call.provider, call.to, parent_in(call.extras->wire)},
        call.record.why.what, context_.now() - call.extras->began);
}

void caller::record(pending_call& call) noexcept {
    const status how = call.record.why.what;
    try {
        call.extras->span->end(call.what->name, call.to, how, addresses_.text_of(call.to));
    } catch (const std::bad_alloc&) {
        call.extras->span->end(call.what->name, call.to, how);
    }
}

/// With a value.
void caller::end_well(pending_call& call) noexcept {
    detach(call);
    call.ended = true;
    if (call.where != outgoing::at::nowhere) return;  // sent() will finish it.
    finish(call);
    context_.look_whether_quiet();
}

[[gnu::noinline]] void caller::end(pending_call& call, status what,
                                   std::string_view text) noexcept {
    if (what.ok()) return end_well(call);
    counts_.failed.add();
    counts_.failed_by[static_cast<std::size_t>(what.code) % counts_.failed_by.size()].add();
    explain(call, what, text);
    detach(call);
    call.ended = true;
    if (call.where == outgoing::at::nowhere) {
        finish(call);
        context_.look_whether_quiet();
    } else {
        out_.withdraw(call);  // sent() will call over().
    }
}

void caller::explain(pending_call& call, status what, std::string_view text) noexcept {
    call.record.why = in_words(what, [&] {
        std::string own;
        const std::string_view reason = addresses_.reason(call.to, what);
        if (text.empty() && !reason.empty()) {
            text = own = fmt::format("{} ({})", advice(what.code), reason);
        } else if (text.empty() && what == errc::timed_out && call.record.window != 0) {
            text = "the deadline passed before the end of the stream; allow more time";
        }
        if (text.empty()) text = advice(what.code);
        return fmt::format("call of \"{}\" at {}: {}", printable_name(call.what->name),
                           addresses_.text_of(call.to), text);
    });
}

void caller::sent(pending_call& call, status what) noexcept {
    call.where = outgoing::at::nowhere;
    if (!what.ok() && !call.record.loans_.empty()) loans_.withdraw(call.to, call.record.loans_);
    if (call.ended) {
        finish(call);
        context_.look_whether_quiet();
    } else if (!what.ok()) {
        // If we disconnected the peer, the port says `closed`.
        end(call, what == errc::closed && !closed_ ? status{errc::disconnected} : what);
    }
}

void caller::cancel(pending_call& call) noexcept {
    cancel_waited(call);
    call.record.release();
}

void caller::cancel_waited(pending_call& call) noexcept {
    if (call.pausing) {
        leave_pause(call);
        fail_unsent(call, {errc::canceled});
    } else if (call.ended) {
        // Too late.
    } else if (call.id == 0) {
        call.canceled_early = true;  // Still being handed over; begin() checks this.
    } else {
        give_up(call, {errc::canceled});
    }
}

void caller::give_up(pending_call& call, status what, std::string_view text) noexcept {
    const std::uint64_t id = call.id;
    peer_state& there = *call.callee;
    const bool left = call.where != outgoing::at::queue;
    // Released after the cancel: a release before it tells the sender that the value was fetched.
    loan_ids unfetched;
    if (call.record.window != 0)
        unfetched = static_cast<stream_call&>(call.record).take_unfetched();
    const peer lender = there.name;
    end(call, what, text);
    if (left) tell_canceled(there, id);
    if (!unfetched.empty()) loans_.release(lender, unfetched);
}

void caller::tell_canceled(peer_state& there, std::uint64_t id) noexcept {
    std::byte bytes[cancel_bytes];
    write_cancel(bytes);
    if (out_.send_copy(there, id, {bytes}) || closed_) return;
    there.name.is_self() ? own_server_.on_cancel(there, id) : out_.end_untold(there);
}

void caller::send_credit(pending_call& call, std::uint32_t items) noexcept {
    if (call.id == 0) return;
    if (call.extras != nullptr && call.extras->values) call.extras->values->end_batch();
    std::byte bytes[credit_bytes];
    write_credit(bytes, items);
    peer_state& there = *call.callee;
    if (out_.send_copy(there, call.id, {bytes}) || closed_) return;
    there.name.is_self() ? own_server_.on_credit(there, call.id, items) : out_.end_untold(there);
}

template <bool timed>
inline void caller::start_plain(pending_call& call, peer_state& there, std::size_t bytes) noexcept {
    take_free_slot(call);
    counts_.calls.add();
    counted(*call.what).sent_bytes += bytes;
    call.callee = &there;
    ++there.pending_calls;
    if constexpr (timed) arm_deadline(call);
}

/// The same for a message that is longer, or to a peer without a lane.
template <bool timed>
[[gnu::noinline]] bool caller::begin_by_port(pending_call& call, peer_state& there,
                                             std::uint32_t left) noexcept {
    body& arguments = call.record.arguments;
    const std::size_t bytes = request_bytes + arguments.size();
    const bool goes_at_once = bytes <= there.at_once_bytes;
    if (!goes_at_once && (there.queue_first != nullptr ||
                          arguments.size() > out_.eager_bytes(call.to))) [[unlikely]] {
        return false;
    }
    start_plain<timed>(call, there, arguments.size());
    std::byte* const header = arguments.front(request_bytes);
    write_plain(header, message_kind::request, call.provider, call.xdr, call.urgent, left,
                call.what->id);
    if (!goes_at_once) [[unlikely]]
        return send_plain(call);
    const posted how = out_.post_short(there, call.id, {header, bytes}, call);
    return how == posted::done || not_done(call, how);
}

template <bool timed>
[[gnu::always_inline]] inline bool caller::begin_at_once(pending_call& call,
                                                         std::uint32_t left) noexcept {
    // It finds a free slot for an empty peer, but nothing is verified there.
    peer_state* const there = peers_.find(call.to);
    if (there == nullptr || first_free_ == none || !there->verified(call.what->index) ||
        !call.record.loans_.empty() || !starts_plain_ || would_overtake()) [[unlikely]] {
        return false;
    }
    const const_bytes values = call.record.arguments.bytes();
    // The outbox is open: it closes after this.
    std::byte* const room =
        request_bytes + values.size() <= short_lane::max_bytes && there->lane != nullptr
            ? there->lane->room()
            : nullptr;
    if (room == nullptr) [[unlikely]]
        return begin_by_port<timed>(call, *there, left);
    start_plain<timed>(call, *there, values.size());
    write_plain(room, message_kind::request, call.provider, call.xdr, call.urgent, left,
                call.what->id);
    copy_arguments(room + request_bytes, values);
    there->lane->send(room, call.id, request_bytes + values.size());
    return true;
}

bool caller::begin_plain(pending_call& call) noexcept {
    return begin_at_once<false>(call, 0);
}

[[gnu::noinline]] bool caller::begin_timed(pending_call& call, std::chrono::nanoseconds timeout,
                                           const call_context* serving) noexcept {
    const clock::time_point now = context_.now();
    call.deadline = context_.deadline_after(timeout, serving, now);
    return call.deadline > now && begin_at_once<true>(call, to_microseconds(call.deadline - now));
}

// What is rare has functions of its own, which find everything in the call: so begin_by_port()
// keeps next to nothing over its post.

namespace {
const_bytes framed(pending_call& call) noexcept {
    body& arguments = call.record.arguments;
    return {arguments.front(request_bytes), request_bytes + arguments.size()};
}
}  // namespace

[[gnu::noinline]] bool caller::send_plain(pending_call& call) noexcept {
    call.tag = call.id;
    call.pieces[0] = framed(call);
    call.piece_count = 1;
    if (out_.send(*call.callee, call) == outbox::result::closed) end(call, {errc::closed});
    return true;
}

[[gnu::noinline]] bool caller::not_done(pending_call& call, posted how) noexcept {
    out_.not_done(*call.callee, call.id, framed(call), call, how);
    return true;
}

bool caller::post_plain(const call_target& target, body& arguments) noexcept {
    peer_state* const there = peers_.find(target.to);
    if (there == nullptr || !starts_plain_ || !there->verified(target.what->index) ||
        would_overtake()) [[unlikely]] {
        return false;
    }
    const std::size_t arguments_bytes = arguments.size();
    const std::size_t bytes = request_bytes + arguments_bytes;
    std::byte* const room = bytes <= short_lane::max_bytes ? out_.room_for(*there) : nullptr;
    std::byte* const header = room != nullptr ? room : arguments.front(request_bytes);
    write_plain(header, message_kind::one_way, target.provider, target.as == encoding::xdr,
                target.urgent, 0, target.what->id);
    if (room != nullptr) {
        short_lane::copy(room + request_bytes, arguments.bytes());
        there->lane->send(room, 0, bytes);
    } else if (!out_.send_now(*there, 0, {header, bytes}, &counts_.one_ways_lost)) {
        return false;
    }
    counts_.one_ways.add();
    counted(*target.what).sent_bytes += arguments_bytes;
    return true;
}

bool caller::post(peer_state& there, one_way_message& message) noexcept {
    if (closed_) return false;
    const remote_procedure& what = *message.what;
    std::uint32_t left = 0;
    if (message.deadline != clock::time_point::max()) {
        left = to_microseconds(message.deadline - context_.now());
    }
    const bool naming = !there.verified(what.index);
    const const_bytes names = naming ? as_bytes(what.wire_text) : const_bytes{};
    const bool checked = settings_.checksums;
    std::byte header[request_bytes];
    write_request(header, {.kind = message_kind::one_way,
                           .flags = request_flags(naming, message.extras, message.urgent,
                                                  message.xdr, checked),
                           .provider = message.provider,
                           .microseconds = left,
                           .procedure = what.id});
    counts_.one_ways.add();
    const auto lent = message.extras.empty() ? std::nullopt : rendezvous_in(message.extras);
    counted(what).sent_bytes +=
        message.arguments.size() + message.held.bytes.size() + (lent ? lent->key.bytes : 0);
    const bool lends = message.loans != nullptr && !message.loans->empty();
    if (lends && !loans_.keep(there.name, *message.loans)) return false;
    const const_bytes pieces[] = {header, message.extras, names, message.arguments,
                                  message.held.bytes};
    const auto sum = checked ? checksum_of(pieces) : std::array<std::byte, checksum_bytes>{};
    const bool taken = out_.send_copy(there, 0, {pieces[0], pieces[1], pieces[2], pieces[3]},
                                      {.urgent = message.urgent,
                                       .held = std::move(message.held),
                                       .behind = const_bytes(sum).first(checked ? sum.size() : 0),
                                       .counts_loss = &counts_.one_ways_lost});
    if (lends && !taken) loans_.withdraw(there.name, *message.loans);
    return taken;
}

void caller::on_peer_down(peer_state& gone, status why) noexcept {
    // Calls are in no list of their peer, as each would pay for it. Users' code may call the peer
    // again here, and take a slot that was passed.
    while (gone.pending_calls != 0) {
        for (std::size_t i = 0; i < slots_.size() && gone.pending_calls != 0; ++i) {
            pending_call* const call = slots_[i].call;
            if (call != nullptr && call->callee == &gone) end(*call, why);
        }
    }
}

void caller::close() noexcept {
    refuse_new();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].call != nullptr) end(*slots_[i].call, {errc::closed});
    }
    while (pending_call* const call = pausing_) {
        leave_pause(*call);
        fail_unsent(*call, {errc::closed});
    }
}

// ---- retries. A pausing call is in no list but pausing_, and counts as pending.

bool caller::try_again_later(pending_call& call) noexcept {
    call_extras& more = *call.extras;
    const errc why = call.record.why.what.code;
    const bool may_pass = why == errc::overloaded || why == errc::corrupt ||
                          why == errc::unavailable || why == errc::unreachable ||
                          why == errc::disconnected;
    if (!may_pass || more.attempts_left == 0 || closed_) return false;
    const clock::time_point now = context_.now();
    if (call.deadline != clock::time_point::max() && more.pause >= call.deadline - now) {
        return false;
    }
    --more.attempts_left;
    call.ended = false;
    call.pausing = true;
    call.previous_pausing = nullptr;
    call.next_pausing = std::exchange(pausing_, &call);
    if (call.next_pausing != nullptr) call.next_pausing->previous_pausing = &call;
    ++pending_;
    arm(call, now + more.pause, [](timer& self) noexcept {
        pending_call& waits = *static_cast<call_timer&>(self).call;
        caller_of(*waits.record.core_).try_again(waits);
    });
    more.pause = more.pause < std::chrono::minutes(1) ? 2 * more.pause : more.pause;
    return true;
}

void caller::leave_pause(pending_call& call) noexcept {
    call.pausing = false;
    --pending_;
    call.timer.reset();
    if (call.next_pausing != nullptr) call.next_pausing->previous_pausing = call.previous_pausing;
    (call.previous_pausing != nullptr ? call.previous_pausing->next_pausing : pausing_) =
        call.next_pausing;
}

void caller::try_again(pending_call& call) noexcept {
    leave_pause(call);
    counts_.retried.add();
    call.record.why = {};
    begin(call);
}

}  // namespace amalgam::detail

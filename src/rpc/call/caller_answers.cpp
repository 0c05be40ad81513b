#include <exception>
#include <new>
#include <utility>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/rpc/detail/stream_call.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/call/extras.hpp"
#include "rpc/call/pending_call.hpp"
#include "rpc/call/result_fetch.hpp"
#include "rpc/limits.hpp"

// Handling of answers.

namespace amalgam::detail {

namespace {

constexpr std::string_view too_long =
    "the result exceeds the caller's engine_options::max_values_bytes";

constexpr std::string_view too_far_ahead =
    "larger values were sent ahead than this engine's engine_options::max_reader_bytes allows";

/// Codes a server sends only after the names have matched.
bool comes_after_the_names(errc answer) noexcept {
    return answer == errc::ok || answer == errc::handler_failed || answer == errc::timed_out ||
           answer == errc::too_large || answer == errc::overloaded;
}

/// By what reads its result. Null: the engine's.
const archive_context* context_seen_by(const pending_call& call) noexcept {
    return call.extras != nullptr ? &call.extras->context : nullptr;
}

}  // namespace

void caller::on_reply(peer_state& from, std::uint64_t id, const parsed_message& reply) noexcept {
    pending_call* const call = find(id);
    if (call == nullptr || call->callee != &from) return drop_reply(from, reply);
    if (!is_plain(*call, reply)) [[unlikely]]
        return on_special_reply(*call, from, reply, id);
    read_result(*call, reply.body, nullptr);
}

[[gnu::flatten]] void caller::on_plain_reply(peer_state& from, message& arrived,
                                             std::uint64_t head) noexcept {
    pending_call* const call = find(arrived.tag());
    if (call == nullptr || call->callee != &from || call->naming || call->checked ||
        call->xdr != ((head & plain_head::reply_xdr) != 0)) [[unlikely]] {
        return others_.on_any(from, arrived);
    }
    const const_bytes result = arrived.bytes().subspan(reply_bytes);
    if (result.size() <= settings_.max_values_bytes &&
        (call->xdr ? decode_flat_xdr(call->record, result) : call->record.decode_flat(result))) {
        counted(*call->what).received_bytes += result.size();
        return end_well(*call);
    }
    read_result(*call, result, nullptr);
}

/// As call_record::decode_flat(). A number of 4 or 8 bytes is the native one, swapped; smaller ones
/// are left to the archive.
[[gnu::noinline]] bool caller::decode_flat_xdr(call_record& call, const_bytes result) noexcept {
    const auto decode = [&call](auto word) {
        std::byte native[sizeof word];
        store_le(native, byte_swapped(word));
        return call.decode_flat(native);
    };
    if (result.size() == 4) return decode(load_le<std::uint32_t>(result.data()));
    if (result.size() == 8) return decode(load_le<std::uint64_t>(result.data()));
    return result.empty() && call.decode_flat(result);
}

/// A plain value for a plain call, so on_special_reply() would do nothing but read it.
bool caller::is_plain(const pending_call& call, const parsed_message& reply) noexcept {
    return reply.what.ok() && reply.extras.empty() && !call.naming && !call.checked &&
           reply.has(wire_flag::xdr) == call.xdr;
}

[[gnu::noinline]] void caller::on_special_reply(pending_call& call, peer_state& from,
                                                const parsed_message& reply,
                                                std::uint64_t id) noexcept {
    const std::uint32_t index = call.what->index;
    if (call.naming && comes_after_the_names(reply.what.code)) from.set_verified(index, true);
    if (call.extras != nullptr && call.extras->span)
        call.extras->span->heard(find_extra(reply.extras, extra::times));
    if (!reply.what.ok()) {
        if (reply.what == errc::not_found) from.set_verified(index, false);
        return end(call, reply.what, as_text(reply.body));
    }
    if (call.checked && !reply.has(wire_flag::checked)) {
        drop_reply(from, reply);
        return on_damaged(from, id);  // The answer to a checked call must have a checksum.
    }
    if (reply.has(wire_flag::xdr) != call.xdr) {
        drop_reply(from, reply);
        return end(call, {errc::mismatch}, "the reply's encoding differs from the request's");
    }
    if (reply.extras.empty()) return read_result(call, reply.body, nullptr);
    try {
        loan_ids lent_to_us = to_ids(loans_in(reply.extras));
        if (const auto rendezvous = rendezvous_in(reply.extras)) {
            if (call.record.window != 0) {
                loans_.release(from, lent_to_us);
                return end(call, {errc::mismatch}, "the end of a stream must not carry a value");
            }
            return fetch(call, from, *rendezvous, std::move(lent_to_us));
        }
        read_result(call, reply.body, &lent_to_us);
        loans_.release(from, lent_to_us);
    } catch (const std::bad_alloc&) {
        loans_.release(from, loans_in(reply.extras));
        end(call, {errc::no_memory});
    }
}

void caller::drop_reply(peer_state& from, const parsed_message& reply) noexcept {
    counts_.late_replies.add();
    loans_.release(from, loans_in(reply.extras));
}

// Out of line, so that on_plain_reply() has little to restore.
[[gnu::noinline, gnu::flatten]] void caller::read_result(pending_call& call, const_bytes result,
                                                         loan_ids* lent_to_us) noexcept {
    if (result.size() > settings_.max_values_bytes) return end(call, {errc::too_large}, too_long);
    counted(*call.what).received_bytes += result.size();
    const origin between{&context_.core(), call.callee->name, nullptr, lent_to_us,
                         context_seen_by(call)};
    archive_reader reader(result, call.xdr ? encoding::xdr : encoding::native, &between);
    try {
        call.record.decode(reader);
    } catch (...) {
        const failure why = thrown_here("reading the result", errc::mismatch);
        return end(call, why.what, why.sentence);
    }
    if (!reader.ok() || reader.remaining() != 0) {
        return end(call, {errc::mismatch},
                   reader.ok() ? "the reply has trailing bytes after the result"
                               : "the reply cannot be decoded as the result type");
    }
    end_well(call);
}

/// The call stays pending meanwhile, so ending it ends the fetch, too. What is not fetched is
/// released after the call is given up: to who sends a stream, a release means fetched.
void caller::fetch(pending_call& call, peer_state& from, const rendezvous_values& what,
                   loan_ids lent_to_us) {
    if (call.extras == nullptr) call.extras = std::make_unique<call_extras>();
    if (call.extras->result != nullptr || what.key.bytes > settings_.max_values_bytes) {
        give_up(call, {errc::too_large}, too_long);
        return loans_.release(from, lent_to_us);
    }
    buffer room = context_.buffers().try_take(what.key.bytes);
    if (room.size() != what.key.bytes) {
        give_up(call, {errc::no_memory});
        return loans_.release(from, lent_to_us);
    }
    auto* const get = new result_fetch(context_.core(), from.name, what, call, std::move(room),
                                       std::move(lent_to_us));
    call.extras->result = get;
    get->begin();
}

void caller::fetch_value(pending_call& call, const rendezvous_values& what,
                         loan_ids& lent_to_us) noexcept {
    if (call.id == 0) return loans_.release(call.to, lent_to_us);  // Ended meanwhile.
    try {
        fetch(call, *call.callee, what, std::move(lent_to_us));
    } catch (const std::bad_alloc&) {
        loans_.release(call.to, lent_to_us);
        give_up(call, {errc::no_memory});
    }
}

void caller::fetched(pending_call& call, const failure& why, const_bytes result,
                     loan_ids& lent_to_us) noexcept {
    call.extras->result = nullptr;
    if (!why.what.ok()) return give_up(call, why.what, why.sentence);
    // The last one lends the values themselves: no value takes it over.
    const bool has_own = !lent_to_us.empty();
    const std::uint64_t own = has_own ? lent_to_us.back() : 0;
    if (has_own) lent_to_us.pop_back();
    if (call.record.window == 0) {
        read_result(call, result, &lent_to_us);
    } else {
        static_cast<stream_call&>(call.record).fetching_ = false;
        read_item(call, result, lent_to_us);
    }
    if (has_own) lent_to_us.push_back(own);
}

void caller::on_damaged(peer_state& from, std::uint64_t id) noexcept {
    pending_call* const call = find(id);
    if (call != nullptr && call->callee == &from) give_up(*call, {errc::corrupt});
}

void caller::on_malformed(peer_state& from, std::uint64_t id, std::string_view wrong) noexcept {
    pending_call* const call = find(id);
    if (call != nullptr && call->callee == &from) give_up(*call, {errc::mismatch}, wrong);
}

void caller::on_verdict(peer_state& from, const parsed_message& verdict) noexcept {
    const remote_procedure* const what = procedures_.find(verdict.procedure);
    if (what == nullptr) return;
    from.set_verified(what->index, comes_after_the_names(verdict.what.code));
    if (verdict.what.ok()) return;
    counts_.refused.add();
    // A server may stop without notice, and a one-way call may always arrive too late.
    const bool too_late = verdict.what == errc::unavailable || verdict.what == errc::closed;
    try {
        limited_log(too_late ? log_level::debug : log_level::warn, "rpc",
                    "a one-way call was rejected",
                    {{"procedure", what->name},
                     {"peer", addresses_.text_of(from.name)},
                     {"status", verdict.what.code},
                     {"why", as_text(verdict.body).substr(0, limits::max_sentence_bytes)}});
    } catch (const std::bad_alloc&) {
        // It is only counted.
    }
}

void caller::on_item(peer_state& from, std::uint64_t id, const parsed_message& item) noexcept {
    pending_call* const call = find(id);
    if (call == nullptr || call->callee != &from) return drop_reply(from, item);
    const std::uint32_t index = call->what->index;
    if (call->naming) from.set_verified(index, true);
    const char* const wrong = wrong_item(*call, item);
    if (wrong != nullptr) {
        give_up(*call, {errc::mismatch}, wrong);
        return loans_.release(from, loans_in(item.extras));
    }
    auto& stream = static_cast<stream_call&>(call->record);
    if (stream.bounded_ && !stream.has_room_for(item.body.size())) [[unlikely]] {
        give_up(*call, {errc::overloaded}, too_far_ahead);
        return loans_.release(from, loans_in(item.extras));
    }
    if (item.extras.empty()) {
        loan_ids nothing;
        return read_item(*call, item.body, nothing);
    }
    try {
        loan_ids lent_to_us = to_ids(loans_in(item.extras));
        if (const auto rendezvous = rendezvous_in(item.extras)) {
            stream.fetching_ = true;
            if (stream.defer(*rendezvous, lent_to_us)) return;
            return fetch(*call, from, *rendezvous, std::move(lent_to_us));
        }
        read_item(*call, item.body, lent_to_us);
        loans_.release(from, lent_to_us);
    } catch (const std::bad_alloc&) {
        give_up(*call, {errc::no_memory});
        loans_.release(from, loans_in(item.extras));
    }
}

const char* caller::wrong_item(const pending_call& call, const parsed_message& item) noexcept {
    if (call.record.window == 0 || !item.what.ok()) return "unexpected value in the stream";
    const auto& stream = static_cast<const stream_call&>(call.record);
    if (stream.expected_ == 0) return "received more values than requested";
    if (stream.fetching_) return "received a value while another is still being fetched";
    return item.has(wire_flag::xdr) == call.xdr ? nullptr
                                                : "a value's encoding differs from the request's";
}

void caller::read_item(pending_call& call, const_bytes item, loan_ids& lent_to_us) noexcept {
    if (item.size() > settings_.max_values_bytes) return give_up(call, {errc::too_large}, too_long);
    counted(*call.what).received_values.add(item.size());
    if (call.extras != nullptr && call.extras->values) call.extras->values->add(item.size());
    const origin between{&context_.core(), call.callee->name, nullptr, &lent_to_us,
                         context_seen_by(call)};
    archive_reader reader(item, call.xdr ? encoding::xdr : encoding::native, &between);
    try {
        if (static_cast<stream_call&>(call.record).take_item(reader)) return;
        give_up(call, {errc::mismatch},
                reader.ok() ? "unexpected value in the stream" : reader.why());
    } catch (...) {
        const failure why = thrown_here("reading a value of the stream", errc::mismatch);
        give_up(call, why.what, why.sentence);
    }
}

}  // namespace amalgam::detail

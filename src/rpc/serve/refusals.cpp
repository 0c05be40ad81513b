// Which requests are refused, and how their callers are told. See server.cpp.
#include <array>
#include <exception>
#include <new>
#include <string>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/limited_log.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/limits.hpp"
#include "rpc/memory/rendezvous.hpp"
#include "rpc/serve/server.hpp"

namespace amalgam::detail {

void server::add(std::unique_ptr<served_procedure> fresh) {
    fresh->restricted = list_for(*fresh) != nullptr;
    procedures_.add(std::move(fresh));
}

const allow_list* server::list_for(const served_procedure& what) const {
    if (what.options.allow) return &*what.options.allow;
    for (const auto& [name, list] : allow_for_)
        if (name == what.name) return &list;
    return allow_ ? &*allow_ : nullptr;
}

const identity& server::identity_of(peer_state& from) {
    if (from.who == nullptr) {
        auto fresh = std::make_unique<const identity>(from.name.who());
        // A connection that has brought a message is up: what is not known now never will be.
        from.who = std::move(fresh);
    }
    return *from.who;
}

bool server::may_call(peer_state& from, const allow_list* list) {
    return list == nullptr || from.name.is_self() || list->allows(identity_of(from));
}

void server::refuse_stranger(peer_state& from, std::uint64_t id, const parsed_message& request) {
    counts_.denied.add();
    const identity& who = identity_of(from);
    refuse(from, id, request, {errc::denied},
           who.kind == identity_kind::none
               ? "the server does not know who calls, and allows only some to; connect over "
                 "tcp+tls with credentials, or over shm on its host"
               : fmt::format("the server does not allow this call to {}; its operator can add the "
                             "name, a group or the uid to the procedure's or engine's allow list",
                             to_text(who)));
}

bool server::takes_mail(peer_state& from) noexcept {
    try {
        if (!allow_ || may_call(from, &*allow_)) [[likely]]
            return true;
    } catch (const std::bad_alloc&) {
        // As good as denied: there is nobody to tell.
    }
    counts_.denied.add();
    return false;
}

[[gnu::noinline]] served_procedure* server::judge(peer_state& from, std::uint64_t id,
                                                  const parsed_message& request,
                                                  served_procedure* what) {
    const bool one_way = request.kind == message_kind::one_way;
    if (what == nullptr && unknown_ != nullptr && !closed_) what = learn(from, request);
    if (what != nullptr && what->learned && request.named()) {
        procedures_.share(*what, from.name);
    }
    if (closed_) {
        refuse(from, id, request, {errc::unavailable}, {});
    } else if (!may_call(from, what != nullptr ? list_for(*what) : allow_ ? &*allow_ : nullptr)) {
        refuse_stranger(from, id, request);
    } else if (what == nullptr) {
        refuse_undefined(from, id, request);
    } else if (request.named() &&
               (request.name != what->name || request.signature != what->signature)) {
        refuse(from, id, request, {errc::mismatch},
               fmt::format("the caller's \"{}\" {} and the server's \"{}\" {} hash to the same id; "
                           "rename one of them",
                           printable_name(request.name), printable_name(request.signature),
                           printable_name(what->name), what->signature));
    } else if (!one_way && running() - counts_.one_ways.value() >=
                               (request.has(wire_flag::urgent) ? 2 : 1) * max_running_) {
        counts_.overloaded.add();
        refuse(from, id, request, {errc::overloaded},
               "the server is running too many calls; try again later");
    } else if (one_way && counts_.one_ways.value() >= max_one_ways_ &&
               has_no_room_for_one_way(from) && runs_in_ult(*what, request)) {
        counts_.overloaded.add();
        refuse(from, id, request, {errc::overloaded},
               "the server is running too many one-way calls; send fewer at once, or make calls "
               "with an answer");
    } else if (leaves_unread(from, max_unread_) && !one_way) {
        counts_.overloaded.add();
        refuse(from, id, request, {errc::overloaded},
               "too many unread answers are queued at the server; read them, then try again");
    } else if (too_large(request)) {
        refuse(from, id, request, {errc::too_large},
               fmt::format("the arguments exceed the server's engine_options::max_values_bytes "
                           "({}); send them in parts, or as a bulk descriptor",
                           max_values_));
    } else if (what->learned && takes_stream(what->signature)) {
        refuse(from, id, request, {errc::unsupported},
               fmt::format("\"{}\" reads a stream, which a handler of undefined procedures cannot: "
                           "open it at the server that defines it",
                           printable_name(what->name)));
    } else if (one_way && takes_stream(what->signature)) {
        refuse(from, id, request, {errc::mismatch},
               fmt::format("\"{}\" reads a stream, so it cannot be posted: open it",
                           printable_name(what->name)));
    } else if (one_way && streams(what->form)) {
        // It would wait forever for credit.
        refuse(from, id, request, {errc::mismatch},
               fmt::format("\"{}\" returns a stream, so it cannot be posted: call it",
                           printable_name(what->name)));
    } else {
        if (request.named() && one_way) send_verdict(from, {}, request.procedure, {});
        return what;
    }
    return nullptr;
}

bool server::too_large(const parsed_message& request) const noexcept {
    if (request.body.size() > max_values_) return true;
    if (request.extras.empty()) return false;
    const auto rendezvous = rendezvous_in(request.extras);
    return rendezvous && rendezvous->key.bytes > max_values_;
}

void server::refuse_undefined(peer_state& from, std::uint64_t id, const parsed_message& request) {
    const std::string providers = procedures_.providers_of(request.procedure);
    const served_procedure* const other = procedures_.find(request.name);
    if (!providers.empty()) {
        refuse(from, id, request, {errc::not_found},
               fmt::format("provider {} does not serve it at the peer; these do: {}",
                           request.provider, providers));
    } else if (!request.named()) {
        refuse(from, id, request, {errc::not_found},
               unknown_ == nullptr ? std::string_view()
                                   : "the server no longer knows the name of this call, which "
                                     "nobody defined there: call again, and the name is sent");
    } else if (other != nullptr) {
        refuse(from, id, request, {errc::mismatch},
               fmt::format("\"{}\" is {} at the server, but {} at the caller",
                           printable_name(other->name), other->signature,
                           printable_name(request.signature)));
    } else {
        refuse(from, id, request, {errc::not_found},
               fmt::format("the server defines no procedure \"{}\"", printable_name(request.name)));
    }
}

void server::refuse(peer_state& from, std::uint64_t id, const parsed_message& request, status what,
                    std::string_view text) noexcept {
    counts_.refused.add();
    loans_.release(from, loans_in(request.extras));
    text = text.substr(0, limits::max_sentence_bytes);
    if (request.kind == message_kind::one_way) {
        send_verdict(from, what, request.procedure, text);
    } else if (leaves_unread(from, 2 * max_unread_)) {
        cut_off(from);
    } else {
        const std::uint8_t flags = answer_flags(request.flags, what);
        std::byte bytes[reply_bytes];
        write_reply(bytes, what, flags);
        if (!send_text(from, id, bytes, text, flags)) answer_bare(from, id, flags, what);
    }
}

void server::send_verdict(peer_state& to, status what, std::uint64_t procedure,
                          std::string_view text) noexcept {
    if (leaves_unread(to, max_unread_)) return;  // The peer then sends the names again.
    const std::uint8_t flags = answer_flags(0, what);
    std::byte bytes[verdict_bytes];
    write_verdict(bytes, what, procedure, flags);
    send_text(to, 0, bytes, text, flags);
}

/// Requests with a checksum get answers with one; so do all if this engine adds them.
std::uint8_t server::answer_flags(std::uint8_t request, status what) const noexcept {
    const bool checked = settings_.checksums || (request & wire_flag::checked) != 0;
    return static_cast<std::uint8_t>((what.ok() ? request & wire_flag::xdr : 0) |
                                     (checked ? wire_flag::checked : 0));
}

void server::answer_bare(peer_state& to, std::uint64_t id, std::uint8_t request,
                         status what) noexcept {
    if (what == errc::overloaded) counts_.overloaded.add();
    const std::uint8_t flags = answer_flags(request, what);
    std::byte bytes[reply_bytes];
    write_reply(bytes, what, flags);
    const std::string_view text = what == errc::overloaded
                                      ? "unread results have reached the server's "
                                        "engine_options::max_borrowed_bytes; read those first"
                                      : std::string_view{};
    if (send_text(to, id, bytes, text, flags) || send_text(to, id, bytes, {}, flags)) return;
    if (to.name.is_self()) {
        parsed_message bare;
        bare.kind = message_kind::reply;
        bare.what = what;
        return caller_.on_reply(to, id, bare);
    }
    out_.end_untold(to);
}

bool server::send_text(peer_state& to, std::uint64_t id, const_bytes header, std::string_view text,
                       std::uint8_t flags) noexcept {
    const const_bytes pieces[] = {header, as_bytes(text)};
    const bool checked = (flags & wire_flag::checked) != 0;
    const auto sum = checked ? checksum_of(pieces) : std::array<std::byte, checksum_bytes>{};
    return out_.send_copy(to, id,
                          {pieces[0], pieces[1], const_bytes(sum).first(checked ? sum.size() : 0)},
                          {.is_answer = true});
}

void server::cut_off(peer_state& from) noexcept {
    counts_.cut_off.add();
    try {
        limited_log(log_level::warn, "rpc", "disconnected a peer that does not read its answers",
                    {{"peer", addresses_.text_of(from.name)}, {"unread_bytes", from.unread_bytes}});
    } catch (const std::bad_alloc&) {
        // Then without a log entry.
    }
    out_.cut_off(from.name);
}

/// Drops its queue at once: the loss is reported later, and until then no other peer must be
/// disconnected in its place.
void server::cut_off_who_reads_least() noexcept {
    peer_state* least = nullptr;
    peers_.for_each([&least](peer_state& each) {
        const bool reads_less = least == nullptr || each.unread_bytes > least->unread_bytes;
        if (reads_less && !each.name.is_self()) least = &each;
    });
    if (least == nullptr) return;
    cut_off(*least);
    out_.drop(*least, {errc::disconnected});
}

}  // namespace amalgam::detail

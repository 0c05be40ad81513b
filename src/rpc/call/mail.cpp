#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include <amalgam/rpc/extension/mail.hpp>

#include "rpc/call/caller.hpp"

namespace amalgam::detail {

namespace {

/// Mail posted by another thread to the stream. Lives in front of its bytes, in one buffer.
struct handed_mail final : work_unit {
    handed_mail(buffer held, caller& whose, const peer& whom, std::size_t count) noexcept
        : work_unit(&run_it), by(whose), to(whom), bytes(count), home(std::move(held)) {}

    static void run_it(work_unit& self) noexcept {
        auto& me = static_cast<handed_mail&>(self);
        me.by.post_handed(me.to, {me.content(), me.bytes});
        destroy(me);
    }
    static void destroy(handed_mail& self) noexcept {
        const buffer until_the_end = std::move(self.home);
        self.~handed_mail();
    }
    std::byte* content() noexcept { return reinterpret_cast<std::byte*>(this + 1); }

    caller& by;
    peer to;
    std::size_t bytes;
    buffer home;
};

constexpr std::size_t most_pieces = 3;

/// Mail up to this is joined before it is posted: what a port copies itself, it takes in one piece.
constexpr std::size_t short_mail_bytes = 64;

}  // namespace

/// False: it is not short, or cannot be sent at once; nothing was done.
bool caller::post_short_mail(peer_state& there,
                             std::initializer_list<const_bytes> pieces) noexcept {
    std::array<std::byte, mail_bytes + short_mail_bytes> whole;
    write_mail(whole.data(), 0);
    std::size_t bytes = mail_bytes;
    for (const const_bytes& each : pieces) {
        if (each.size() > whole.size() - bytes) return false;
        if (!each.empty()) std::memcpy(whole.data() + bytes, each.data(), each.size());
        bytes += each.size();
    }
    if (!out_.send_now(there, 0, const_bytes(whole).first(bytes), &counts_.one_ways_lost)) {
        return false;
    }
    counts_.one_ways.add();
    return true;
}

/// The same straight into the lane to that peer, if there is one.
[[gnu::always_inline]] inline bool caller::post_mail_in_lane(const peer& to, const mail_head& head,
                                                             const_bytes content) noexcept {
    constexpr std::size_t most = short_lane::max_bytes - mail_bytes - mail_head_bytes;
    // The stream first: the rest is its own.
    if (content.size() > most || !context_.on_owner() || closed_ || settings_.checksums ||
        would_overtake())
        return false;
    peer_state* const there = peers_.find(to);
    std::byte* const room = there != nullptr ? out_.room_for(*there) : nullptr;
    if (room == nullptr) return false;
    write_mail(room, 0);
    std::memcpy(room + mail_bytes, head.data(), mail_head_bytes);
    short_lane::copy(room + mail_bytes + mail_head_bytes, content);
    counts_.one_ways.set(counts_.one_ways.value() + 1);
    there->lane->send(room, 0, mail_bytes + mail_head_bytes + content.size());
    return true;
}

bool caller::post_mail(peer_state& there, std::initializer_list<const_bytes> pieces) noexcept {
    if (closed_) return false;
    const bool checked = settings_.checksums;
    if (!checked && post_short_mail(there, pieces)) [[likely]]
        return true;
    std::byte header[mail_bytes];
    write_mail(header, checked ? wire_flag::checked : 0);
    std::array<const_bytes, 1 + most_pieces> all{const_bytes(header)};
    std::copy(pieces.begin(), pieces.end(), all.begin() + 1);
    counts_.one_ways.add();
    std::array<std::byte, checksum_bytes> sum;
    if (checked) sum = checksum_of(all);
    return out_.send_copy(there, 0, {all[0], all[1], all[2], all[3]},
                          {.behind = const_bytes(sum).first(checked ? sum.size() : 0),
                           .counts_loss = &counts_.one_ways_lost});
}

void caller::post_handed(const peer& to, const_bytes mail) noexcept {
    taken_back();
    peer_state* const there = way_to(to);
    if (there == nullptr || !post_mail(*there, {mail})) lose_handed(to, "mail", there != nullptr);
}

std::size_t most_argument_bytes(engine_core& core, const peer& to) noexcept {
    return caller_of(core).outbox().eager_bytes(to);
}

bool has_room(engine_core& core, const peer& to) noexcept {
    return caller_of(core).has_room(to);
}

[[gnu::noinline]] static bool post_other_mail(caller& by, const peer& to,
                                              std::initializer_list<const_bytes> pieces) {
    engine_context& context = by.context();
    const auto throw_lost = [&] {
        const errc why = by.why_lost(to).code;
        throw error(why, peer_addresses::sentence_of_lost(why));
    };
    std::size_t bytes = 0;
    for (const const_bytes& each : pieces)
        bytes += each.size();
    if (pieces.size() > most_pieces || bytes > by.outbox().eager_bytes(to)) return false;
    by.admit(to);
    if (context.on_owner() && !by.would_overtake()) {
        peer_state* const there = by.way_to(to);
        if (there == nullptr) throw_lost();
        if (by.post_mail(*there, pieces)) return true;
        throw by.is_closed() ? error(errc::closed, context.why_closed())
                             : error(errc::no_memory, "out of memory");
    }
    if (by.is_lost(to)) throw_lost();
    buffer held = context.buffers().take(sizeof(handed_mail) + bytes);
    std::byte* const home = held.data();
    auto* const handed = ::new (home) handed_mail(std::move(held), by, to, bytes);
    std::byte* at = handed->content();
    for (const const_bytes& each : pieces) {
        if (!each.empty()) std::memcpy(at, each.data(), each.size());
        at += each.size();
    }
    by.handing();
    if (context.hand_over(*handed)) return true;
    by.taken_back();
    handed_mail::destroy(*handed);
    throw error(errc::closed, context.why_closed());
}

bool post_mail(engine_core& core, const peer& to, std::initializer_list<const_bytes> pieces) {
    return post_other_mail(caller_of(core), to, pieces);
}

bool post_mail(engine_core& core, const peer& to, const mail_head& head, const_bytes content) {
    caller& by = caller_of(core);
    // Where there is a lane, nothing is queued, so nobody has to wait.
    if (by.post_mail_in_lane(to, head, content)) [[likely]]
        return true;
    return post_other_mail(by, to, {head, content});
}

}  // namespace amalgam::detail

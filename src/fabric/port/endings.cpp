// How a peer ends: everything on it moves to the completion queue, then the sink is told.
#include <new>
#include <utility>

#include <amalgam/core/limited_log.hpp>

#include "fabric/port/framed_port.hpp"

namespace amalgam::detail {

framed_port::~framed_port() {
    end_without_links();
}

void framed_port::end_without_links() noexcept {
    links_stand_ = false;
    end_everything();
}

void framed_port::shut_everything() noexcept {
    ending_ = true;
    peers_.for_each([this](peer_record& peer) {
        if (peer.up()) end_peer(peer, {errc::closed});
    });
}

void framed_port::end_everything() noexcept {
    shut_everything();
    completions_.run_all_with({errc::closed});
    while (early_message* one = unasked_.take_first())
        discard(*one);
}

peer_id framed_port::accepted(frame_link& link, std::string address) noexcept try {
    if (ending_) return {};
    return peers_.add(link, std::move(address), {}).id;
} catch (const std::bad_alloc&) {
    return {};
}

void framed_port::link_down(frame_link& link, status why) noexcept {
    if (link.record != nullptr && link.record->up()) take_down(*link.record, why);
}

void framed_port::end_peer(peer_record& peer, status why) noexcept {
    if (links_stand_) peer.link->shut();
    take_down(peer, why);
}

void framed_port::take_down(peer_record& peer, status why) noexcept {
    if (why == errc::no_memory)
        limited_log(log_level::warn, "fabric", "dropped a peer for lack of memory",
                    {{"peer", peer.address}});
    peer.dead_link = std::exchange(peer.link, nullptr);
    peer.dead_link->add_traffic(peer.traffic);
    peer.why = why;
    peers_.forget_address(peer);
    forget_landing(peer, why);
    while (completion* op = peer.sends.take_first()) {
        if (kind_of(*op) == op_kind::send) {
            completions_.push(*op, why, 0);
            continue;
        }
        auto& piece = static_cast<lent_piece&>(*op);
        if (piece.operation != nullptr)
            initiator_.sent(piece);
        else
            target_.sent(piece);
    }
    peer.expected.drain([&](completion& receive) { completions_.push(receive, why, 0); },
                        [&](early_message& early) { discard(early); });
    initiator_.peer_down(peer, why);
    peer.answers.clear();
    peer.answers_sent = 0;
    if (!starts_transfers_ || !links_stand_ || end_transfers(*peer.dead_link, why))
        completions_.push_event(peer.down);
}

void framed_port::transfers_over(frame_link& link) noexcept {
    completions_.push_event(link.record->down);
}

void framed_port::forget_landing(peer_record& peer, status why) noexcept {
    placement_state& placement = peer.placement;
    placement.drop();
    switch (std::exchange(placement.what, placement_state::kind::none)) {
        case placement_state::kind::receive:
            if (completion* receive = std::exchange(placement.receive, nullptr))
                completions_.push(*receive, why, 0);
            break;
        case placement_state::kind::put:
            target_.forget_put(peer);
            break;
        default:
            leave_room(placement);
            placement.operation = nullptr;
            break;
    }
}

void framed_port::on_down(completion& self, status, std::size_t) noexcept {
    auto& peer = *reinterpret_cast<peer_record*>(self.port_words[3]);
    static_cast<framed_port&>(peer.port).told_down(peer);
}

void framed_port::told_down(peer_record& peer) noexcept {
    frame_link& link = *peer.dead_link;
    if (!ending_ && is_told_later(peer)) {
        ++untold_;
        peer.notice.from = peer.id;
        unasked_.append(peer.notice);
    } else {
        if (!ending_ && sink_ != nullptr) sink_->on_peer_down(peer.id, peer.why);
        ended_traffic_ += peer.traffic;
        peers_.remove(peer);
    }
    if (links_stand_) release(link);
}

/// Keeps no notice for peers that connected and left unseen, and a bounded number for others.
bool framed_port::is_told_later(const peer_record& peer) const noexcept {
    const bool has_room = untold_ * sizeof(peer_record) < options_.max_queued_bytes;
    return (sink_ == nullptr && peer.is_known && has_room) || has_unasked(peer.id);
}

void framed_port::drop_unasked(peer_id peer) noexcept {
    early_message* next = unasked_.first();
    while (next != nullptr) {
        early_message& one = *std::exchange(next, next->next);
        if (one.from != peer) continue;
        unasked_.remove(one);
        discard(one);
    }
}

bool framed_port::has_unasked(peer_id peer) const noexcept {
    for (const early_message* one = unasked_.first(); one != nullptr; one = one->next)
        if (one->from == peer) return true;
    return false;
}

}  // namespace amalgam::detail

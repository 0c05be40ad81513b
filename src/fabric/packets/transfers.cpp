// Puts and gets by the carrier's second interface.
#include <array>

#include "fabric/one_sided/frames.hpp"
#include "fabric/packets/port.hpp"

namespace amalgam::detail {
namespace {

/// The answer of a port whose carrier has no such transfers, as its library here does not offer
/// them, to a peer whose does: packets carry all. If there is no room, it asks no more; packets
/// carry all then, too.
delivery refuse_key(frame_link& link, const frame_header& header, const_bytes payload) noexcept {
    if (header.kind != key_question_kind || payload.size() < key_question_bytes ||
        payload.size() > key_question_bytes + one_sided_carrier::max_name_bytes)
        return delivery::malformed;
    std::array<std::byte, key_answer::wire_bytes> none;
    key_answer{}.encode(none.data());
    const const_bytes all = none;
    (void)link.send(header_of(key_answer_kind, header.tag, none.size()), {&all, 1}, nullptr);
    return delivery::taken;
}

}  // namespace

one_sided_peer* packet_port::one_sided_of(packet_connection& who) noexcept {
    if (who.one_sided == nullptr && who.by() != nullptr)
        who.one_sided = one_sided_->add(who, *who.by());
    return who.one_sided;
}

template <typename Local>
std::optional<framed_port::transfer_start> packet_port::begin_transfer(
    frame_link& link, Local local, const remote_key& key, std::uint64_t offset,
    completion& on_done) noexcept {
    one_sided_peer* peer = one_sided_of(static_cast<packet_connection&>(link));
    if (peer == nullptr) return std::nullopt;
    direct_transfers& all = one_sided_->transfers();
    const auto begun = all.begin(*peer, local, key, offset, on_done);
    if (!begun) return std::nullopt;
    return transfer_start{begun->how, begun->what};
}

std::optional<framed_port::transfer_start> packet_port::start_put(frame_link& link, gather from,
                                                                  const remote_key& key,
                                                                  std::uint64_t offset,
                                                                  completion& on_done) noexcept {
    if (transfers_at_once()) return std::nullopt;  // Tried before.
    return begin_transfer(link, from, key, offset, on_done);
}

std::optional<framed_port::transfer_start> packet_port::start_get(frame_link& link, scatter into,
                                                                  const remote_key& key,
                                                                  std::uint64_t offset,
                                                                  completion& on_done) noexcept {
    if (transfers_at_once()) return std::nullopt;
    return begin_transfer(link, into, key, offset, on_done);
}

// Called for ports whose peers are all on this host; then the carrier never leaves one pending.

std::optional<status> packet_port::direct_put(frame_link& link, gather from, const remote_key& key,
                                              std::uint64_t offset) noexcept {
    if (!transfers_at_once()) return std::nullopt;
    const auto begun = begin_transfer(link, from, key, offset, unused_);
    if (!begun) return std::nullopt;
    if (begun->what.ok()) count_direct(total_bytes(from));
    return begun->what;
}

std::optional<status> packet_port::direct_get(frame_link& link, scatter into, const remote_key& key,
                                              std::uint64_t offset) noexcept {
    if (!transfers_at_once()) return std::nullopt;
    const auto begun = begin_transfer(link, into, key, offset, unused_);
    if (!begun) return std::nullopt;
    if (begun->what.ok()) count_direct(total_bytes(into));
    return begun->what;
}

bool packet_port::transfers_at_once() const noexcept {
    return can().rma == rma_mode::cross_memory && one_sided_ && one_sided_->is_synchronous();
}

void packet_port::cancel_transfer(completion& op) noexcept {
    one_sided_->transfers().cancel(op);
}

bool packet_port::end_transfers(frame_link& link, status why) noexcept {
    one_sided_peer* peer = static_cast<packet_connection&>(link).one_sided;
    return peer == nullptr || one_sided_->down(*peer, why);
}

bool packet_port::has_transfers(const frame_link& link) const noexcept {
    const one_sided_peer* peer = static_cast<const packet_connection&>(link).one_sided;
    return peer != nullptr && !peer->operations.empty();
}

bool packet_port::queue_put_notify(frame_link& link, gather from, const remote_key& key,
                                   std::uint64_t offset, std::uint64_t notice,
                                   completion& on_done) noexcept {
    one_sided_peer& peer = *static_cast<packet_connection&>(link).one_sided;
    return one_sided_->transfers().queue_notice(peer, from, key, offset, notice, on_done);
}

delivery packet_port::deliver_own(frame_link& link, const frame_header& header,
                                  const_bytes payload) noexcept {
    if (!one_sided_) return refuse_key(link, header, payload);
    auto& from = static_cast<packet_connection&>(link);
    one_sided_peer* peer = one_sided_of(from);
    if (peer == nullptr) return delivery::taken;  // Out of memory: packets carry all transfers.
    const delivery found = one_sided_->deliver(*peer, header, payload);
    return from.is_over() ? delivery::gone : found;
}

void packet_port::region_opened(const remote_key& key, scatter segments) noexcept {
    if (one_sided_) one_sided_->region_opened(key, segments);
}

void packet_port::region_closed(const remote_key& key) noexcept {
    if (one_sided_) one_sided_->region_closed(key);
}

result<shared_block> packet_port::allocate(std::size_t bytes) noexcept {
    if (!one_sided_ || !one_sided_->registers_memory()) return framed_port::allocate(bytes);
    return one_sided_->allocate(bytes);
}

void packet_port::has_room(packet_connection& who) noexcept {
    writable(who);
    if (who.one_sided != nullptr) one_sided_->writable(*who.one_sided);
}

}  // namespace amalgam::detail

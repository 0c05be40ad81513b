// Packets of a ucx_carrier, and their numbers.
#include <cerrno>
#include <new>
#include <utility>

#include <amalgam/core/limited_log.hpp>

#include "fabric/transports/ucx/carrier.hpp"

namespace amalgam::detail {
namespace {

// header = their_id:u64 number:u64
constexpr std::size_t header_bytes = 16;
static_assert(header_bytes <= packet::head_room);

void write_header(std::byte* to, std::uint64_t id, std::uint64_t number) noexcept {
    store_le(to, id);
    store_le(to + 8, number);
}

}  // namespace

// ---- sending

posted ucx_link::send(packet& one) noexcept {
    if (!is_open() || end_ == nullptr || end_->failed || asked_to_close_) return posted::full;
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.flags = UCP_AM_SEND_FLAG_EAGER;
    how.cb.send = &ucx_carrier::on_sent;
    how.user_data = &one;
    one.carrier_words[0] = reinterpret_cast<std::uintptr_t>(this);
    std::byte* const header = one.data - header_bytes;
    write_header(header, their_id(), sent_packets_);
    void* const request = ucp_am_send_nbx(end_->endpoint, ucx_carrier::packet_id, header,
                                          header_bytes, one.data, one.bytes, &how);
    if (UCS_PTR_IS_ERR(request)) {
        ucx_carrier::on_failure(end_, end_->endpoint, UCS_PTR_STATUS(request));
        return posted::full;
    }
    count_sent();
    ++sent_packets_;
    carrier_->count_later(*this, one.bytes);
    if (request == nullptr) return posted::done;
    ++lent_;
    ++carrier_->lent_;
    return posted::pending;
}

void ucx_carrier::on_sent(void* request, ucs_status_t how, void* sent) noexcept {
    auto& one = *static_cast<packet*>(sent);
    auto& link = *reinterpret_cast<ucx_link*>(one.carrier_words[0]);
    took_back(link, how);
    link.carrier_->events().returned(one);
    ucp_request_free(request);
}

void ucx_carrier::on_count_sent(void* request, ucs_status_t how, void* link) noexcept {
    took_back(*static_cast<ucx_link*>(link), how);
    ucp_request_free(request);
}

/// UCX does not report the endpoint if it has no memory for one of its packets.
void ucx_carrier::took_back(ucx_link& link, ucs_status_t how) noexcept {
    --link.lent_;
    --link.carrier_->lent_;
    if (how == UCS_OK || how == UCS_ERR_CANCELED || link.end_ == nullptr) return;
    on_failure(link.end_, link.end_->endpoint, how);
}

/// UCX loses a packet that it split if the other end lacks memory to join the pieces. The next
/// packet's number tells that; if no other follows, a count does.
void ucx_carrier::count_later(ucx_link& link, std::size_t bytes) noexcept {
    if (bytes <= with_.unsplit_bytes || std::exchange(link.owes_count_, true)) return;
    uncounted_.push_back(&link);
}

void ucx_carrier::send_counts() noexcept {
    for (std::size_t i = 0; i < uncounted_.size();) {
        ucx_link& one = *uncounted_[i];
        const bool still_sends =
            std::exchange(one.counted_, one.sent_packets_) != one.sent_packets_;
        if (still_sends || one.lent_ > 0) {
            ++i;
            continue;
        }
        one.owes_count_ = false;
        uncounted_[i] = uncounted_.back();
        uncounted_.pop_back();
        send_count(one, {});
    }
}

/// `and_more` is ignored by the other end.
void ucx_carrier::send_count(ucx_link& link, const_bytes and_more) noexcept {
    if (link.end_ == nullptr || link.end_->failed || link.asked_to_close_) return;
    write_header(link.count_.data(), link.their_id(), link.sent_packets_);
    ucp_request_param_t how{};
    how.op_attr_mask =
        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.flags = UCP_AM_SEND_FLAG_EAGER;
    how.cb.send = &on_count_sent;
    how.user_data = &link;
    void* const request = ucp_am_send_nbx(link.end_->endpoint, count_id, link.count_.data(),
                                          header_bytes, and_more.data(), and_more.size(), &how);
    if (UCS_PTR_IS_ERR(request))
        return on_failure(link.end_, link.end_->endpoint, UCS_PTR_STATUS(request));
    if (request == nullptr) return;
    ++link.lent_;
    ++lent_;
}

// ---- receiving

ucs_status_t ucx_carrier::on_packet(void* self, const void* header, std::size_t bytes_of_header,
                                    void* data, std::size_t bytes,
                                    const ucp_am_recv_param_t* how) noexcept {
    auto& carrier = *static_cast<ucx_carrier*>(self);
    ++carrier.came_;
    if ((how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
    ucx_link* const link = carrier.expecting(header, bytes_of_header, carrier.with_.is_sealed);
    if (link == nullptr) return UCS_OK;
    ++link->due_;
    link->heard_ = true;
    carrier.arrived(*link, {static_cast<const std::byte*>(data), bytes});
    return UCS_OK;
}

ucs_status_t ucx_carrier::on_count(void* self, const void* header, std::size_t bytes_of_header,
                                   void*, std::size_t, const ucp_am_recv_param_t*) noexcept {
    auto& carrier = *static_cast<ucx_carrier*>(self);
    ++carrier.came_;
    if (ucx_link* const link = carrier.expecting(header, bytes_of_header, false))
        link->heard_ = true;
    return UCS_OK;
}

/// The link of a header, if no packet before it is missing. That of a sealed packet in any case:
/// its seal tells what is missing, and a middleman is not a want of memory.
ucx_link* ucx_carrier::expecting(const void* header, std::size_t bytes, bool is_sealed) noexcept {
    if (bytes != header_bytes) return nullptr;
    const auto* const from = static_cast<const std::byte*>(header);
    auto* const link = static_cast<ucx_link*>(find(load_le<std::uint64_t>(from)));
    if (link == nullptr || is_sealed || load_le<std::uint64_t>(from + 8) == link->due_) return link;
    lost_packets(*link);
    return nullptr;
}

void ucx_carrier::lost_packets(ucx_link& link) noexcept {
    try {
        limited_log(log_level::warn, "ucx",
                    "dropped a peer, as UCX had no memory or file descriptors for its packets: "
                    "raise the limits (ulimit -v, ulimit -n)",
                    {{"met_at", met_at(link)}});
    } catch (const std::bad_alloc&) {  // Not logged then.
    }
    lost(link, {errc::no_memory, ENOMEM});
}

}  // namespace amalgam::detail

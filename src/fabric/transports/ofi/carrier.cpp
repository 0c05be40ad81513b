#include "fabric/transports/ofi/carrier.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <new>
#include <utility>

#include "fabric/limits.hpp"

namespace amalgam::detail {
namespace {

template <typename T>
void remove_from(std::vector<T*>& all, T& one) noexcept {
    all.erase(std::remove(all.begin(), all.end(), &one), all.end());
}

}  // namespace

ofi_carrier::ofi_carrier(std::unique_ptr<port> tcp, std::string scheme, ofi_info info,
                         std::string chosen)
    : introduced_carrier(std::move(tcp), std::move(scheme)),
      info_(std::move(info)),
      chosen_(std::move(chosen)) {
    fid_fabric* fabric = nullptr;
    require_ofi(fi_fabric(info_->fabric_attr, &fabric, nullptr), "open the fabric");
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    require_ofi(fi_domain(fabric, info_.get(), &domain, nullptr), "open the domain");
    domain_.reset(domain);

    fi_cq_attr wanted{};
    wanted.size = std::max(info_->tx_attr->size + info_->rx_attr->size, std::size_t{4096});
    wanted.format = FI_CQ_FORMAT_DATA;
    wanted.wait_obj = FI_WAIT_FD;
    fid_cq* queue = nullptr;
    sleeps_on_descriptor_ = fi_cq_open(domain, &wanted, &queue, nullptr) == 0;
    if (!sleeps_on_descriptor_) {
        wanted.wait_obj = FI_WAIT_NONE;
        require_ofi(fi_cq_open(domain, &wanted, &queue, nullptr), "open a completion queue");
    }
    completions_.reset(queue);
    int descriptor = -1;
    if (sleeps_on_descriptor_)
        sleeps_on_descriptor_ = fi_control(&queue->fid, FI_GETWAIT, &descriptor) == 0;
    if (sleeps_on_descriptor_) sleep_also_on(descriptor);
    sleep_briefly(true);
    // Connected endpoints only: the others retransmit lost packets and must be waited for.
    if (info_->ep_attr->type == FI_EP_MSG) inject_bytes_ = info_->tx_attr->inject_size;
}

ofi_carrier::~ofi_carrier() = default;

void ofi_carrier::end_packets() noexcept {
    const auto until = std::chrono::steady_clock::now() + limits::flush_limit;
    const auto on_their_way = [&] {
        return std::any_of(released_.begin(), released_.end(),
                           [](const auto& one) { return one->lent_ > 0; });
    };
    while (on_their_way() && std::chrono::steady_clock::now() < until)
        read_completions();
    end_introductions();
}

void ofi_carrier::take_back_all_packets() noexcept {
    for (auto& one : released_)
        take_back_packets_of(*one);
}

// ---- links

void ofi_carrier::expect(ofi_link& made) {
    made.carrier_ = this;
    const std::size_t links = links_ + 1;
    for (auto* list : {&refused_, &failed_})
        if (list->capacity() < links) list->reserve(2 * links);
    if (released_.capacity() < links) released_.reserve(2 * links);
    links_ = links;
}

void ofi_carrier::fail(ofi_link& link, status why) noexcept {
    if (std::exchange(link.failed_, true)) return;
    link.why_failed_ = why;
    failed_.push_back(&link);
    events().due();
}

void ofi_carrier::tell_failed() noexcept {
    while (!failed_.empty()) {
        ofi_link& one = *failed_.back();
        failed_.pop_back();
        lost(one, one.why_failed_);
    }
}

void ofi_carrier::release_path(std::unique_ptr<introduced_link> link) noexcept {
    auto* one = static_cast<ofi_link*>(link.release());
    remove_from(refused_, *one);
    remove_from(failed_, *one);
    one->closing_ = true;
    released_.emplace_back(one);
}

void ofi_carrier::destroy_released() noexcept {
    for (std::size_t i = 0; i < released_.size();) {
        if (!may_destroy(*released_[i])) {
            ++i;
            continue;
        }
        --links_;
        released_[i].swap(released_.back());
        released_.pop_back();
    }
}

// ---- sending

posted ofi_link::send(packet& one) noexcept {
    if (!is_open() || by_ == nullptr || failed_ || closing_) return posted::full;
    const posted how = carrier_->send(*this, one);
    if (how != posted::full) count_sent();
    return how;
}

posted ofi_carrier::send(ofi_link& by, packet& one) noexcept {
    // Copying a small packet costs less than its completion. But behind pending packets it would
    // not be counted as pending.
    if (one.bytes <= inject_bytes_ && by.lent_ == 0) {
        const auto how = fi_injectdata(by.by_, one.data, one.bytes, by.their_id(), by.to_);
        return how == 0 ? posted::done : refused(by, how);
    }
    ofi_operation* out = take_operation();
    if (out == nullptr) {
        fail(by, {errc::no_memory});
        return posted::full;
    }
    out->out = &one;
    out->link = &by;
    const auto how = fi_senddata(by.by_, one.data, one.bytes, nullptr, by.their_id(), by.to_, out);
    if (how == 0) {
        ++by.lent_;
        ++lent_;
        return posted::pending;
    }
    out->link = nullptr;
    out->next_free = std::exchange(free_, out);
    return refused(by, how);
}

posted ofi_carrier::refused(ofi_link& by, long how) noexcept {
    if (how != -FI_EAGAIN) {
        fail(by, from_ofi(how));
    } else if (!std::exchange(by.refused_, true)) {
        refused_.push_back(&by);
    }
    return posted::full;
}

ofi_operation* ofi_carrier::take_operation() noexcept try {
    if (free_ == nullptr) return &outgoing_.emplace_back();
    return std::exchange(free_, free_->next_free);
} catch (const std::bad_alloc&) {
    return nullptr;
}

void ofi_carrier::return_packet(ofi_operation& one) noexcept {
    if (ofi_link* link = std::exchange(one.link, nullptr)) {
        --link->lent_;
        --lent_;
        events().returned(*one.out);
    }
    one.next_free = std::exchange(free_, &one);
}

/// Takes back packets that libfabric will not report any more; a later report is ignored.
void ofi_carrier::take_back_packets_of(ofi_link& link) noexcept {
    if (link.lent_ == 0) return;
    for (ofi_operation& one : outgoing_) {
        if (one.link != &link) continue;
        one.link = nullptr;
        events().returned(*one.out);
    }
    lent_ -= std::exchange(link.lent_, 0);
}

void ofi_carrier::tell_refused() noexcept {
    // An upcall may add to the list: additions wait for the next round.
    for (std::size_t left = refused_.size(); left > 0 && !refused_.empty(); --left) {
        ofi_link& one = *refused_.front();
        refused_.erase(refused_.begin());
        one.refused_ = false;
        if (!one.closing_ && !one.failed_) events().room(one);
    }
}

// ---- receiving

void ofi_carrier::begin_to_receive(fid_ep* by, std::size_t packets) {
    receives_by_ = by;
    memory_.reset(new std::byte[packets * limits::packet_bytes]);
    incoming_.resize(packets);
    unposted_.reserve(packets);
    for (std::size_t i = 0; i < packets; ++i) {
        incoming_[i].into = memory_.get() + i * limits::packet_bytes;
        receive_again(incoming_[i]);
    }
    if (unposted_.size() == packets) require_ofi(-FI_EAGAIN, "post receive buffers");
}

void ofi_carrier::receive_again(ofi_operation& one) noexcept {
    if (fi_recv(receives_by_, one.into, limits::packet_bytes, nullptr, FI_ADDR_UNSPEC, &one) != 0)
        unposted_.push_back(&one);
}

void ofi_carrier::complete(ofi_operation& one, std::uint64_t id, std::size_t bytes) noexcept {
    if (one.out != nullptr) return return_packet(one);
    ++came_;
    if (introduced_link* link = find(id)) arrived(*link, {one.into, bytes});
    receive_again(one);
}

void ofi_carrier::complete_failed() noexcept {
    fi_cq_err_entry what{};
    if (fi_cq_readerr(completions_.get(), &what, 0) < 1 || what.op_context == nullptr) return;
    auto& one = *static_cast<ofi_operation*>(what.op_context);
    if (one.out == nullptr) return receive_again(one);
    if (one.link != nullptr && !one.link->closing_) fail(*one.link, {errc::disconnected, what.err});
    return_packet(one);
}

bool ofi_carrier::read_completions() noexcept {
    std::array<fi_cq_data_entry, 16> done;
    const auto count = fi_cq_read(completions_.get(), done.data(), done.size());
    if (count == -FI_EAVAIL) {
        complete_failed();
        return true;
    }
    for (long i = 0; i < count; ++i)
        complete(*static_cast<ofi_operation*>(done[i].op_context), done[i].data, done[i].len);
    return count > 0;
}

std::size_t ofi_carrier::move_packets(std::size_t) noexcept {
    came_ = 0;
    // Stops at the first arrivals: another query costs system calls, and what arrived should be
    // answered.
    while (came_ == 0 && read_completions()) {
    }
    if (!unposted_.empty()) {
        auto again = std::exchange(unposted_, {});
        unposted_.reserve(again.size());
        for (ofi_operation* one : again)
            receive_again(*one);
    }
    tend();
    if (!refused_.empty()) tell_refused();
    if (!failed_.empty()) tell_failed();
    if (!released_.empty()) destroy_released();
    return came_;
}

bool ofi_carrier::arm_paths() noexcept {
    if (!failed_.empty() || !may_sleep()) return false;
    // Nothing signals new room.
    const bool waits = !refused_.empty() || !unposted_.empty();
    if (waits || !sleeps_on_descriptor_) sleep_briefly(waits || lent_ > 0);
    if (!sleeps_on_descriptor_) return true;
    fid* queue = &completions_->fid;
    return fi_trywait(fabric_.get(), &queue, 1) == 0;
}

}  // namespace amalgam::detail

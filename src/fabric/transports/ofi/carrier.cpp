#include "fabric/transports/ofi/carrier.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
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

ofi_carrier::ofi_carrier(introducer by, ofi_choice choice)
    : introduced_carrier(std::move(by)), choice_(std::move(choice)) {
    fid_fabric* fabric = nullptr;
    require_ofi(fi_fabric(info().fabric_attr, &fabric, nullptr), "open the fabric");
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    require_ofi(fi_domain(fabric, choice_.info.get(), &domain, nullptr), "open the domain");
    domain_.reset(domain);
    if (choice_.transfers.one_sided) {
        memory_.emplace(domain, info(), choice_.transfers.local);
        one_sided_ = std::make_unique<ofi_one_sided>(*this, *memory_, choice_.transfers.by_device);
    }

    // The connected endpoints of tcp are many only at a port with many peers.
    const bool connected = info().ep_attr->type == FI_EP_MSG;
    if (!connected || !of_few_.open_for_few(fabric, domain, entries()))
        require_ofi(completions_.open(domain, entries()), "open a completion queue");
    sleep_briefly(true);
    // Connected endpoints only: the others retransmit lost packets and must be waited for.
    if (connected) inject_bytes_ = info().tx_attr->inject_size;
}

std::size_t ofi_carrier::entries() const noexcept {
    return std::max(info().tx_attr->size + info().rx_attr->size, std::size_t{4096});
}

ofi_carrier::~ofi_carrier() {
    for (ofi_operation& one : outgoing_)
        if (one.registered != nullptr) memory_->remove(one.registered);
    for (ofi_operation& one : outgoing_)
        if (one_sided_) one_sided_->drop_bounce(one);
    if (registered_ != nullptr) memory_->remove(registered_);
}

void ofi_carrier::end_packets() noexcept {
    if (one_sided_) one_sided_->end();
    const auto until = std::chrono::steady_clock::now() + limits::flush_limit;
    while (holds(ofi_operation::does::send) && std::chrono::steady_clock::now() < until)
        read_completions();
}

void ofi_carrier::take_back_all() noexcept {
    for (ofi_operation& one : outgoing_)
        take_back(one, {errc::closed});
}

bool ofi_carrier::holds(ofi_operation::does kind) const noexcept {
    return std::any_of(outgoing_.begin(), outgoing_.end(), [&](const ofi_operation& one) {
        return one.link != nullptr && one.kind == kind;
    });
}

// ---- links

fid_cq* ofi_carrier::completions_of(ofi_link& link) noexcept {
    if (of_few_ && few_ < ofi_queue::few) {
        ++few_;
        link.is_of_few_ = true;
        return of_few_.get();
    }
    if (!completions_) completions_.open(domain(), entries());
    return completions_.get();
}

void ofi_carrier::close_end(ofi_link& link, ofi_handle<fid_ep>& end) noexcept {
    link.by_ = nullptr;
    if (end == nullptr) return;
    wake_by_busy_no_more();
    end.reset();
    if (std::exchange(link.is_of_few_, false)) --few_;
}

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
    if (!may_send()) return posted::full;
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
    out->kind = ofi_operation::does::send;
    out->out = &one;
    const std::byte* data = one.data;
    void* registered = nullptr;
    if (memory_ && memory_->registers_local()) {
        if (!copy_registered(*out, one)) {
            give_back(*out);
            fail(by, {errc::no_memory});
            return posted::full;
        }
        data = out->copy.get();
        registered = fi_mr_desc(out->registered);
    }
    const auto how = fi_senddata(by.by_, data, one.bytes, registered, by.their_id(), by.to_, out);
    if (how == 0) {
        lend(*out, by);
        return posted::pending;
    }
    give_back(*out);
    return refused(by, how);
}

/// The port's packets are not registered: their memory comes and goes.
bool ofi_carrier::copy_registered(ofi_operation& op, const packet& one) noexcept try {
    if (op.copy == nullptr) {
        op.copy.reset(new std::byte[limits::packet_bytes]);
        const auto made = memory_->add_local({op.copy.get(), limits::packet_bytes});
        if (!made) {
            op.copy.reset();
            return false;
        }
        op.registered = made.value();
    }
    std::memcpy(op.copy.get(), one.data, one.bytes);
    return true;
} catch (const std::bad_alloc&) {
    return false;
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

void ofi_carrier::give_back(ofi_operation& one) noexcept {
    if (one.bounce.bytes != nullptr) one_sided_->drop_bounce(one);
    one.next_free = std::exchange(free_, &one);
}

void ofi_carrier::lend(ofi_operation& one, ofi_link& by) noexcept {
    one.link = &by;
    ++by.lent_;
    ++lent_;
}

/// libfabric holds it no more.
void ofi_carrier::end_sent(ofi_operation& one, status how) noexcept {
    if (one.bounce.bytes != nullptr && how.ok() && one.link != nullptr)
        ofi_one_sided::take_bounced(one);
    give_back(one);
    take_back(one, how);
}

void ofi_carrier::take_back(ofi_operation& one, status why) noexcept {
    ofi_link* link = std::exchange(one.link, nullptr);
    if (link == nullptr) return;
    --link->lent_;
    --lent_;
    if (one.kind == ofi_operation::does::send)
        events().returned(*one.out);
    else if (one_sided_transfer* ended = std::exchange(one.transfer, nullptr))
        one_sided_->over(*ended, why);
}

/// Takes back what libfabric will not report any more; a later report is ignored.
void ofi_carrier::take_back_all_of(ofi_link& link) noexcept {
    // By number: an upcall may begin another operation.
    for (std::size_t i = 0; link.lent_ > 0 && i < outgoing_.size(); ++i)
        if (outgoing_[i].link == &link) take_back(outgoing_[i], {errc::disconnected});
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
    arrivals_.reset(new std::byte[packets * limits::packet_bytes]);
    if (memory_) memory_->bind_to(by);
    if (memory_ && memory_->registers_local()) {
        const auto made = memory_->add_local({arrivals_.get(), packets * limits::packet_bytes});
        require_ofi(made ? 0 : made.why().what.native, "register memory");
        registered_ = made.value();
    }
    incoming_ = std::vector<ofi_operation>(packets);
    unposted_.reserve(packets);
    reposted_.reserve(packets);
    for (std::size_t i = 0; i < packets; ++i) {
        incoming_[i].into = arrivals_.get() + i * limits::packet_bytes;
        receive_again(incoming_[i]);
    }
    if (unposted_.size() == packets) require_ofi(-FI_EAGAIN, "post receive buffers");
}

void ofi_carrier::receive_again(ofi_operation& one) noexcept {
    void* registered = registered_ == nullptr ? nullptr : fi_mr_desc(registered_);
    if (fi_recv(receives_by_, one.into, limits::packet_bytes, registered, FI_ADDR_UNSPEC, &one) !=
        0)
        unposted_.push_back(&one);
}

void ofi_carrier::complete(const fi_cq_data_entry& what) noexcept {
    // A peer wrote with immediate data (fi_writedata), as no port does and as it needs no key for.
    // The context is then null, or whatever the provider left there.
    if ((what.flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) != 0 || what.op_context == nullptr)
        return;
    auto& one = *static_cast<ofi_operation*>(what.op_context);
    if (one.kind != ofi_operation::does::receive) {
        if (one.kind == ofi_operation::does::transfer) ++came_;
        return end_sent(one, {});
    }
    ++came_;
    if (introduced_link* link = find(what.data)) arrived(*link, {one.into, what.len});
    receive_again(one);
}

void ofi_carrier::complete_failed(fid_cq* queue) noexcept {
    fi_cq_err_entry what{};
    if (fi_cq_readerr(queue, &what, 0) < 1 || what.op_context == nullptr) return;
    if ((what.flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) != 0) return;  // As in complete().
    auto& one = *static_cast<ofi_operation*>(what.op_context);
    if (one.kind == ofi_operation::does::receive) return receive_again(one);
    status how{errc::disconnected, what.err};
    if (one.link != nullptr) {
        if (one.kind == ofi_operation::does::transfer && one.transfer != nullptr)
            how = one_sided_->meaning_of(*one.transfer, what);
        if (how == errc::disconnected && !one.link->closing_) fail(*one.link, how);
    }
    end_sent(one, how);
}

bool ofi_carrier::read_completions() noexcept {
    const bool some = of_few_ && read_completions(of_few_.get());
    return (completions_ && read_completions(completions_.get())) || some;
}

bool ofi_carrier::read_completions(fid_cq* queue) noexcept {
    std::array<fi_cq_data_entry, 16> done;
    const auto count = fi_cq_read(queue, done.data(), done.size());
    if (count == -FI_EAVAIL) {
        complete_failed(queue);
        return true;
    }
    for (long i = 0; i < count; ++i)
        complete(done[i]);
    return count > 0;
}

std::size_t ofi_carrier::move_packets(std::size_t) noexcept {
    came_ = 0;
    // Stops at the first packets or ended transfers: another query costs system calls, and what
    // came should be answered.
    while (came_ == 0 && read_completions()) {
    }
    if (!unposted_.empty()) {
        std::swap(unposted_, reposted_);
        for (ofi_operation* one : reposted_)
            receive_again(*one);
        reposted_.clear();
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
    ofi_descriptors all;
    bool wakes = true;
    for (ofi_queue* each : {&of_few_, &completions_}) {
        if (!*each) continue;
        wakes = wakes && each->wakes();
        if (each->wakes() && !each->arm(fabric_.get(), all)) return false;
    }
    if (waits || !wakes) sleep_briefly(waits || lent_ > 0);
    return sleep_on_busy(all.used());
}

}  // namespace amalgam::detail

#include "fabric/transports/ofi/one_sided.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include <rdma/fi_rma.h>

#include "fabric/transports/ofi/carrier.hpp"

namespace amalgam::detail {
namespace {

// What verbs tells of a refused key (IBV_WC_REM_ACCESS_ERR), beside EIO.
constexpr int verbs_access_error = 10;

// Transfers that are copied: what is pending of an operation takes no more memory than one that is
// not.
constexpr std::size_t bounced_bytes = std::size_t{64} << 10;

// Copies that a port holds. A target that stands still keeps those of transfers that have ended,
// however many follow; packets carry what would need more.
constexpr std::size_t most_bounced_bytes = std::size_t{16} << 20;

ofi_operation* operation_of(const one_sided_transfer& what) noexcept {
    return reinterpret_cast<ofi_operation*>(what.carrier_words[0]);
}

}  // namespace

ofi_one_sided::ofi_one_sided(ofi_carrier& carrier, ofi_memory& memory, bool by_device) noexcept
    : carrier_(carrier),
      memory_(memory),
      by_device_(by_device),
      by_verbs_(std::string_view(carrier.info().fabric_attr->prov_name).starts_with("verbs")),
      bounces_(!by_device && carrier.info().ep_attr->type != FI_EP_MSG),
      longest_(std::min(bounces_ ? bounced_bytes : one_sided_facts{}.piece_bytes,
                        carrier.info().ep_attr->max_msg_size)) {}

one_sided_facts ofi_one_sided::one_sided_traits() const noexcept {
    one_sided_facts facts;
    facts.mode = by_device_ ? rma_mode::one_sided : rma_mode::emulated;
    facts.registers_memory = memory_.registers_local() && !bounces_;
    facts.piece_bytes = longest_;
    return facts;
}

// ---- the target

fid_mr* ofi_one_sided::exposed(const remote_key& key, std::size_t index) const noexcept {
    const auto at = exposed_.find(key.region);
    if (at == exposed_.end()) return nullptr;
    for (const exposed_segment& each : at->second)
        if (each.index == index) return each.memory;
    return nullptr;
}

result<std::size_t> ofi_one_sided::expose(packet_link&, const_bytes, const remote_key& key,
                                          scatter segments, std::size_t index,
                                          std::span<std::byte, max_key_bytes> told) noexcept try {
    fid_mr* one = exposed(key, index);
    if (one == nullptr) {
        auto& all = exposed_[key.region];
        all.reserve(all.size() + 1);
        const auto made = memory_.expose(segments[index], key.rights);
        if (!made) return made.why();
        one = made.value();
        all.push_back({index, one});
    }
    return memory_.tell(*one, segments[index].data(), told);
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

void ofi_one_sided::hide(const remote_key& key) noexcept {
    const auto at = exposed_.find(key.region);
    if (at == exposed_.end()) return;
    for (const exposed_segment& each : at->second)
        memory_.remove(each.memory);
    exposed_.erase(at);
}

void ofi_one_sided::end() noexcept {
    events_ = nullptr;
    for (const auto& [region, all] : exposed_)
        for (const exposed_segment& each : all)
            memory_.remove(each.memory);
    exposed_.clear();
}

// ---- the initiator

result<void*> ofi_one_sided::open_key(packet_link&, const remote_key&, std::size_t, std::uint64_t,
                                      const_bytes told) noexcept {
    const auto opened = memory_.open(told);
    if (!opened) return opened.why();
    auto* made = new (std::nothrow) ofi_far_key(opened.value());
    if (made != nullptr) return static_cast<void*>(made);
    memory_.close(opened.value());
    return {errc::no_memory, ""};
}

void ofi_one_sided::close_key(void* one) noexcept {
    auto* key = static_cast<ofi_far_key*>(one);
    memory_.close(*key);
    delete key;
}

result<void*> ofi_one_sided::register_memory(mutable_bytes some) noexcept {
    const auto made = memory_.add_local(some);
    if (!made) return made.why();
    return static_cast<void*>(made.value());
}

void ofi_one_sided::unregister_memory(void* one) noexcept {
    if (one != nullptr) memory_.remove(static_cast<fid_mr*>(one));
}

bool ofi_one_sided::make_bounce(ofi_operation& op, const one_sided_transfer& what) noexcept {
    if (bounced_ + what.bytes > most_bounced_bytes) return false;
    op.bounce.bytes.reset(new (std::nothrow) std::byte[what.bytes]);
    if (op.bounce.bytes == nullptr) return false;
    op.bounce.size = what.bytes;
    bounced_ += what.bytes;
    if (memory_.registers_local()) {
        const auto made = memory_.add_local({op.bounce.bytes.get(), what.bytes});
        if (!made) return false;
        op.bounce.registered = made.value();
    }
    if (what.is_put) std::memcpy(op.bounce.bytes.get(), what.here, what.bytes);
    return true;
}

void ofi_one_sided::take_bounced(const ofi_operation& op) noexcept {
    if (op.transfer == nullptr || op.transfer->is_put) return;
    std::memcpy(op.transfer->here, op.bounce.bytes.get(), op.transfer->bytes);
}

void ofi_one_sided::drop_bounce(ofi_operation& op) noexcept {
    if (op.bounce.registered != nullptr)
        memory_.remove(std::exchange(op.bounce.registered, nullptr));
    op.bounce.bytes.reset();
    bounced_ -= std::exchange(op.bounce.size, 0);
}

long ofi_one_sided::post(fid_ep* by, fi_addr_t to, const one_sided_transfer& what,
                         ofi_operation& op) noexcept {
    const auto& key = *static_cast<const ofi_far_key*>(what.key);
    const iovec here{bounces_ ? op.bounce.bytes.get() : what.here, what.bytes};
    const fi_rma_iov there{key.base + what.offset, what.bytes, key.key};
    auto* const memory = bounces_ ? op.bounce.registered : static_cast<fid_mr*>(what.memory);
    void* registered = memory == nullptr ? nullptr : fi_mr_desc(memory);
    const fi_msg_rma all{&here, &registered, 1, to, &there, 1, &op, 0};
    // A put is over when its bytes can be read at the target.
    return what.is_put ? fi_writemsg(by, &all, FI_DELIVERY_COMPLETE) : fi_readmsg(by, &all, 0);
}

posted ofi_one_sided::start(packet_link& to, one_sided_transfer& what) noexcept {
    auto& link = static_cast<ofi_link&>(to);
    if (!link.may_send()) return posted::full;
    ofi_operation* op = carrier_.take_operation();
    if (op == nullptr) {
        what.how = {errc::no_memory};
        return posted::done;
    }
    op->kind = ofi_operation::does::transfer;
    op->transfer = &what;
    what.carrier_words[0] = reinterpret_cast<std::uintptr_t>(op);
    if (bounces_ && !make_bounce(*op, what)) {
        carrier_.give_back(*op);
        what.how = {errc::unsupported};  // Packets go on.
        return posted::done;
    }
    const long how = post(link.by_, link.to_, what, *op);
    if (how == 0) {
        if (bounces_) copied_.add(what.bytes);
        carrier_.lend(*op, link);
        return posted::pending;
    }
    carrier_.give_back(*op);
    if (how == -FI_EAGAIN) return posted::full;
    what.how = from_ofi(how);
    return posted::done;
}

/// Few providers can cancel one; others end it when its bytes have moved, or its connection ends.
void ofi_one_sided::let_go(one_sided_transfer& what) noexcept {
    ofi_operation* op = operation_of(what);
    if (op->link == nullptr || op->link->by_ == nullptr) return;
    what.carrier_words[1] = 1;
    fi_cancel(&op->link->by_->fid, op);
    if (!bounces_ || what.is_put || op->transfer == nullptr) return;
    op->transfer = nullptr;  // What may come yet goes to the copy, and is nobody's.
    over(what, {errc::canceled});
}

void ofi_one_sided::end_one_sided() noexcept {
    end();
    if (!carrier_.has_transfers()) return;
    carrier_.end_packets();
    carrier_.end_paths();  // Nothing less ends transfers.
}

void ofi_one_sided::over(one_sided_transfer& what, status how) noexcept {
    if (events_ != nullptr) events_->finished(what, how);
}

status ofi_one_sided::meaning_of(const one_sided_transfer& one,
                                 const fi_cq_err_entry& what) const noexcept {
    switch (what.err) {
        case FI_ECANCELED:  // Without us asking: its endpoint broke.
            return {one.carrier_words[1] != 0 ? errc::canceled : errc::disconnected, what.err};
        case FI_EACCES:
        case FI_EPERM:
        case FI_ENOKEY:
        case FI_EKEYREJECTED:
            return {errc::denied, what.err};
        case FI_EIO:
            if (by_verbs_ && what.prov_errno == verbs_access_error) return {errc::denied, what.err};
            [[fallthrough]];
        default:
            return from_ofi(what.err);
    }
}

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/fabric/one_sided.hpp>

#include "fabric/transports/ofi/memory.hpp"

namespace amalgam::detail {

class ofi_carrier;
struct ofi_operation;

/// Memory of a transfer that libfabric is given in place of the user's.
struct ofi_bounce {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
    fid_mr* registered = nullptr;
};

/// Puts and gets by libfabric's own operations (fi_writemsg, fi_readmsg). Keys are checked by the
/// provider: by a device, or with `?one_sided=any` by software of the target, which does not keep
/// the promise of hide() for transfers that are under way.
///
/// Software holds a transfer until its target moves or is gone. A connected endpoint can be closed
/// by then. One that reaches others by name is shared by all, so libfabric works on a copy there:
/// the user's memory is free whatever becomes of the target.
///
/// Threads: the port's thread.
class ofi_one_sided final : public one_sided_carrier {
public:
    ofi_one_sided(ofi_carrier& carrier, ofi_memory& memory, bool by_device) noexcept;

    void start_one_sided(one_sided_events& events) noexcept override { events_ = &events; }
    one_sided_facts one_sided_traits() const noexcept override;

    result<std::size_t> expose(packet_link&, const_bytes, const remote_key&, scatter segments,
                               std::size_t index,
                               std::span<std::byte, max_key_bytes> told) noexcept override;
    void hide(const remote_key&) noexcept override;

    result<void*> open_key(packet_link&, const remote_key&, std::size_t, std::uint64_t,
                           const_bytes told) noexcept override;
    void close_key(void*) noexcept override;
    result<void*> register_memory(mutable_bytes) noexcept override;
    void unregister_memory(void*) noexcept override;

    posted start(packet_link&, one_sided_transfer&) noexcept override;
    void let_go(one_sided_transfer&) noexcept override;
    void end_one_sided() noexcept override;
    std::uint64_t copied_bytes() const noexcept override { return copied_.value(); }

    /// The bytes that a get brought are the user's.
    static void take_bounced(const ofi_operation&) noexcept;
    /// libfabric holds the operation no more, or has ended.
    void drop_bounce(ofi_operation&) noexcept;

    /// libfabric holds this transfer no more.
    void over(one_sided_transfer&, status how) noexcept;
    /// Before the carrier's end: makes no more upcalls, and ends peers' access.
    void end() noexcept;

    /// What an operation that failed means to the user.
    status meaning_of(const one_sided_transfer&, const fi_cq_err_entry&) const noexcept;

private:
    struct exposed_segment {
        std::size_t index = 0;
        fid_mr* memory = nullptr;
    };

    fid_mr* exposed(const remote_key&, std::size_t index) const noexcept;
    long post(fid_ep* by, fi_addr_t to, const one_sided_transfer&, ofi_operation&) noexcept;
    bool make_bounce(ofi_operation&, const one_sided_transfer&) noexcept;

    ofi_carrier& carrier_;
    ofi_memory& memory_;
    const bool by_device_;
    const bool by_verbs_;
    const bool bounces_;
    std::size_t longest_ = 0;
    std::size_t bounced_ = 0;  ///< Bytes of all copies.
    owned_counter copied_;     ///< Bytes of puts that were copied, and of gets.
    one_sided_events* events_ = nullptr;
    std::unordered_map<std::uint64_t, std::vector<exposed_segment>> exposed_;  ///< By region.
};

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/packets/introduced_carrier.hpp"
#include "fabric/transports/ofi/completion_queue.hpp"
#include "fabric/transports/ofi/library.hpp"
#include "fabric/transports/ofi/memory.hpp"
#include "fabric/transports/ofi/one_sided.hpp"

namespace amalgam::detail {

class ofi_carrier;
class ofi_link;

/// What libfabric holds: an outgoing packet, a put or get, or a posted receive.
struct ofi_operation {
    enum class does : std::uint8_t { receive, send, transfer };

    fi_context2 of_the_library;  ///< First: libfabric returns its address.
    does kind = does::receive;
    packet* out = nullptr;
    one_sided_transfer* transfer = nullptr;  ///< Null: ended, although libfabric holds this.
    ofi_link* link = nullptr;                ///< nullptr: of a receive, or taken back.
    std::byte* into = nullptr;               ///< Of a receive.
    std::unique_ptr<std::byte[]> copy;       ///< Registered, of packets; allocated if needed.
    fid_mr* registered = nullptr;            ///< Of `copy`.
    ofi_bounce bounce;                       ///< Of a transfer, where ofi_one_sided uses them.
    ofi_operation* next_free = nullptr;
};

/// One connection over libfabric.
class ofi_link : public introduced_link {
public:
    posted send(packet& one) noexcept final;

protected:
    friend class ofi_carrier;
    friend class ofi_one_sided;

    bool may_send() const noexcept { return is_open() && by_ != nullptr && !failed_ && !closing_; }

    ofi_carrier* carrier_ = nullptr;
    fid_ep* by_ = nullptr;  ///< Endpoint that sends; nullptr: not yet, or no longer.
    fi_addr_t to_ = FI_ADDR_UNSPEC;
    std::size_t lent_ = 0;    ///< Packets and transfers held by libfabric.
    bool is_of_few_ = false;  ///< Its endpoint completes in the queue for few.
    bool closing_ = false;
    bool refused_ = false;  ///< A send was refused; room() is due.
    bool failed_ = false;
    status why_failed_;
};

/// Sends packets as libfabric messages. Each carries its receiver's id of the connection as
/// immediate data, so all connections of a port share the receive memory.
///
/// Owner:   libfabric's objects and the receive memory.
/// Threads: the port's thread.
class ofi_carrier : public introduced_carrier {
public:
    ~ofi_carrier() override;

    one_sided_carrier* one_sided() noexcept final {
        if (choice_.copies) return choice_.copies.get();
        return one_sided_.get();
    }

protected:
    /// Failure: throws error with libfabric's message.
    ofi_carrier(introducer by, ofi_choice choice);
    /// Call once the receiving endpoint exists. Failure: as above.
    void begin_to_receive(fid_ep* by, std::size_t packets);
    /// Call first in the destructor: gives sent packets a moment to leave.
    void end_packets() noexcept;
    /// Closes every endpoint that sends, then take_back_all(). Also called in the destructor.
    virtual void end_paths() noexcept = 0;
    void take_back_all() noexcept;

    /// Processes some completions; false: there were none.
    bool read_completions() noexcept;
    /// Work that is not allowed while a completion is being processed.
    virtual void tend() noexcept = 0;
    /// Whether an unreferenced link whose packets libfabric has released may be destroyed.
    virtual bool may_destroy(ofi_link&) noexcept = 0;
    /// Whether everything else permits sleeping.
    virtual bool may_sleep() noexcept = 0;
    void take_back_all_of(ofi_link&) noexcept;
    /// Registers a new link; afterwards, recording its events cannot fail.
    void expect(ofi_link& made);
    /// Its connection is lost: reported in the next round.
    void fail(ofi_link& link, status why) noexcept;

    const fi_info& info() const noexcept { return *choice_.info; }
    fid_fabric* fabric() const noexcept { return fabric_.get(); }
    fid_domain* domain() const noexcept { return domain_.get(); }
    /// Of the one endpoint that reaches others by name.
    fid_cq* completions() const noexcept { return completions_.get(); }
    /// For the connected endpoint of this link, until close_end(). nullptr: none can be opened.
    fid_cq* completions_of(ofi_link&) noexcept;
    void close_end(ofi_link&, ofi_handle<fid_ep>& end) noexcept;

private:
    friend class ofi_link;
    friend class ofi_one_sided;

    std::string explain_paths() const final { return choice_.explain(); }
    void release_path(std::unique_ptr<introduced_link>) noexcept final;
    std::size_t move_packets(std::size_t budget) noexcept final;
    bool arm_paths() noexcept final;

    posted send(ofi_link& by, packet& one) noexcept;
    posted refused(ofi_link& by, long how) noexcept;
    bool copy_registered(ofi_operation& op, const packet& one) noexcept;
    ofi_operation* take_operation() noexcept;
    void give_back(ofi_operation& one) noexcept;
    void lend(ofi_operation& one, ofi_link& by) noexcept;
    void take_back(ofi_operation& one, status why) noexcept;
    bool holds(ofi_operation::does kind) const noexcept;
    bool has_transfers() const noexcept { return holds(ofi_operation::does::transfer); }
    void complete(const fi_cq_data_entry&) noexcept;
    void complete_failed(fid_cq* queue) noexcept;
    bool read_completions(fid_cq* queue) noexcept;
    std::size_t entries() const noexcept;
    void end_sent(ofi_operation& one, status how) noexcept;
    void receive_again(ofi_operation& one) noexcept;
    void tell_refused() noexcept;
    void tell_failed() noexcept;
    void destroy_released() noexcept;

    const ofi_choice choice_;
    ofi_handle<fid_fabric> fabric_;
    ofi_handle<fid_domain> domain_;
    ofi_queue of_few_;                  ///< Of connected endpoints, the first few.
    std::size_t few_ = 0;               ///< Endpoints that it has.
    ofi_queue completions_;             ///< Of all others; open only if there are some.
    std::optional<ofi_memory> memory_;  ///< If transfers are one-sided.
    std::unique_ptr<ofi_one_sided> one_sided_;
    std::size_t inject_bytes_ = 0;  ///< Packets up to this length are copied by libfabric.
    fid_ep* receives_by_ = nullptr;
    std::unique_ptr<std::byte[]> arrivals_;
    fid_mr* registered_ = nullptr;  ///< Of arrivals_.
    std::vector<ofi_operation> incoming_;
    std::vector<ofi_operation*> unposted_;  ///< Of incoming_: libfabric had no room for them.
    std::vector<ofi_operation*> reposted_;  ///< Those being tried again.
    std::deque<ofi_operation> outgoing_;
    ofi_operation* free_ = nullptr;  ///< Of outgoing_.
    std::size_t came_ = 0;           ///< Packets and ended transfers, in this round.
    std::vector<ofi_link*> refused_;
    std::vector<ofi_link*> failed_;
    std::vector<std::unique_ptr<ofi_link>> released_;
    std::size_t links_ = 0;  ///< Existing links.
    std::size_t lent_ = 0;   ///< Packets and transfers held by libfabric, over all links.
};

}  // namespace amalgam::detail

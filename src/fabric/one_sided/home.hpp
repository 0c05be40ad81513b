#pragma once

#include <cstddef>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/rma/initiator.hpp"
#include "fabric/rma/region_table.hpp"

namespace amalgam::detail {

struct one_sided_peer;

/// The port that one-sided transfers belong to.
class one_sided_home {
public:
    /// The region that this key opens; nullptr: none. Valid until a region opens or closes.
    virtual const region_entry* region_of(const remote_key&) noexcept = 0;
    /// A transfer that start() left pending ended: its completion runs at the end of this
    /// progress(), or in the next one.
    virtual void transfer_over(completion&, status, std::size_t bytes) noexcept = 0;
    /// Packets move the rest of a transfer that was left pending. Not inside an upcall.
    virtual void go_on_by_packets(one_sided_peer&, const rma_rest&, completion&) noexcept = 0;
    /// The carrier holds nothing any more of a peer that is down.
    virtual void transfers_over(one_sided_peer&) noexcept = 0;

protected:
    ~one_sided_home() = default;
};

}  // namespace amalgam::detail

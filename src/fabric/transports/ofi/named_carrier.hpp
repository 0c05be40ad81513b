#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/transports/ofi/carrier.hpp"

namespace amalgam::detail {

class ofi_named_link final : public ofi_link {
private:
    friend class ofi_named_carrier;
    std::string name_;  ///< The other end's; empty: not known yet.
};

/// Uses one endpoint (FI_EP_RDM) that reaches all others by name, for everything except tcp.
///
/// Threads: the port's thread.
class ofi_named_carrier final : public ofi_carrier {
public:
    /// Failure: throws error with libfabric's message.
    ofi_named_carrier(introducer by, ofi_choice choice);
    ~ofi_named_carrier() override;

private:
    /// A remote end that one or more links use: libfabric knows it once.
    struct other_end {
        fi_addr_t at = FI_ADDR_UNSPEC;
        std::size_t links = 0;
    };

    const_bytes own_name(const introduced_link&) const noexcept override { return name_; }
    std::unique_ptr<introduced_link> make_link() override;
    status open_path(introduced_link&, const_bytes name) noexcept override;
    void close_path(introduced_link&, bool dead) noexcept override;
    void tend() noexcept override {}
    void end_paths() noexcept override;
    bool may_destroy(ofi_link&) noexcept override;
    bool may_sleep() noexcept override { return true; }

    bool is_name(const_bytes) const noexcept;

    ofi_handle<fid_av> names_;
    ofi_handle<fid_ep> end_;
    std::vector<std::byte> name_;
    std::unordered_map<std::string, other_end> others_;
};

}  // namespace amalgam::detail

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <amalgam/core/result.hpp>
#include <amalgam/core/status.hpp>

#include "fabric/sockets/socket_address.hpp"
#include "fabric/transports/ofi/transfers_wish.hpp"
#include "fabric/transports/shm/memory/host_copies.hpp"

namespace amalgam::detail {

struct ofi_close {
    template <typename T>
    void operator()(T* one) const noexcept {
        fi_close(&one->fid);
    }
};
struct ofi_free {
    void operator()(fi_info* one) const noexcept { fi_freeinfo(one); }
};
/// Owns a libfabric object and closes it. Objects created from it must be closed first.
template <typename T>
using ofi_handle = std::unique_ptr<T, ofi_close>;
using ofi_info = std::unique_ptr<fi_info, ofi_free>;

/// Our code for a libfabric error number (of either sign), which is kept for logs.
status from_ofi(long what, errc otherwise = errc::disconnected) noexcept;
/// Failure: throws error{unsupported} "libfabric cannot …" if `how` is not 0.
void require_ofi(long how, std::string_view doing);

/// What a port requests from libfabric.
struct ofi_wish {
    std::string provider;   ///< libfabric's name: "tcp", "sockets", "udp;ofi_rxd".
    std::string domain;     ///< Empty: any.
    socket_address source;  ///< An address of this machine; empty: any.
    ofi_transfers_wish transfers{};

    /// True: endpoints are connected pairwise, from caller to listener, which works through address
    /// translation. Else each endpoint reaches any other by name.
    bool connected() const noexcept { return provider == "tcp"; }
};

/// What serves a port.
struct ofi_choice {
    ofi_info info;
    std::string chosen;                     ///< One sentence about it.
    ofi_transfers_wish transfers;           ///< One-sided only if the provider can.
    std::unique_ptr<host_copies> copies{};  ///< If transfers go by them.

    std::string explain() const;
};

/// Finds what serves the request here; the sentence is the caller's. Failure: the reason, without a
/// full sentence.
result<ofi_choice> find_ofi(const ofi_wish& wish);

/// Why a provider that libfabric may offer is not used, and what to use instead: it failed the
/// conformance suite. Empty: no known flaw.
std::string_view flaw_of(std::string_view provider) noexcept;

/// Providers with a device on this machine, and their domains, as a URI names them; each once.
struct ofi_machine {
    std::vector<std::string> providers;
    std::vector<std::string> domains;
};
ofi_machine ofi_on_this_machine();

}  // namespace amalgam::detail

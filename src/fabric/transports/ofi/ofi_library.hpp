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

#include "fabric/transports/tcp/socket_address.hpp"

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
/// An object of libfabric's, closed in the end: those made of it must be closed before.
template <typename T>
using ofi_handle = std::unique_ptr<T, ofi_close>;
using ofi_info = std::unique_ptr<fi_info, ofi_free>;

/// Our code for a number of libfabric's (of either sign), with that one kept for logs.
status from_ofi(long what, errc otherwise = errc::disconnected) noexcept;
/// Failure: throws error{unsupported} "libfabric cannot …" when `how` is not 0.
void require_ofi(long how, std::string_view doing);

/// What a port wants of libfabric.
struct ofi_wish {
    std::string provider;   ///< As libfabric calls it: "tcp", "sockets", "udp;ofi_rxd".
    std::string domain;     ///< Empty: any.
    socket_address source;  ///< An address of this machine; none: any.

    /// Whether its ends are connected, two by two, from the caller to the listener: what goes
    /// through address translation. Else each end reaches any other by its name.
    bool connected() const noexcept { return provider == "tcp"; }
};

/// What serves the wish here. Failure: one that says so, without a sentence around it.
result<ofi_info> find_ofi(const ofi_wish& wish);

/// What is wrong with a provider that libfabric may have and that is not used, and what to take
/// instead: it has failed the conformance suite. Empty: nothing is known.
std::string_view flaw_of(std::string_view provider) noexcept;

/// Providers that find a device here, and their domains, as a URI names them; each once.
struct ofi_machine {
    std::vector<std::string> providers;
    std::vector<std::string> domains;
};
ofi_machine ofi_on_this_machine();

}  // namespace amalgam::detail

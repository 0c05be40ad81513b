#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <amalgam/core/result.hpp>
#include <amalgam/core/uri.hpp>

namespace amalgam::detail {

/// Who carries out puts and gets: libfabric's one-sided operations, the kernel between processes of
/// one host, or else packets. Decision 0017 says why libfabric's do not by default where software
/// of the target has a part in them.
struct ofi_transfers_wish {
    bool one_sided = false;
    bool by_device = false;   ///< A device checks keys, and closing a region ends access to it.
    bool on_host = false;     ///< By the kernel, if it lets us.
    bool by_anybody = false;  ///< One-sided also if no device checks keys.
    std::string why_packets;  ///< A clause, if they are not.

    // ---- for tests, from the option `mr_mode`
    bool old_basic = false;   ///< Ask for FI_MR_BASIC, the mode of libfabric before 1.5.
    bool local = false;       ///< Register local memory even if libfabric does not ask for it.
    std::uint64_t modes = 0;  ///< To switch on besides those that libfabric asks for.
};

/// Whether a device checks keys at every access, by libfabric's full name of a provider.
bool checks_keys_in_device(std::string_view provider) noexcept;

/// Reads `?one_sided=any|host|no` and `mr_mode`, and the settings of libfabric in the environment.
/// `sealed`: packets are encrypted, and the wire is not trusted, so nothing passes it in another
/// way. Failure: `invalid` with what was wrong, without a full sentence.
result<ofi_transfers_wish> transfers_wish(const uri& where, bool sealed = false);

}  // namespace amalgam::detail

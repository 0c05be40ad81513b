#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/fabric/identity.hpp>

namespace amalgam {

/// Who may call: whoever fits one of these. Empty: nobody.
///
///     {.groups = {"operators"}, .uids = {0}}
///
/// Names and groups are those of identities that were proved by a certificate or a pre-shared key;
/// uids those of processes on this host, by the kernel's word (shm:// lets in processes of its own
/// user, and of others if its URI says so: shm://server?users=1000). A peer that proved nothing, as
/// over tcp:// without tls, fits none.
///
/// Threads: a plain value.
struct allow_list {
    std::vector<std::string> names{};   ///< identity::name, letter by letter.
    std::vector<std::string> groups{};  ///< One of identity::groups.
    std::vector<std::uint32_t> uids{};  ///< identity::uid of processes.

    /// Whether this list lets him in, by name, group or user.
    bool allows(const identity& who) const noexcept;
    friend bool operator==(const allow_list&, const allow_list&) = default;
};

}  // namespace amalgam

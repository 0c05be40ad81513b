#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/inject/code_image.hpp>
#include <amalgam/rpc/allow_list.hpp>

namespace amalgam {

/// Which images may run, and for whom. By default those signed by a trusted signer, as their
/// manifests say, for every peer.
struct injection_policy {
    std::vector<signer_key> trusted{};  ///< Signers whose images may run.
    /// Whether unsigned images may run as well, and those of other signers, whose manifests say
    /// nothing then.
    bool unsigned_too = false;
    /// File of images and signers that may not run, whatever else is said: see image_revocations.
    /// It is looked at once a second. What cannot be read changes nothing but the log. Empty: none.
    std::string revoked{};
    /// Who may bring and run images. Empty optional: whoever reaches a port. Others get `denied`.
    /// This engine itself always may. Code from an injection_ring comes from nobody known, and is
    /// refused where there is a list. Cost: asks who the caller is, each time.
    std::optional<allow_list> callers{};
    /// Who of these may run the images of a name: all lists with it must allow them.
    std::vector<std::pair<std::string, allow_list>> callers_of{};
    std::vector<std::string> names{};  ///< Allowed image names; empty: all.
    /// Symbols no image may import. Guards against accidents, not malice: code can make system
    /// calls directly, and the runtimes offer more ways than any list. Confine code you do not
    /// trust; there the kernel denies all of this.
    std::vector<std::string> denied_imports{
        "system", "popen",   "fork",     "vfork",   "execve",  "execv",       "execl",
        "execvp", "execlp",  "execle",   "execvpe", "fexecve", "posix_spawn", "posix_spawnp",
        "dlopen", "dlmopen", "dlsym",    "dlvsym",  "syscall", "mprotect",    "kill",
        "ptrace", "_Fork",   "execveat", "wordexp", "clone"};
    /// Final check: throws amalgam::error{denied} to reject an image (any other exception rejects
    /// it, too). Called last, and again whenever a known image arrives.
    std::function<void(const code_image&)> check{};
};

}  // namespace amalgam

#pragma once

#include <optional>

#include <amalgam/rpc/allow_list.hpp>

namespace amalgam {

/// Who may do what at a directory, by who they proved to be: see allow_list.
///
///     {.members = allow_list{.groups = {"directories"}},
///      .contexts = allow_list{.groups = {"compute"}, .uids = {1000}}}
///
/// Whoever has a role has those below it, too. A role without a list goes to whoever has the next
/// one below it, and reading without a list to whoever reaches the directory: over tcp+tls that is
/// who was certified, over shm this user's processes on this host. So a list is not evaded by
/// taking a higher role. Calls of the directory's own engine are always allowed.
///
/// Threads: a plain value.
struct directory_roles {
    /// Other directories: they join the ring, tell news of it, and ask what is registered here.
    /// This directory also asks only such: what another one answers is not believed.
    std::optional<allow_list> members{};
    /// Processes that register resources and change their own. Nobody changes those of others.
    std::optional<allow_list> contexts{};
    /// Processes that search and watch. Their contexts have an id, but none of their attributes, so
    /// that no query for attributes finds them.
    std::optional<allow_list> readers{};

    friend bool operator==(const directory_roles&, const directory_roles&) = default;
};

}  // namespace amalgam

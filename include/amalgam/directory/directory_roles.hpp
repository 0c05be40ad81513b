#pragma once

#include <optional>
#include <string>
#include <vector>

#include <amalgam/rpc/allow_list.hpp>

namespace amalgam {

/// Who may give an attribute to their resources, as they register them or later.
struct attribute_owners {
    std::string name{};                  ///< The attribute's.
    std::optional<std::string> value{};  ///< Empty optional: whatever its value.
    allow_list who{};                    ///< Default: nobody.

    friend bool operator==(const attribute_owners&, const attribute_owners&) = default;
};

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
    /// Who of those that may register resources may give them an attribute, as in
    ///
    ///     {.owners_of = {{.name = "type", .value = "database", .who = {.groups = {"databases"}}}}}
    ///
    /// Others get `denied`. All entries that fit an attribute must allow it. Contexts are
    /// resources, too, and members are no exception. Each directory judges its own resources only:
    /// give all of a ring the same list. Cost: where there is one, each attribute is compared with
    /// it.
    std::vector<attribute_owners> owners_of{};

    friend bool operator==(const directory_roles&, const directory_roles&) = default;
};

}  // namespace amalgam

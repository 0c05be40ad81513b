#include "directory/protocol/role_policy.hpp"

#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <amalgam/fabric/identity.hpp>

namespace amalgam::detail {

namespace {

void add_all(allow_list& to, const allow_list& more) {
    to.names.insert(to.names.end(), more.names.begin(), more.names.end());
    to.groups.insert(to.groups.end(), more.groups.begin(), more.groups.end());
    to.uids.insert(to.uids.end(), more.uids.begin(), more.uids.end());
}

std::string_view plural(directory_role which) noexcept {
    switch (which) {
        case directory_role::anyone:
        case directory_role::reader:
            return "readers";
        case directory_role::context:
            return "contexts";
        case directory_role::member:
            break;
    }
    return "members";
}

void check_names(const std::vector<attribute_owners>& all) {
    for (const attribute_owners& each : all)
        if (each.name.empty() || each.name.size() > attribute_list::max_name_bytes)
            throw error(
                errc::invalid,
                fmt::format("an attribute in directory_roles::owners_of has a name of {} "
                            "bytes, expected 1 to {}; example: {{.name = \"type\", .value = "
                            "\"database\", .who = {{.groups = {{\"databases\"}}}}}}",
                            each.name.size(), attribute_list::max_name_bytes));
}

bool holds_for(const attribute_owners& owners, const attribute& which) {
    return owners.name == which.name && (!owners.value || *owners.value == which.text());
}

/// In the words of `amalgam directory`; of a long list the beginning.
std::string in_words(const allow_list& list) {
    constexpr std::size_t most = 8;
    std::vector<std::string> all = list.names;
    for (const std::string& each : list.groups)
        all.push_back("group:" + each);
    for (const std::uint32_t each : list.uids)
        all.push_back(fmt::format("uid:{}", each));
    if (all.empty()) return "the directory's own process";
    if (all.size() > most) {
        all.resize(most);
        all.emplace_back("others");
    }
    return fmt::format("{}", fmt::join(all, ", "));
}

/// {type: "database"}, or how long its value is.
std::string in_words(const attribute& which) {
    constexpr std::size_t most = 64;
    if (which.value.size() > most)
        return fmt::format("{{{}: {} bytes}}", which.name, which.value.size());
    return to_string(attribute_list().add(which.name, which.value));
}

}  // namespace

void refuse_secret() {
    const char* const path = std::getenv("AMALGAM_SECRET_FILE");
    if (path == nullptr || *path == '\0') return;
    throw error(errc::invalid,
                fmt::format("AMALGAM_SECRET_FILE is set to {}, but directories no longer take a "
                            "shared secret, expected it unset and addresses of tcp+tls:// with "
                            "credentials; example: amalgam key new node7 --with lab, then "
                            "tcp+tls://10.0.0.7:7100?credentials=node7",
                            path));
}

role_policy::role_policy(engine& on, std::string_view what, const directory_roles& roles)
    : on_(on),
      what_(what),
      lists_{std::nullopt, roles.readers, roles.contexts, roles.members},
      owners_of_(roles.owners_of),
      refused_(on.counters().get("directory.refused")) {
    check_names(owners_of_);
    // From below: a role without a list goes to who has the next one below it ...
    for (std::size_t each = 2; each < 4; ++each)
        if (!lists_[each]) lists_[each] = lists_[each - 1];
    // ... and from above: whoever has a role has those below it.
    for (std::size_t each = 3; each > 1; --each)
        if (lists_[each] && lists_[each - 1]) add_all(*lists_[each - 1], *lists_[each]);
}

bool role_policy::caller_is(directory_role which) const {
    const auto& list = list_of(which);
    if (!list) return true;
    const call_context& call = call_context::current();
    return call.from().is_self() || list->allows(call.who());
}

void role_policy::check_owner_of_each(const attribute_view& what) const {
    const call_context& call = call_context::current();
    if (call.from().is_self()) return;
    for (const attribute& each : what)
        for (const attribute_owners& owners : owners_of_) {
            if (!holds_for(owners, each)) continue;
            const identity who = call.who();
            if (owners.who.allows(who)) continue;
            refused_.add();
            throw error(errc::denied,
                        fmt::format("only {} may give {} to resources of this directory, not {}; "
                                    "its operator can add a name, a group or a uid to "
                                    "directory_roles::owners_of",
                                    in_words(owners.who), in_words(each),
                                    who.kind == identity_kind::none ? "a caller of whom nothing "
                                                                      "is known"
                                                                    : to_text(who)));
        }
}

identity role_policy::who_is(const peer& there, std::chrono::nanoseconds within) const {
    identity who = there.who();
    if (who.kind != identity_kind::none) return who;
    // Perhaps only because it is not connected yet.
    const auto ping = on_.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping");
    (void)ping.on(there).within(within).try_call(0);
    return there.who();
}

void role_policy::check_is(directory_role which, const peer& there,
                           std::chrono::nanoseconds within) const {
    const auto& list = list_of(which);
    if (!list || there.is_self()) return;
    const identity who = who_is(there, within);
    if (list->allows(who)) return;
    refused_.add();
    throw error(errc::denied,
                fmt::format("{} at {} is not among the {} of this directory; add its name, a group "
                            "or its uid to directory_roles::{}",
                            to_text(who), there.address(), plural(which), plural(which)));
}

void role_policy::check_signed(const identity& by, const peer& there,
                               std::chrono::nanoseconds within) const {
    if (by.kind == identity_kind::none || there.is_self()) return;
    const identity who = who_is(there, within);
    // A port without keys proves nothing, and shared memory only which process it is.
    if (who.kind != identity_kind::certificate || who.key == by.key) return;
    // A certificate may have been renewed with another key since one of the two was made.
    if (!who.name.empty() && who.name == by.name) return;
    refused_.add();
    throw error(errc::denied,
                fmt::format("{} broadcast in the name of {} at {}, expected its own address and "
                            "key in the ring",
                            to_text(by), to_text(who), there.address()));
}

void role_policy::throw_ended() const {
    throw error(errc::not_found, fmt::format("the {} has ended", what_));
}

}  // namespace amalgam::detail

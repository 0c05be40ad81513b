#include <algorithm>

#include <amalgam/rpc/allow_list.hpp>

namespace amalgam {

bool allow_list::allows(const identity& who) const noexcept {
    const auto has = [](const auto& all, const auto& one) {
        return std::find(all.begin(), all.end(), one) != all.end();
    };
    switch (who.kind) {
        case identity_kind::process:
            return has(uids, who.uid);
        case identity_kind::certificate:
        case identity_kind::pre_shared:
            return has(names, who.name) ||
                   std::any_of(who.groups.begin(), who.groups.end(),
                               [&](const std::string& each) { return has(groups, each); });
        case identity_kind::none:
            break;
    }
    return false;
}

}  // namespace amalgam

#include <fmt/format.h>
#include <unistd.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/fabric/port.hpp>

#include "fabric/trust/keys/trusted_keys.hpp"

namespace amalgam {
std::string to_text(const key_fingerprint& key) {
    return detail::to_hex(std::as_bytes(std::span(key.bytes)));
}

key_fingerprint parse_key_fingerprint(std::string_view text) {
    if (const auto key = detail::fingerprint_in(text)) return *key;
    throw error(
        errc::invalid,
        fmt::format("the key fingerprint \"{}\" {}; `amalgam key show FOLDER` prints one",
                    detail::printable_name(text.substr(0, 80)), detail::why_no_fingerprint(text)));
}

std::string_view name(identity_kind kind) noexcept {
    switch (kind) {
        case identity_kind::none:
            return "none";
        case identity_kind::certificate:
            return "certificate";
        case identity_kind::pre_shared:
            return "pre_shared";
        case identity_kind::process:
            return "process";
    }
    return "unknown";
}

identity own_process() {
    identity me;
    me.kind = identity_kind::process;
    me.uid = ::geteuid();
    me.gid = ::getegid();
    me.pid = ::getpid();
    return me;
}

std::string to_text(const identity& who) {
    if (who.kind == identity_kind::none) return "nobody known";
    if (who.kind == identity_kind::process) return fmt::format("uid {} (pid {})", who.uid, who.pid);
    const std::string shown = detail::printable_name(who.name);
    if (who.groups.empty()) return shown;
    return fmt::format("{} (groups: {})", shown,
                       detail::printable_name(fmt::format("{}", fmt::join(who.groups, ", "))));
}

identity port::who(peer_id) const {
    return {};
}

identity port::self() const {
    return {};
}

}  // namespace amalgam

#include "fabric/sockets/open_ports.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace amalgam::detail {

result<bool> means_insecure(const uri& where, const port_options& options) {
    const auto said = where.option(insecure_option);
    if (!said) return options.insecure;
    if (*said == "yes") return true;
    if (*said == "no") return false;
    return {errc::invalid, fmt::format("uri \"{}\": the option insecure is \"{}\", expected yes or "
                                       "no; example: tcp://eth0:7000?insecure=yes",
                                       to_string(where), *said)};
}

bool is_open_port(const binding& chosen) noexcept {
    return chosen.listen && !chosen.listen->is_loopback();
}

std::string explain_who_reaches(const binding& chosen) {
    if (!chosen.listen) return "nothing is encrypted, nobody can connect, and peers prove nothing";
    return is_open_port(chosen)
               ? "nothing is encrypted, and whoever reaches it may connect, as is said to be meant"
               : "nothing is encrypted, and every process on this host may connect, nobody else";
}

failure refuse_open_port(const uri& where, std::string_view what) {
    uri with_keys = where;
    if (where.scheme == "ofi") {
        with_keys.protocol += "+tls";
    } else {
        with_keys.scheme = "tcp";
        with_keys.protocol = "tls";
        with_keys.device.clear();
    }
    with_keys.options = {{"credentials", "NAME"}};
    uri insecure = without_option(where, insecure_option);
    insecure.options.push_back({std::string(insecure_option), "yes"});
    return {{errc::denied},
            fmt::format("uri \"{}\": other hosts can reach {}, and nobody is asked who he is; use "
                        "keys ({}, with NAME made by \"amalgam key new\"), or say that this is "
                        "meant; example: {}",
                        to_string(where), what, to_string(with_keys), to_string(insecure))};
}

}  // namespace amalgam::detail

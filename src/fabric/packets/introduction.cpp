#include "fabric/packets/introduction.hpp"

#include <utility>

#include <fmt/format.h>

namespace amalgam::detail {
namespace {

constexpr std::string_view tls_suffix = "+tls";

}  // namespace

failure wrong_uri(const uri& where, status why, std::string_view what, std::string_view example) {
    return {why, fmt::format("uri \"{}\": {}; example: {}", to_string(where), what, example)};
}

result<wire_trust> take_trust(uri& where) {
    wire_trust found;
    const std::string scheme = where.scheme + "+" + where.protocol;
    found.tls = where.protocol.ends_with(tls_suffix);
    if (found.tls) where.protocol.resize(where.protocol.size() - tls_suffix.size());
    if (where.option(credentials_option) && !found.tls)
        return failure{{errc::invalid},
                       fmt::format("{0}:// does not encrypt and has no use for credentials, "
                                   "expected {0}+tls://",
                                   scheme)};
    if (where.option("insecure") && found.tls)
        return failure{{errc::invalid},
                       fmt::format("{}:// lets in nobody without keys and has no use for insecure, "
                                   "expected no such option",
                                   scheme)};
    const auto said = where.option(trusted_wire_option);
    if (!said) return found;
    if (*said != "yes" && *said != "no")
        return failure{{errc::invalid},
                       fmt::format("trusted_wire is \"{}\", but must be yes or no", *said)};
    if (!found.tls)
        return failure{{errc::invalid},
                       fmt::format("{0}:// trusts the wire anyway and has no use for trusted_wire, "
                                   "expected {0}+tls://, or no such option",
                                   scheme)};
    found.trusted_wire = *said == "yes";
    where = without_option(std::move(where), trusted_wire_option);
    return found;
}

uri introduction_uri(const uri& where) {
    uri tcp = where;
    tcp.scheme = "tcp";
    tcp.protocol = where.protocol.ends_with(tls_suffix) ? "tls" : "";
    tcp.device.clear();
    tcp.name.clear();
    return tcp;
}

failure retold(const uri& where, failure why, std::string_view example) {
    const std::size_t what = why.sentence.find("\": ");
    const std::size_t end = why.sentence.rfind("; example: ");
    if (what == std::string::npos || end == std::string::npos || end < what) return why;
    const std::string said = why.sentence.substr(what + 3, end - what - 3);
    return wrong_uri(where, why.what, said, example);
}

}  // namespace amalgam::detail

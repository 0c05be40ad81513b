#include "fabric/packets/introduction.hpp"

#include <utility>

#include <fmt/format.h>

namespace amalgam::detail {

failure wrong_uri(const uri& where, status why, std::string_view what, std::string_view example) {
    return {why, fmt::format("uri \"{}\": {}; example: {}", to_string(where), what, example)};
}

uri introduction_uri(const uri& where) {
    uri tcp = where;
    tcp.scheme = "tcp";
    tcp.protocol.clear();
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

#include "flow/launcher/rank_message.hpp"

#include <sstream>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>

#include "flow/launcher/address_exchange.hpp"

namespace amalgam::detail {

std::string encode_rank_message(std::string_view group, std::size_t replica,
                                const control_message& said) {
    return fmt::format("{} {} {}", group, replica, encode(said));
}

result<rank_message> decode_rank_message(const std::string& text, const flow_config& config) {
    std::istringstream words(text);
    std::string group, line;
    rank_message one;
    words >> group >> one.replica >> std::ws;
    std::getline(words, line);
    while (one.group < config.groups.size() && config.groups[one.group].name != group)
        ++one.group;
    auto said = decode_control(line);
    if (!said || one.group == config.groups.size() ||
        one.replica >= config.groups[one.group].replicas())
        return {
            errc::mismatch,
            fmt::format("one of the processes has another config, because it claims to be "
                        "{}.{}, expected one of {}",
                        printable_name(group.substr(0, 80)), one.replica, list_processes(config))};
    one.said = std::move(said).value();
    return one;
}

}  // namespace amalgam::detail

#include "flow/launcher/run_keys.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include <amalgam/core/uri.hpp>

namespace amalgam::detail {
namespace {

bool has_own_credentials(const uri& where) noexcept {
    return where.option("credentials").has_value();
}

/// As far as its text tells: what a name means is known only where it is opened.
bool may_be_reached(const uri& where) noexcept {
    const bool listens = !where.host.empty() || where.port;
    const bool over_sockets =
        where.scheme == "tcp" || where.scheme == "ucx" || where.scheme == "ofi";
    return over_sockets && listens && !is_loopback_host(where.host);
}

/// The same endpoint, over the form of its transport that encrypts.
uri encrypted(uri where) {
    if (!is_encrypted(where)) where.protocol += where.protocol.empty() ? "tls" : "+tls";
    return where;
}

/// And over the one that does not, which has no use for what only the other takes.
uri plain(uri where) {
    if (is_encrypted(where)) {
        const std::size_t plus = where.protocol.rfind('+');
        where.protocol.resize(plus == std::string::npos ? 0 : plus);
    }
    return without_option(std::move(where), "trusted_wire");
}

template <typename Change>
flow_config changed(flow_config config, Change change) {
    for (group_config& group : config.groups)
        for (std::string& endpoint : group.endpoints) {
            uri where = uri::parse(endpoint);
            if (!may_be_reached(where) || where.option("insecure") || has_own_credentials(where))
                continue;
            endpoint = to_string(change(std::move(where)));
        }
    return config;
}

template <typename Predicate>
bool any_endpoint(const flow_config& config, Predicate is) {
    for (const group_config& group : config.groups)
        for (const std::string& endpoint : group.endpoints)
            if (const auto where = parse_uri(endpoint); where && is(*where)) return true;
    return false;
}

}  // namespace

bool makes_keys(const flow_config& config) {
    return any_endpoint(config, [](const uri& where) {
        return is_encrypted(where) && !has_own_credentials(where);
    });
}

flow_config with_keys(flow_config config) {
    if (config.stand_alone) return config;
    return changed(std::move(config), encrypted);
}

std::string calling_port(const std::string& own, const std::string& endpoint) {
    const uri here = uri::parse(own), there = uri::parse(endpoint);
    const bool is_alike = here.scheme == there.scheme && here.protocol == there.protocol;
    const bool both = has_own_credentials(here) && has_own_credentials(there);
    return client_uri(is_alike && both ? here : there);
}

std::string called_address(const std::vector<std::string>& ports, const std::string& endpoint,
                           const std::string& address) {
    const auto parsed = parse_uri(address);
    if (!parsed || !is_encrypted(*parsed)) return address;
    uri there = without_option(*parsed, "credentials");
    // A lookup goes to the ports of its transport, one after the other.
    const auto may_be_asked = [speaks = transport_of(there)](const std::string& port) {
        return transport_of(uri::parse(port)) == speaks;
    };
    if (std::count_if(ports.begin(), ports.end(), may_be_asked) > 1) {
        const uri port = uri::parse(calling_port(ports.front(), endpoint));
        there.options.push_back(
            {"credentials", std::string(port.option("credentials").value_or(""))});
    }
    return to_string(there);
}

flow_config without_keys(flow_config config) {
    return changed(std::move(config), [](uri where) {
        where = plain(std::move(where));
        where.options.push_back({"insecure", "yes"});
        return where;
    });
}

}  // namespace amalgam::detail

#include "flow/graph/fastflow_config.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <unistd.h>

#include <amalgam/core/detail/absolute_path.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/uri.hpp>

namespace amalgam::detail {
namespace {

constexpr std::string_view example =
    R"({"groups": [{"name": "G1", "endpoint": "localhost:8004"}]})";

std::size_t bytes_of(const sockaddr& one) noexcept {
    if (one.sa_family == AF_INET) return sizeof(in_addr);
    return one.sa_family == AF_INET6 ? sizeof(in6_addr) : 0;
}
const void* address_in(const sockaddr& one) noexcept {
    if (one.sa_family == AF_INET) return &reinterpret_cast<const sockaddr_in&>(one).sin_addr;
    return &reinterpret_cast<const sockaddr_in6&>(one).sin6_addr;
}

bool is_own(const sockaddr& one) {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return false;
    bool found = false;
    for (const ifaddrs* each = all; each != nullptr && !found; each = each->ifa_next)
        found = each->ifa_addr != nullptr && each->ifa_addr->sa_family == one.sa_family &&
                bytes_of(one) != 0 &&
                std::memcmp(address_in(*each->ifa_addr), address_in(one), bytes_of(one)) == 0;
    ::freeifaddrs(all);
    return found;
}

/// As FastFlow has it: by name, by DFF_RUN_HOSTNAME, or by address.
bool is_this_host(const std::string& host) {
    char own[256] = {};
    ::gethostname(own, sizeof own - 1);
    const char* const told = std::getenv("DFF_RUN_HOSTNAME");
    if (host.empty() || is_loopback_host(host) || host == own || (told != nullptr && host == told))
        return true;
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return false;
    const bool own_address = is_own(*found->ai_addr);
    ::freeaddrinfo(found);
    return own_address;
}

/// "node7" of "node7:8004" and of "tcp://node7:8004".
std::string host_of(std::string endpoint) {
    const std::size_t scheme = endpoint.find("://");
    const std::string kind = scheme == std::string::npos ? "" : endpoint.substr(0, scheme);
    if (kind == "shm" || kind == "mpi+static") return {};
    if (scheme != std::string::npos) endpoint = endpoint.substr(scheme + 3);
    const std::size_t colon = endpoint.rfind(':');
    return colon == std::string::npos ? endpoint : endpoint.substr(0, colon);
}

}  // namespace

bool is_fastflow_config(const json_reader& whole) {
    return whole.value().is_object() && whole.has("groups") &&
           whole.at("groups").value().is_array();
}

flow_config read_fastflow_config(const json_reader& whole, std::string_view path) {
    const json_reader groups = whole.at("groups");
    if (groups.value().empty()) groups.unexpected("a list of groups", example);
    std::string protocol;
    if (whole.has("protocol")) protocol = whole.at("protocol").text("a transport", "\"TCP\"");
    const bool ranks = protocol == "MPI" || protocol == "mpi";
    flow_config config;
    config.stand_alone = true;
    const std::string file = absolute_path(std::string(path)).value();
    for (std::size_t i = 0; i != groups.value().size(); ++i) {
        const json_reader group = groups.at(i);
        if (!group.value().is_object() || !group.has("name"))
            group.unexpected("a group with a name", example);
        group_config one;
        one.name = group.at("name").text("a name", "\"G1\"");
        if (one.name.empty() || one.name.find_first_of(",\n\r") != std::string::npos)
            group.at("name").unexpected("a name without commas", "\"G1\"");
        if (config.find(one.name) != nullptr)
            group.fail(
                fmt::format("{}.name is \"{}\", which another group has, expected one of "
                            "each name",
                            group.path(), one.name));
        std::string endpoint;
        if (group.has("endpoint"))
            endpoint = group.at("endpoint").text("a host and a port", "\"node7:8004\"");
        const bool whole_uri = endpoint.find("://") != std::string::npos;
        one.endpoints.push_back(ranks              ? "mpi+static://"
                                : endpoint.empty() ? "shm://"
                                : whole_uri        ? endpoint
                                                   : "tcp://" + endpoint);
        if (std::string host = host_of(endpoint); !ranks && !is_this_host(host)) {
            if (host.starts_with('-'))
                group.at("endpoint").unexpected("a host and a port", "\"node7:8004\"");
            one.hosts.push_back(std::move(host));
        }
        if (group.has("preCmd"))
            one.pre_command = group.at("preCmd").text("a piece of shell", "\"nice -n 5\"");
        one.arguments = {"--DFF_Config=" + file, "--DFF_GName=" + one.name};
        config.groups.push_back(std::move(one));
    }
    return config;
}

}  // namespace amalgam::detail

#include <cctype>
#include <cstdint>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include <amalgam/core/json_checker.hpp>
#include <amalgam/core/uri.hpp>

#include "groups.hpp"

namespace ff::detail {
namespace {

using json = nlohmann::json;

constexpr dff_defaults usual{1, 65536, 100, 10};
constexpr auto example = R"(example: {"groups": [{"name": "G1", "endpoint": "localhost:8004"}]})";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw std::runtime_error(path + ": " + why);
}

std::string lower(std::string text) {
    for (char& c : text)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

/// For a sentence; not all of it if it is long.
std::string shown(const json& given) {
    const std::string text = given.dump();
    return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

std::string text_of(const json& group, const char* key, const std::string& path) {
    if (!group.contains(key)) return {};
    if (!group[key].is_string())
        refuse(path, std::string(key) + " is " + shown(group[key]) + ", expected text in quotes");
    return group[key].get<std::string>();
}

/// "64k": bytes, with k, m or g. Also a number.
std::size_t bytes_of(const json& given, const std::string& path) {
    const std::string text = given.is_number_unsigned() ? std::to_string(given.get<std::size_t>())
                             : given.is_string()        ? lower(given.get<std::string>())
                                                        : "";
    std::size_t digits = 0;
    while (digits < text.size() && digits < 15 &&
           std::isdigit(static_cast<unsigned char>(text[digits])))
        ++digits;
    const std::string unit = text.substr(digits);
    const int shift = unit == "k" ? 10 : unit == "m" ? 20 : unit == "g" ? 30 : 0;
    const std::size_t count =
        digits == 0 ? 0 : static_cast<std::size_t>(std::stoull(text.substr(0, digits)));
    if (digits == 0 || (shift == 0 && unit != "") || count > (SIZE_MAX >> shift))
        refuse(path, "batchByteSize is " + shown(given) +
                         ", expected bytes, with k, m or g if you like; example: \"64k\"");
    return count << shift;
}

std::size_t count_of(const json& group, const char* key, int fallback, const std::string& path) {
    if (!group.contains(key)) return static_cast<std::size_t>(fallback < 1 ? 1 : fallback);
    const json& given = group[key];
    if (!given.is_number_integer() || given.get<long long>() < 1 ||
        given.get<long long>() > 1000000)
        refuse(path, std::string(key) + " is " + shown(given) +
                         ", expected a number from 1 to 1000000; example: 10");
    return given.get<std::size_t>();
}

/// The URI of "host:port" over the transport that `protocol` names. `insecure`: whoever reaches it
/// may connect.
std::string address_of(const std::string& endpoint, const std::string& protocol, bool insecure,
                       std::size_t rank, const std::string& name, const std::string& path) {
    std::string text;
    if (endpoint.find("://") != std::string::npos) {
        text = endpoint;
    } else if (protocol == "mpi" || protocol == "mpi+static") {
        text = "mpi+static://" + std::to_string(rank);
    } else {
        const std::size_t colon = endpoint.rfind(':');
        if (colon == std::string::npos || colon == 0 || colon + 1 == endpoint.size())
            refuse(path, "group " + name + " has the endpoint \"" + endpoint +
                             "\", expected a host and a port; example: \"node7:8004\"");
        if (protocol == "shm")
            text = "shm://dff-" + name + endpoint.substr(colon).replace(0, 1, "-");
        else
            text = protocol + "://" + endpoint + (insecure ? "?insecure=yes" : "");
    }
    const auto parsed = amalgam::parse_uri(text);
    if (!parsed) refuse(path, "group " + name + ": " + std::string(parsed.sentence()));
    return amalgam::to_string(*parsed);
}

}  // namespace

group_config load_group_config(const std::string& path, const dff_defaults& defaults) {
    std::ifstream file(path);
    if (!file) refuse(path, "cannot be opened, expected FastFlow's configuration file");
    amalgam::json_checker<json> checker;
    json whole;
    try {
        whole = json::parse(file, std::ref(checker));
    } catch (const amalgam::too_many_json_levels&) {
        refuse(path, "has more than " + std::to_string(amalgam::most_json_levels) +
                         " lists and objects in each other, expected fewer; " + example);
    } catch (const json::exception& wrong) {
        refuse(path, std::string("is no JSON (") + wrong.what() + ")");
    }
    if (checker.repeated_key())
        refuse(path, "has the key " + shown(*checker.repeated_key()) +
                         " twice in one object, expected once; " + example);
    if (!whole.is_object() || !whole.contains("groups") || !whole["groups"].is_array() ||
        whole["groups"].empty())
        refuse(path, std::string("has no list of groups; ") + example);
    std::string protocol = lower(text_of(whole, "protocol", path));
    if (protocol.empty()) protocol = "tcp";
    group_config config;
    if (whole.contains("joinSeconds")) {
        const json& given = whole["joinSeconds"];
        if (!given.is_number() || given.get<double>() <= 0 || given.get<double>() > 86400)
            refuse(path, "joinSeconds is " + shown(given) + ", expected seconds; example: 60");
        config.join_seconds = given.get<double>();
    }
    bool insecure = false;
    if (whole.contains("insecure")) {
        if (!whole["insecure"].is_boolean())
            refuse(path, "insecure is " + shown(whole["insecure"]) +
                             ", expected true or false; example: true");
        insecure = whole["insecure"].get<bool>();
    }
    for (const json& group : whole["groups"]) {
        group_settings one;
        if (!group.is_object()) refuse(path, "has a group that is no object");
        one.name = text_of(group, "name", path);
        if (one.name.empty()) refuse(path, "has a group without a name");
        if (config.find(one.name) != nullptr) refuse(path, "has two groups named " + one.name);
        const std::string endpoint = text_of(group, "endpoint", path);
        const bool none = endpoint.empty() && protocol != "mpi";  // A group that only sends.
        if (!none)
            one.address =
                address_of(endpoint, protocol, insecure, config.groups.size(), one.name, path);
        one.thread_mapping = text_of(group, "threadMapping", path);
        one.batch_size = count_of(group, "batchSize", defaults.batch_size, path);
        one.batch_bytes = group.contains("batchByteSize") ? bytes_of(group["batchByteSize"], path)
                                                          : defaults.batch_bytes;
        one.on_the_fly = count_of(group, "messageOTF", defaults.on_the_fly, path);
        one.internal_on_the_fly =
            count_of(group, "internalMessageOTF", defaults.internal_on_the_fly, path);
        one.asks_on_the_fly = group.contains("messageOTF") ||
                              group.contains("internalMessageOTF") ||
                              defaults.on_the_fly != usual.on_the_fly ||
                              defaults.internal_on_the_fly != usual.internal_on_the_fly;
        config.groups.push_back(std::move(one));
    }
    return config;
}

}  // namespace ff::detail

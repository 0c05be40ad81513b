#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/flow/config.hpp>

#include "core/text/json_reader.hpp"
#include "flow/graph/fastflow_config.hpp"

namespace amalgam {
namespace {

using detail::json_reader;
using json = json_reader::json;

constexpr std::string_view group_example =
    R"({"groups": {"G1": {"endpoint": "tcp://127.0.0.1:0"}}})";

std::string read_endpoint(const json_reader& from) {
    std::string text = from.text("a URI", R"("tcp://127.0.0.1:0")");
    const auto parsed = parse_uri(text);
    if (!parsed) from.fail(fmt::format("{}: {}", from.path(), parsed.sentence()));
    const bool listens = parsed->scheme != "tcp" || !parsed->host.empty() || parsed->port;
    if (!listens) {
        from.fail(
            fmt::format("{} is \"{}\", which does not listen, expected an address; "
                        "example: \"tcp://127.0.0.1:0\"",
                        from.path(), text));
    }
    return text;
}

void read_endpoints(const json_reader& group, group_config& into) {
    if (!group.has("endpoint")) {
        group.fail(
            fmt::format("{}.endpoint is missing, expected a URI; "
                        "example: \"tcp://127.0.0.1:0\"",
                        group.path()));
    }
    const json_reader given = group.at("endpoint");
    const bool has_replicas = group.has("replicas");
    const auto replicas = static_cast<std::size_t>(
        has_replicas ? group.at("replicas").number(1, flow_config::max_replicas, 2) : 1);
    if (given.value().is_array()) {
        const std::size_t count = given.value().size();
        if (count == 0 || count > flow_config::max_replicas)
            given.unexpected("a URI, or a list of them", R"(["shm://g2a", "shm://g2b"])");
        for (std::size_t i = 0; i < count; ++i)
            into.endpoints.push_back(read_endpoint(given.at(i)));
        if (has_replicas && replicas != count) {
            group.fail(fmt::format("{}.replicas is {}, expected {}: as many as it has endpoints",
                                   group.path(), replicas, count));
        }
        return;
    }
    const std::string one = read_endpoint(given);
    if (replicas > 1 && has_fixed_address(one)) {
        given.fail(
            fmt::format("{0} is \"{1}\" for {2} replicas, expected a list of {2}, or one from "
                        "which each gets its own address; example: \"tcp://127.0.0.1:0\"",
                        given.path(), one, replicas));
    }
    into.endpoints.assign(replicas, one);
}

void read_env(const json_reader& from, group_config& into) {
    if (!from.value().is_object())
        from.unexpected("an object of strings", R"({"AMALGAM_LOG": "info"})");
    for (const auto& [key, ignored] : from.value().items()) {
        if (key.empty() || key.find('=') != std::string::npos) {
            from.fail(fmt::format(
                "{} has a variable named \"{}\", expected a name without =", from.path(), key));
        }
        const json_reader one = from.at(key);
        std::string value = one.text("a string", "\"info\"");
        if (value.find('\0') != std::string::npos) one.unexpected("a string", "\"info\"");
        into.env.emplace_back(key, std::move(value));
    }
}

std::string read_host(const json_reader& from) {
    std::string name = from.text("a host that ssh knows, or a list of them", "\"node7\"");
    // ssh would take a leading dash as an option.
    const bool good =
        !name.starts_with('-') &&
        std::none_of(name.begin(), name.end(), [](unsigned char c) { return c <= ' '; });
    if (!good) from.unexpected("a host that ssh knows", "\"me@node7\"");
    return name;
}

void read_hosts(const json_reader& given, group_config& into) {
    if (!given.value().is_array()) {
        into.hosts.assign(into.replicas(), read_host(given));
        return;
    }
    for (std::size_t i = 0; i < given.value().size(); ++i)
        into.hosts.push_back(read_host(given.at(i)));
    if (into.hosts.size() != into.replicas()) {
        given.fail(fmt::format("{} lists {} hosts, expected {}: one for each replica", given.path(),
                               into.hosts.size(), into.replicas()));
    }
}

void read_arguments(const json_reader& given, group_config& into) {
    if (!given.value().is_array()) given.unexpected("a list of texts", R"(["--verbose"])");
    for (std::size_t i = 0; i < given.value().size(); ++i) {
        into.arguments.push_back(given.at(i).text("a text", "\"--verbose\""));
        if (into.arguments.back().find('\0') != std::string::npos)
            given.at(i).unexpected("a text", "\"--verbose\"");
    }
}

group_config read_group(const json_reader& groups, const std::string& name) {
    // Dots separate group and replica; commas separate names in --view.
    const bool good_name = !name.empty() && name.find_first_of(". ,=\"") == std::string::npos &&
                           std::none_of(name.begin(), name.end(), detail::is_control);
    if (!good_name) {
        groups.fail(
            fmt::format("groups has a group named \"{}\", expected a name without spaces, "
                        "dots, commas, quotes, equal signs and control characters; example: G1",
                        name));
    }
    const json_reader group = groups.at(name);
    group.expect_object({"endpoint", "replicas", "threads", "env", "host", "arguments", "preCmd"},
                        R"({"endpoint": "shm://g1"})");
    group_config read;
    read.name = name;
    if (group.has("threads")) {
        read.threads =
            static_cast<unsigned>(group.at("threads").number(1, flow_config::max_threads, 2));
    }
    read_endpoints(group, read);
    if (group.has("env")) read_env(group.at("env"), read);
    if (group.has("host")) read_hosts(group.at("host"), read);
    if (group.has("arguments")) read_arguments(group.at("arguments"), read);
    if (group.has("preCmd"))
        read.pre_command = group.at("preCmd").text("a piece of shell", "\"taskset -c 0-3\"");
    return read;
}

void check_endpoints_differ(const json_reader& groups, const flow_config& config) {
    std::vector<std::pair<std::string, std::string>> taken;  // Canonical URI, label.
    for (const group_config& group : config.groups) {
        for (std::size_t i = 0; i < group.replicas(); ++i) {
            if (!has_fixed_address(group.endpoints[i])) continue;
            std::string canonical = group.host(i) + " " + to_string(uri::parse(group.endpoints[i]));
            for (const auto& [uri_text, label] : taken) {
                if (uri_text != canonical) continue;
                groups.fail(
                    fmt::format("groups.{}.endpoint is \"{}\", which {} already uses, "
                                "expected a unique address",
                                group.name, group.endpoints[i], label));
            }
            taken.emplace_back(std::move(canonical), process_label(group, i));
        }
    }
}

flow_config read_config(const json_reader& from) {
    from.expect_object({"groups", "standAlone"}, group_example);
    if (!from.has("groups"))
        from.fail(fmt::format("groups is missing, expected an object; example: {}", group_example));
    const json_reader groups = from.at("groups");
    if (!groups.value().is_object() || groups.value().empty()) {
        groups.unexpected("an object with at least one group",
                          R"({"G1": {"endpoint": "shm://g1"}})");
    }
    flow_config config;
    if (from.has("standAlone")) config.stand_alone = from.at("standAlone").truth(true);
    for (const auto& [name, ignored] : groups.value().items())
        config.groups.push_back(read_group(groups, name));
    check_endpoints_differ(groups, config);
    return config;
}

}  // namespace

const group_config* flow_config::find(std::string_view name) const noexcept {
    for (const group_config& group : groups)
        if (group.name == name) return &group;
    return nullptr;
}

result<flow_config> parse_flow_config(std::string_view text, std::string_view origin) {
    try {
        const json document = json_reader::parse(text, origin, group_example);
        const json_reader whole(document, "", origin);
        if (detail::is_fastflow_config(whole)) return detail::read_fastflow_config(whole, origin);
        return read_config(whole);
    } catch (const error& wrong) {
        return {wrong.code().code, wrong.what()};
    }
}

result<flow_config> load_flow_config(const std::string& path) {
    const auto read = detail::read_file(path, detail::most_config_bytes);
    if (!read)
        return {read.code().code,
                fmt::format("the config \"{}\" {}, expected a JSON file that names each group's "
                            "endpoint; example: {}",
                            path, read.sentence(), group_example)};
    const std::string_view text(reinterpret_cast<const char*>(read->data()), read->size());
    return parse_flow_config(text, path);
}

std::string to_json(const flow_config& config) {
    json groups = json::object();
    for (const group_config& group : config.groups) {
        json one = {{"endpoint", group.endpoints}};
        if (group.threads != 0) one["threads"] = group.threads;
        if (!group.env.empty()) {
            json env = json::object();
            for (const auto& [key, value] : group.env)
                env[key] = value;
            one["env"] = std::move(env);
        }
        if (!group.hosts.empty()) one["host"] = group.hosts;
        if (!group.arguments.empty()) one["arguments"] = group.arguments;
        if (!group.pre_command.empty()) one["preCmd"] = group.pre_command;
        groups[group.name] = std::move(one);
    }
    json whole{{"groups", std::move(groups)}};
    if (config.stand_alone) whole["standAlone"] = true;
    return whole.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string process_label(const group_config& group, std::size_t replica) {
    return process_label(group.name, replica, group.replicas());
}

std::string process_label(std::string_view group, std::size_t replica, std::size_t replicas) {
    return replicas == 1 ? std::string(group) : fmt::format("{}.{}", group, replica);
}

bool has_fixed_address(std::string_view endpoint) {
    auto parsed = parse_uri(endpoint);
    if (!parsed) return true;
    if (parsed->scheme == "shm" || parsed->scheme == "loop") return !parsed->name.empty();
    if (parsed->scheme == "tcp") return parsed->port.value_or(0) != 0;
    if (parsed->scheme == "mpi" && parsed->host.empty()) return false;
    return parsed->port != 0;
}

}  // namespace amalgam

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/flow/config.hpp>

namespace amalgam {
namespace {

using json = nlohmann::ordered_json;

constexpr std::string_view group_example =
    R"({"groups": {"G1": {"endpoint": "tcp://127.0.0.1:0"}}})";

std::string shown(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
}

/// The JSON parser silently keeps one of two equal keys; this finds the first repeat.
class repeated_key_finder {
public:
    bool operator()(json::parse_event_t event, const json& parsed) {
        using kind = json::parse_event_t;
        if (event == kind::object_start) {
            keys_.emplace_back();
        } else if (event == kind::object_end) {
            keys_.pop_back();
        } else if (event == kind::key && repeated.empty()) {
            auto key = parsed.get<std::string>();
            if (!keys_.back().insert(key).second) repeated = key;
        }
        return true;
    }
    std::string repeated;

private:
    std::vector<std::set<std::string>> keys_;
};

/// Walks the document and throws error{invalid} at the first mistake.
class reader {
public:
    explicit reader(std::string_view origin) : origin_(origin) {}

    flow_config read(std::string_view text) const {
        json document = parse(text);
        expect(document.is_object(), "the config", document, "an object", group_example);
        check_keys(document, "", {"groups"});
        flow_config config;
        if (!document.contains("groups"))
            fail(fmt::format("groups is missing, expected an object; example: {}", group_example));
        const json& groups = document["groups"];
        expect(groups.is_object() && !groups.empty(), "groups", groups,
               "an object with at least one group", R"({"G1": {"endpoint": "shm://g1"}})");
        for (const auto& [name, group] : groups.items())
            config.groups.push_back(read_group(name, group));
        check_endpoints_differ(config);
        return config;
    }

private:
    [[noreturn]] void fail(const std::string& sentence) const {
        throw error(errc::invalid, fmt::format("{}: {}", origin_, sentence));
    }
    void expect(bool good, std::string_view path, const json& found, std::string_view expected,
                std::string_view example) const {
        if (good) return;
        fail(fmt::format("{} is {}, expected {}; example: {}", path, shown(found), expected,
                         example));
    }

    json parse(std::string_view text) const {
        repeated_key_finder finder;
        json document;
        try {
            document = json::parse(text, [&finder](int, json::parse_event_t event, json& parsed) {
                return finder(event, parsed);
            });
        } catch (const json::parse_error& wrong) {
            auto before = text.substr(0, wrong.byte == 0 ? 0 : wrong.byte - 1);
            auto line = 1 + std::count(before.begin(), before.end(), '\n');
            fail(fmt::format("line {} is not JSON, expected an object; example: {}", line,
                             group_example));
        } catch (const json::out_of_range&) {
            fail(fmt::format("it has a number that is too large, expected an object; example: {}",
                             group_example));
        }
        if (!finder.repeated.empty())
            fail(fmt::format("the key \"{}\" appears twice in one object, expected once",
                             detail::printable_name(finder.repeated)));
        return document;
    }

    void check_keys(const json& object, std::string_view path,
                    const std::vector<std::string_view>& known) const {
        for (const auto& [key, value] : object.items())
            if (std::find(known.begin(), known.end(), key) == known.end())
                fail(fmt::format("{}{}{} is not known, expected one of: {}", path,
                                 path.empty() ? "" : ".", detail::printable_name(key),
                                 fmt::join(known, ", ")));
    }

    group_config read_group(const std::string& name, const json& group) const {
        std::string path = "groups." + name;
        // Dots separate group and replica; commas separate names in --view.
        bool good_name = !name.empty() && name.find_first_of(". ,=\"") == std::string::npos &&
                         std::none_of(name.begin(), name.end(), detail::is_control);
        if (!good_name)
            fail(
                fmt::format("groups has a group named \"{}\", expected a name without spaces, "
                            "dots, commas, quotes, equal signs and control characters; example: G1",
                            detail::printable_name(name)));
        expect(group.is_object(), path, group, "an object", R"({"endpoint": "shm://g1"})");
        check_keys(group, path, {"endpoint", "replicas", "threads", "env", "host"});

        group_config read;
        read.name = name;
        if (group.contains("threads"))
            read.threads = static_cast<unsigned>(
                natural(group["threads"], path + ".threads", flow_config::max_threads));
        read_endpoints(group, path, read);
        if (group.contains("env")) read_env(group["env"], path + ".env", read);
        if (group.contains("host")) read_hosts(group["host"], path + ".host", read);
        return read;
    }

    void read_hosts(const json& given, const std::string& path, group_config& into) const {
        if (!given.is_array()) {
            into.hosts.assign(into.replicas(), host(given, path));
            return;
        }
        for (const json& one : given)
            into.hosts.push_back(host(one, path));
        if (into.hosts.size() != into.replicas())
            fail(fmt::format("{} lists {} hosts, expected {}: one for each replica", path,
                             into.hosts.size(), into.replicas()));
    }

    std::string host(const json& value, const std::string& path) const {
        expect(value.is_string(), path, value, "a host that ssh knows, or a list of them",
               "\"node7\"");
        auto name = value.get<std::string>();
        // ssh would take a leading dash as an option.
        bool good =
            !name.starts_with('-') &&
            std::none_of(name.begin(), name.end(), [](unsigned char c) { return c <= ' '; });
        expect(good, path, value, "a host that ssh knows", "\"me@node7\"");
        return name;
    }

    std::uint64_t natural(const json& value, const std::string& path, std::uint64_t most) const {
        expect(value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                   value.get<std::uint64_t>() <= most,
               path, value, fmt::format("a number from 1 to {}", most), "2");
        return value.get<std::uint64_t>();
    }

    void read_endpoints(const json& group, const std::string& path, group_config& into) const {
        if (!group.contains("endpoint"))
            fail(
                fmt::format("{}.endpoint is missing, expected a URI; "
                            "example: \"tcp://127.0.0.1:0\"",
                            path));
        const json& given = group["endpoint"];
        bool has_replicas = group.contains("replicas");
        std::uint64_t replicas =
            has_replicas ? natural(group["replicas"], path + ".replicas", flow_config::max_replicas)
                         : 1;
        if (given.is_array()) {
            expect(!given.empty() && given.size() <= flow_config::max_replicas, path + ".endpoint",
                   given, "a URI, or a list of them", R"(["shm://g2a", "shm://g2b"])");
            for (const json& one : given)
                into.endpoints.push_back(endpoint(one, path + ".endpoint"));
            if (has_replicas && replicas != into.endpoints.size())
                fail(fmt::format("{}.replicas is {}, expected {}: as many as it has endpoints",
                                 path, replicas, into.endpoints.size()));
            return;
        }
        std::string one = endpoint(given, path + ".endpoint");
        if (replicas > 1 && has_fixed_address(one))
            fail(fmt::format(
                "{0}.endpoint is \"{1}\" for {2} replicas, expected a list of {2}, or one from "
                "which each gets its own address; example: \"tcp://127.0.0.1:0\"",
                path, one, replicas));
        into.endpoints.assign(replicas, one);
    }

    std::string endpoint(const json& value, const std::string& path) const {
        expect(value.is_string(), path, value, "a URI", R"("tcp://127.0.0.1:0")");
        auto parsed = parse_uri(value.get<std::string>());
        if (!parsed) fail(fmt::format("{}: {}", path, parsed.sentence()));
        bool listens = parsed->scheme != "tcp" || !parsed->host.empty() || parsed->port;
        if (!listens)
            fail(
                fmt::format("{} is \"{}\", which does not listen, expected an address; "
                            "example: \"tcp://127.0.0.1:0\"",
                            path, value.get<std::string>()));
        return value.get<std::string>();
    }

    void read_env(const json& env, const std::string& path, group_config& into) const {
        expect(env.is_object(), path, env, "an object of strings", R"({"AMALGAM_LOG": "info"})");
        for (const auto& [key, value] : env.items()) {
            std::string at = path + "." + key;
            if (key.empty() || key.find('=') != std::string::npos)
                fail(fmt::format("{} has a variable named \"{}\", expected a name without =", path,
                                 key));
            expect(value.is_string() && value.get<std::string>().find('\0') == std::string::npos,
                   at, value, "a string", "\"info\"");
            into.env.emplace_back(key, value.get<std::string>());
        }
    }

    void check_endpoints_differ(const flow_config& config) const {
        std::vector<std::pair<std::string, std::string>> taken;  // Canonical URI, label.
        for (const group_config& group : config.groups) {
            for (std::size_t i = 0; i < group.replicas(); ++i) {
                if (!has_fixed_address(group.endpoints[i])) continue;
                std::string canonical =
                    group.host(i) + " " + to_string(uri::parse(group.endpoints[i]));
                for (const auto& [uri_text, label] : taken)
                    if (uri_text == canonical)
                        fail(
                            fmt::format("groups.{}.endpoint is \"{}\", which {} already uses, "
                                        "expected a unique address",
                                        group.name, group.endpoints[i], label));
                taken.emplace_back(std::move(canonical), process_label(group, i));
            }
        }
    }

    std::string_view origin_;
};

}  // namespace

const group_config* flow_config::find(std::string_view name) const noexcept {
    for (const group_config& group : groups)
        if (group.name == name) return &group;
    return nullptr;
}

result<flow_config> parse_flow_config(std::string_view text, std::string_view origin) {
    try {
        return reader(origin).read(text);
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
        groups[group.name] = std::move(one);
    }
    return json{{"groups", std::move(groups)}}.dump(-1, ' ', false, json::error_handler_t::replace);
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

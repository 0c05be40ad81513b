#include "rpc/statistics/statistics_file.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <unistd.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/json_text.hpp>
#include <amalgam/core/detail/whole_file.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam {

namespace detail {

namespace {

/// A number of JSON: never "inf" or "nan".
std::string json_of(const value_summary& value) {
    return fmt::format(
        R"({{"num": {}, "min": {}, "max": {}, "sum": {}, "mean": {}, "variance": {}}})", value.num,
        value.min, value.max, value.sum, value.mean, value.variance);
}

std::string json_of(const call_path& path, std::uint64_t failures) {
    std::string json = R"({"procedure": )";
    append_json_string(json, path.procedure);
    json += fmt::format(R"(, "provider": {}, "peer": )", path.provider);
    append_json_string(json, path.peer);
    if (!path.parent.empty()) {
        json += R"(, "parent": )";
        append_json_string(json, path.parent);
        json += fmt::format(R"(, "parent_provider": {})", path.parent_provider);
    }
    return json + fmt::format(R"(, "failures": {})", failures);
}

template <typename Row, typename Numbers>
std::string list_of(const std::vector<Row>& rows, Numbers numbers) {
    std::string json = "[";
    for (const Row& each : rows) {
        if (json.size() > 1) json += ", ";
        json += json_of(each.path, each.failures) + numbers(each) + "}";
    }
    return json + "]";
}

void replace(std::string& in, std::string_view what, std::string_view by) {
    for (std::size_t at = in.find(what); at != in.npos; at = in.find(what, at + by.size()))
        in.replace(at, what.size(), by);
}

std::string name_of_host() {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace

std::string file_of_this_process(std::string_view file, std::string_view engine) {
    std::string name(file);
    replace(name, "{pid}", std::to_string(::getpid()));
    replace(name, "{host}", name_of_host());
    std::string in_a_path(engine);
    std::replace(in_a_path.begin(), in_a_path.end(), '/', '_');
    replace(name, "{name}", in_a_path);
    return name;
}

void write_statistics_file(const std::string& file, std::string_view text) {
    const std::string line = std::string(text) + '\n';
    const write_fault why =
        write_whole_file(file, as_bytes_of(line),
                         {.mode = 0600, .follows_links = true, .special = special_file::refused});
    if (!why) return;
    throw error(status{errc::invalid, why.native},
                fmt::format("cannot write the statistics to \"{}\" ({}), expected a file in a "
                            "folder of yours with room for it; example: "
                            "/tmp/statistics.{{host}}.{{pid}}.json",
                            file, why.text));
}

}  // namespace detail

std::string to_json(const engine_statistics& all) {
    const auto of_call = [](const made_calls& each) {
        return R"(, "took_ns": )" + detail::json_of(each.took);
    };
    const auto of_handler = [](const handled_calls& each) {
        return fmt::format(R"(, "waited_ns": {}, "ran_ns": {})", detail::json_of(each.waited),
                           detail::json_of(each.ran));
    };
    const auto of_transfer = [](const made_transfers& each) {
        return fmt::format(R"(, "bytes": {}, "took_ns": {})", detail::json_of(each.bytes),
                           detail::json_of(each.took));
    };
    return fmt::format(
        R"({{"calls": {}, "handlers": {}, "transfers": {}}})", detail::list_of(all.calls, of_call),
        detail::list_of(all.handlers, of_handler), detail::list_of(all.transfers, of_transfer));
}

}  // namespace amalgam

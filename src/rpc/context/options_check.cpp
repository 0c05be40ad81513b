#include "rpc/context/options_check.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <amalgam/core/detail/printable.hpp>

namespace amalgam::detail {

namespace {

template <typename... Parts>
[[noreturn]] void refuse(fmt::format_string<Parts...> sentence, Parts&&... parts) {
    throw error(errc::invalid,
                printable_name(fmt::format(sentence, std::forward<Parts>(parts)...)));
}

const pool_options* find_pool(const engine_options& options, std::string_view name) {
    const auto at = std::find_if(options.pools.begin(), options.pools.end(),
                                 [name](const pool_options& each) { return each.name == name; });
    return at == options.pools.end() ? nullptr : &*at;
}

bool lists(const stream_options& stream, std::string_view pool) {
    return std::find(stream.pools.begin(), stream.pools.end(), pool) != stream.pools.end();
}

/// Whether it has its own pool, of the same name.
bool has_own_pool(const engine_options& options, const stream_options& stream) {
    return stream.pools.empty() || &stream == &options.streams.each.front();
}

std::vector<std::string> all_names(const engine_options& options) {
    std::vector<std::string> names;
    for (const pool_options& each : options.pools)
        names.push_back(each.name);
    for (const stream_options& each : options.streams.each) {
        if (has_own_pool(options, each)) names.push_back(each.name);
    }
    return names;
}

void check_pool(const engine_options& options, const pool_options& pool) {
    if (pool.name.empty()) {
        refuse(
            "pools has a pool named \"\", expected a name; example: {{\"io\": "
            "{{\"kind\": \"shared_fifo\"}}}}");
    }
    if (pool.levels < 1 || pool.levels > 256) {
        refuse("pools.{}.levels is {}, expected a number from 1 to 256; example: 4", pool.name,
               pool.levels);
    }
    const auto served =
        std::count_if(options.streams.each.begin(), options.streams.each.end(),
                      [&](const stream_options& each) { return lists(each, pool.name); });
    if (served == 0) {
        refuse(
            "no stream serves pools.{0}, expected a stream that lists it; example: \"streams\": "
            "[{{}}, {{\"pools\": [\"{0}\"]}}]",
            pool.name);
    }
    if (served > 1 && pool.kind == pool_kind::fifo) {
        refuse(
            "pools.{}.kind is fifo, but {} streams list the pool, expected a kind that several "
            "streams can serve; example: \"shared_fifo\"",
            pool.name, served);
    }
}

void check_stream(const engine_options& options, std::size_t index) {
    const stream_options& stream = options.streams.each[index];
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < stream.pools.size(); ++i) {
        const std::string& name = stream.pools[i];
        if (find_pool(options, name) == nullptr) {
            std::vector<std::string_view> known;
            for (const pool_options& each : options.pools)
                known.push_back(each.name);
            refuse("streams[{}].pools[{}] is \"{}\", expected one of pools: {}", index, i, name,
                   known.empty()
                       ? "none defined; example: \"pools\": {\"io\": {\"kind\": \"shared_fifo\"}}"
                       : fmt::format("{}", fmt::join(known, ", ")));
        }
        if (!seen.insert(name).second) {
            refuse("streams[{}].pools has \"{}\" twice, expected each pool once; example: [\"{}\"]",
                   index, name, name);
        }
    }
    if (stream.cpu >= 0 && !stream.cpus.empty()) {
        refuse(
            "streams[{}] has cpu {} and cpus {}, expected one of them; example: {{\"cpus\": "
            "\"0-3\"}}",
            index, stream.cpu, stream.cpus.text());
    }
    if (index == 0 && !stream.cpus.empty() && options.progress.by == progress_by::caller) {
        refuse(
            "streams[0].cpus is \"{}\", expected none, as progress.by is caller and the thread is "
            "the caller's; example: {{\"cpus\": \"\"}}",
            stream.cpus.text());
    }
    if (index == 0 && stream.cpu >= 0 && options.progress.by == progress_by::caller) {
        refuse(
            "streams[0].cpu is {}, expected -1, as progress.by is caller and the thread is the "
            "caller's; example: {{\"cpu\": -1}}",
            stream.cpu);
    }
}

}  // namespace

void fill_in(engine_options& options) {
    // So that adding it to a clock's time cannot overflow.
    options.ports.silence_limit =
        std::min(options.ports.silence_limit, port_options::longest_limit);
    options.drain =
        std::clamp(options.drain, std::chrono::milliseconds(), port_options::longest_limit);
    options.keepalive.interval = std::min(options.keepalive.interval, port_options::longest_limit);
    options.keepalive.timeout = std::min(options.keepalive.timeout, port_options::longest_limit);
    std::vector<stream_options>& streams = options.streams.each;
    if (streams.empty()) streams.emplace_back();
    if (options.progress.by == progress_by::own_stream && streams.size() == 1 &&
        options.handlers.empty()) {
        streams.emplace_back();
    }
    for (std::size_t i = 0; i < streams.size(); ++i) {
        if (!streams[i].name.empty()) continue;
        streams[i].name = i == 0 ? options.name : fmt::format("{}-{}", options.name, i);
    }
}

std::string handlers_on_first(const engine_options& options, progress_by who) {
    if (who != progress_by::own_stream) return {};
    const stream_options& first = options.streams.each.front();
    std::string_view in = options.handlers;
    if (in.empty()) {
        if (options.streams.each.size() < 2) return {};
        const stream_options& second = options.streams.each[1];
        in = second.pools.empty() ? second.name : second.pools.front();
    }
    if (in != first.name && !lists(first, in)) return {};
    return fmt::format(
        "handlers is \"{}\", which the first stream serves, expected a pool of another stream, as "
        "progress.by is own_stream; example: \"streams\": [{{}}, {{\"name\": \"work\"}}], "
        "\"handlers\": \"work\"",
        in);
}

void check(const engine_options& options) {
    if (options.keepalive.interval.count() < 0) {
        refuse("keepalive.interval is {} ms, expected 0 (off) or more; example: \"10s\"",
               options.keepalive.interval.count());
    }
    if (options.keepalive.timeout.count() < 1) {
        refuse("keepalive.timeout is {} ms, expected 1 ms or more; example: \"20s\"",
               options.keepalive.timeout.count());
    }
    if (options.statistics && options.statistics->max_rows == 0) {
        refuse("statistics.max_rows is 0, expected 1 or more; example: 4096");
    }
    if (std::count(options.interceptors.begin(), options.interceptors.end(), nullptr) != 0) {
        refuse(
            "interceptors contains a null pointer, expected objects; example: "
            "{{std::make_shared<my_interceptor>()}}");
    }
    std::set<std::string> seen;
    for (const std::string& each : all_names(options)) {
        if (!seen.insert(each).second) {
            refuse(
                "pools and streams use the name \"{}\" twice, expected unique names; example: "
                "\"io\"",
                each);
        }
    }
    for (const pool_options& each : options.pools)
        check_pool(options, each);
    for (std::size_t i = 0; i < options.streams.each.size(); ++i)
        check_stream(options, i);
    if (!options.handlers.empty() && !seen.contains(options.handlers)) {
        refuse("handlers is \"{}\", expected one of: {}; or empty, for the first stream's pool",
               options.handlers, fmt::join(all_names(options), ", "));
    }
    if (const std::string wrong = handlers_on_first(options, options.progress.by); !wrong.empty()) {
        refuse("{}", wrong);
    }
}

}  // namespace amalgam::detail

#include "rpc/tracing/slow_calls.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>

namespace amalgam::detail {

void call_times::write(std::byte* to) const noexcept {
    store_le(to, waited);
    store_le(to + 8, handled);
}

std::optional<call_times> call_times::read(const_bytes wire) noexcept {
    if (wire.size() != wire_bytes) return {};
    return call_times{load_le<std::uint64_t>(wire.data()), load_le<std::uint64_t>(wire.data() + 8)};
}

std::optional<std::uint64_t> parse_slow_calls(std::string_view text) noexcept {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, wrong] = std::from_chars(text.data(), end, number);
    const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
    const std::uint64_t factor = unit == "us"   ? 1'000
                                 : unit == "ms" ? 1'000'000
                                 : unit == "s"  ? 1'000'000'000
                                                : 0;
    if (wrong != std::errc{} || factor == 0 || number == 0 ||
        number > std::numeric_limits<std::uint64_t>::max() / factor) {
        return {};
    }
    return number * factor;
}

std::uint64_t slow_call_limit() noexcept {
    static const std::uint64_t limit = []() noexcept -> std::uint64_t {
        const char* const text = std::getenv("AMALGAM_SLOW_CALLS");
        if (text == nullptr || *text == '\0') return 0;
        if (const auto read = parse_slow_calls(text)) return *read;
        log(log_level::warn, "rpc",
            "AMALGAM_SLOW_CALLS is no time above zero, so slow calls are not logged; expected a "
            "number with us, ms or s; example: AMALGAM_SLOW_CALLS=100ms",
            {{"given", text}});
        return 0;
    }();
    return limit;
}

void log_slow_call(const slow_call& what) noexcept {
    const auto ms = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e6; };
    // The server's clock only measures; what a liar tells is at most what is left.
    const std::uint64_t queued = std::min(what.queued, what.whole);
    std::uint64_t left = what.whole - queued;
    const call_times told = what.there.value_or(call_times{});
    const std::uint64_t handled = std::min(told.handled, left);
    left -= handled;
    const std::uint64_t waited = std::min(told.waited, left);
    left -= waited;
    const std::pair<std::uint64_t, const char*> parts[] = {
        {queued, "queued here"},
        {waited, "waiting for a stream there"},
        {handled, "in the handler"},
        {left, what.there ? "on the way, there and back" : "at the peer or on the way"}};
    const char* const mostly = std::max_element(std::begin(parts), std::end(parts))->second;
    try {
        const std::string trace = what.trace.traceparent();
        if (what.there) {
            limited_log(log_level::warn, "rpc", "slow call",
                        {{"procedure", what.procedure},
                         {"peer", what.peer},
                         {"status", what.how.code},
                         {"ms", ms(what.whole)},
                         {"mostly", mostly},
                         {"queued_ms", ms(queued)},
                         {"way_ms", ms(left)},
                         {"waited_ms", ms(waited)},
                         {"handler_ms", ms(handled)},
                         {"trace", trace}});
        } else {
            limited_log(log_level::warn, "rpc", "slow call",
                        {{"procedure", what.procedure},
                         {"peer", what.peer},
                         {"status", what.how.code},
                         {"ms", ms(what.whole)},
                         {"mostly", mostly},
                         {"queued_ms", ms(queued)},
                         {"untold_ms", ms(left)},
                         {"trace", trace}});
        }
    } catch (const std::bad_alloc&) {
        // No line.
    }
}

}  // namespace amalgam::detail

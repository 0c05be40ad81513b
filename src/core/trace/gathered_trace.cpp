#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include <amalgam/core/gathered_trace.hpp>
#include <amalgam/core/status.hpp>

#include "chrome_trace.hpp"
#include "clocks.hpp"
#include "recorded_file.hpp"

namespace amalgam {

namespace {

using namespace detail;

std::vector<recorded_process> open_all(std::span<const std::string> folders, gathered_trace& told) {
    std::vector<recorded_process> all;
    for (const std::string& folder : folders) {
        std::error_code wrong;
        std::filesystem::directory_iterator files(folder, wrong);
        for (; !wrong && files != std::filesystem::directory_iterator(); files.increment(wrong)) {
            if (files->path().extension() != ".amtrace") continue;
            std::string why;
            recorded_process next;
            next.file = recorded_file::open(files->path().string(), why);
            if (next.file != nullptr) {
                all.push_back(std::move(next));
            } else {
                told.unreadable.push_back(fmt::format("{}: {}", files->path().string(), why));
            }
        }
        if (wrong) {
            throw error(errc::invalid,
                        fmt::format("cannot read the folder \"{}\" ({}); expected one that "
                                    "AMALGAM_TRACE named; example: /tmp/trace",
                                    folder, wrong.message()));
        }
    }
    std::sort(all.begin(), all.end(), [](const recorded_process& a, const recorded_process& b) {
        return a.file->header().started_wall < b.file->header().started_wall;
    });
    return all;
}

/// What identifies a process to the reader, and which clock it has.
std::vector<host_clock> introduce(std::vector<recorded_process>& all) {
    std::vector<host_clock> clocks;
    std::unordered_map<std::string, std::size_t> by_boot;
    std::unordered_set<std::uint32_t> pids;
    std::uint32_t spare = std::uint32_t{1} << 22;  // Above all that Linux gives.
    for (recorded_process& each : all) {
        const trace_file_header& header = each.file->header();
        each.told.program = recorded_file::text_of(header.program);
        each.told.host = recorded_file::text_of(header.host);
        each.told.pid = header.pid;
        each.told.dropped = header.dropped.load(std::memory_order_relaxed);
        each.told.unnamed = header.unnamed.load(std::memory_order_relaxed);
        // exec keeps a pid, and hosts have the same ones.
        each.pid = header.pid;
        while (!pids.insert(each.pid).second)
            each.pid = spare++;
        const auto [at, is_new] =
            by_boot.try_emplace(std::string(recorded_file::text_of(header.boot)), clocks.size());
        each.clock = at->second;
        if (is_new) {
            clocks.push_back({.to_wall = is_time(header.started) && header.started_wall >> 62 == 0
                                             ? static_cast<std::int64_t>(header.started_wall) -
                                                   static_cast<std::int64_t>(header.started)
                                             : 0});
        }
    }
    return clocks;
}

}  // namespace

gathered_trace write_chrome_trace(std::span<const std::string> folders, const std::string& file) {
    gathered_trace told;
    std::vector<recorded_process> all = open_all(folders, told);
    if (all.empty()) {
        throw error(
            errc::not_found,
            fmt::format("nothing was recorded{}{}; expected a program of Amalgam that makes "
                        "an engine; example: amalgam trace -- ./server",
                        told.unreadable.empty() ? "" : ": ",
                        told.unreadable.empty() ? "" : told.unreadable.front()));
    }
    std::vector<host_clock> clocks = introduce(all);
    std::unordered_map<std::uint64_t, seen_call> calls;
    std::int64_t start = std::int64_t{1} << 60;
    for (recorded_process& each : all) {
        each.file->for_each([&](const trace_record_head& head, const char* at) {
            ++each.told.records;
            trace_span_bytes span{};
            if (!is_span(head) || !read_record(head, at, span)) return;
            const std::uint64_t id = number_of(id_of(span.id));
            if (id == 0) return;
            const auto kind = static_cast<span_kind>(head.kind);
            if (kind == span_kind::handler) {
                seen_call& call = calls[id];
                call.arrived = std::max<std::uint64_t>(span.begin, 1);
                call.returned = span.end;
                call.server = each.clock;
            } else if (kind == span_kind::call || kind == span_kind::one_way) {
                seen_call& call = calls[id];
                call.sent = std::max<std::uint64_t>(span.middle != 0 ? span.middle : span.begin, 1);
                // A one-way call is never answered, and tells nothing of clocks.
                call.answered = kind == span_kind::call ? span.end : 0;
                call.caller = each.clock;
            }
        });
    }
    clock_differences differences;
    for (const auto& [id, call] : calls)
        compare(differences, call);
    calls.clear();
    align_clocks(clocks, differences);
    for (recorded_process& each : all) {
        const host_clock& clock = clocks[each.clock];
        each.told.clock_offset = std::chrono::nanoseconds(clock.offset);
        each.told.clock_error = std::chrono::nanoseconds(clock.error);
        if (!is_time(each.file->header().started)) continue;
        start =
            std::min(start, static_cast<std::int64_t>(each.file->header().started) + clock.offset);
    }
    trace_output out(file);
    event_writer events(out, start);
    arrow_table arrows;
    for (const recorded_process& each : all)
        write_process(events, each, clocks[each.clock].offset, arrows);
    write_arrows(events, arrows);
    told.events = events.count();
    events.finish();
    for (recorded_process& each : all)
        told.processes.push_back(std::move(each.told));
    return told;
}

}  // namespace amalgam

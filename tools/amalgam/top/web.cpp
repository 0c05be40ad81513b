#include "top/web.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <amalgam/core/status.hpp>

#include "call/shown.hpp"
#include "top/drawing.hpp"

namespace amalgam::tool {
namespace {

page_table as_page_table(const top_table& from) {
    page_table table;
    table.name = from.name;
    table.texts = 0;
    for (const top_column& each : from.columns) {
        table.columns.push_back(each.title);
        // A text behind a number is one of few words.
        if (each.as == shown_as::text && table.texts + 1 == table.columns.size()) ++table.texts;
    }
    for (const auto& row : chosen_rows(from, {})) {
        auto& cells = table.rows.emplace_back();
        for (std::size_t i = 0; i < row.size(); ++i)
            cells.push_back({written(row[i], from.columns[i].as), row[i].number});
    }
    return table;
}

/// Of the table of processes, whose columns begin with process, where, cpu and memory.
/// Peers may tell any number.
std::uint64_t as_bytes(double told) {
    constexpr double most = 1ull << 63;
    return told > 0 ? static_cast<std::uint64_t>(std::min(told, most)) : 0;
}

std::vector<page_process> processes_of(const top_table& from, const numbers_told& told) {
    std::vector<page_process> all;
    for (const auto& row : from.rows) {
        page_process one{.label = row[0].text,
                         .where = row[1].text,
                         .state = "running",
                         .running = true,
                         .processor = row[2].number,
                         .memory = as_bytes(row[3].number)};
        if (told.run) {
            for (const process_status& each : told.run->processes) {
                if (each.label != one.label) continue;
                one.where = each.where;
                one.running = each.running;
                one.state = !each.running ? "ended" : each.answered ? "running" : "silent";
            }
        }
        all.push_back(std::move(one));
    }
    return all;
}

/// Waits for requests, until then.
void wait_until(std::chrono::steady_clock::time_point when, live_page& page, number_source& from) {
    for (;;) {
        for (const page_request& each : page.take_requests()) {
            try {
                page.tell_ults(each.process, from.read_ults(each.process));
            } catch (const error& why) {
                page.tell_ults(each.process, failure{why.code(), shown(why.what(), 8192)});
            }
        }
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(when - std::chrono::steady_clock::now());
        if (left.count() <= 0) return;
        ::pollfd look{page.requests_fd(), POLLIN, 0};
        ::poll(&look, 1, static_cast<int>(left.count()));
    }
}

}  // namespace

std::string title_of(const number_options& whose) {
    if (whose.of_directory()) return "--directory " + shown(whose.directory);
    std::vector<std::string> names;
    for (const std::string& each : whose.uris)
        names.push_back(shown(each));
    return fmt::format("{}", fmt::join(names, " "));
}

page_state state_of(const top_model& model, const numbers_told& told) {
    page_state now;
    if (told.run) now.run = told.run->report();
    for (const top_table& each : model.tables()) {
        if (each.name == "processes")
            now.processes = processes_of(each, told);
        else if (!told.run || (each.name != "nodes" && each.name != "channels"))
            now.tables.push_back(as_page_table(each));
    }
    for (const std::string& each : told.silent) {
        if (told.run) continue;  // Shown by its process.
        const std::size_t colon = std::min(each.find(": "), each.size());
        now.processes.push_back({.label = each.substr(0, colon),
                                 .state = each.substr(std::min(colon + 2, each.size())),
                                 .running = false});
    }
    return now;
}

void show_as_page(number_source& from, const std::string& title, const std::string& address,
                  double interval) {
    using clock = std::chrono::steady_clock;
    top_model model;
    numbers_told told = from.read();  // Whoever asks for what is not there is told so at once.
    live_page page(address,
                   {.title = told.run ? shown(told.run->command) : title, .tells_ults = true});
    page.start();
    fmt::print("the live page is {}\n", page.url());
    std::fflush(stdout);
    page_state now;
    std::string lost;
    for (;;) {
        const clock::time_point next = clock::now() + std::chrono::duration_cast<clock::duration>(
                                                          std::chrono::duration<double>(interval));
        if (lost.empty()) {
            model.take(told, clock::now());
            now = state_of(model, told);
        } else {
            now.state = "lost";
        }
        now.sentence = lost;
        page.show(now);
        wait_until(next, page, from);
        try {
            told = from.read();
            lost.clear();
        } catch (const error& why) {
            lost = shown(why.what(), 8192);
        }
    }
}

}  // namespace amalgam::tool

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "call/shown.hpp"
#include "commands.hpp"
#include "json_output.hpp"
#include "stats/number_source.hpp"
#include "top/drawing.hpp"
#include "top/tables.hpp"
#include "top/web.hpp"
#ifdef AMALGAM_WITH_CURSES
#include "top/screen.hpp"
#endif

namespace amalgam::tool {
namespace {

struct top_options {
    number_options whose;
    double interval = 1;
    bool once = false;
    bool json = false;
    std::string filter;
    std::string web;
};

/// Of the terminal; without one, everything has room.
std::size_t output_width() {
    ::winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) return size.ws_col;
    return 100'000;
}

/// Numbers as they are, a column's title as their name.
json_object as_json(const top_table& table, const top_view& view) {
    json_object rows = json_object::array();
    for (const auto& row : chosen_rows(table, view)) {
        json_object one = json_object::object();
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (table.columns[i].as == shown_as::text)
                one[table.columns[i].title] = row[i].text;
            else
                one[table.columns[i].title] = row[i].number;
        }
        rows.push_back(std::move(one));
    }
    return rows;
}

/// Two rounds, for the rates.
void print_once(number_source& from, const top_options& options) {
    top_model model;
    numbers_told told = from.read();
    model.take(std::move(told), top_model::clock::now());
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
    model.take(from.read(), top_model::clock::now());
    const std::size_t width = output_width();
    if (options.json) {
        json_object all{{"head", model.head()}};
        for (const top_table& each : model.tables())
            all[each.name] = as_json(each, {.filter = options.filter});
        return print_json(all);
    }
    for (const std::string& each : model.head())
        fmt::print("{}\n", cut(each, width));
    const top_view view{.filter = options.filter};
    for (const top_table& each : model.tables()) {
        fmt::print("\n{}\n", each.name);
        for (const std::string& line : lines_of(each, view, width))
            fmt::print("{}\n", line);
    }
}

void top(const top_options& options) {
    if (options.once) return print_once(*open_numbers(options.whose), options);
    if (!options.web.empty())
        return show_as_page(*open_numbers(options.whose), title_of(options.whose), options.web,
                            options.interval);
#ifdef AMALGAM_WITH_CURSES
    if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)
        throw error(errc::unsupported,
                    "the input and output of `amalgam top` are no terminal; for a plain list use "
                    "--once, for a page in a browser --web; example: amalgam top --run --once");
    show_on_screen(*open_numbers(options.whose), options.interval);
#else
    throw error(errc::unsupported,
                "this amalgam was built without a terminal library (libncurses-dev), expected "
                "--once; example: amalgam top --run --once");
#endif
}

}  // namespace

void add_top(CLI::App& app) {
    auto options = std::make_shared<top_options>();
    auto* command = app.add_subcommand(
        "top",
        "Watch engines, a run or a directory's processes in the terminal, or as a page: who "
        "computes, who waits, what is called. Keys: Tab or 1 to 9 choose a table, the arrows "
        "scroll its rows and columns, < and > choose the column to sort by, r reverses, / "
        "filters, space pauses, q quits");
    command->footer("example: amalgam top --run");
    add_numbers(*command, options->whose);
    command->add_option("--interval", options->interval, "Seconds between two rounds")
        ->check(seconds(0.1, 3600))
        ->capture_default_str();
    CLI::Option* const once = command->add_flag(
        "--once", options->once, "Print all tables, with the rates of one interval, and end");
    command
        ->add_option("--filter", options->filter,
                     "With --once: only rows with this in their names or places")
        ->needs(once);
    add_json(*command, options->json)->needs(once);
    command
        ->add_option("--web", options->web,
                     "Serve a live page at this loopback address instead, and print its URL; port "
                     "0, or no address, chooses a port. For other hosts: "
                     "\"0.0.0.0:8642?credentials=node7\", a key that `amalgam key new --p256` made")
        ->expected(0, 1)
        ->default_str("127.0.0.1:0")
        ->excludes(once);
    command->callback([options] {
        check(options->whose);
        try {
            top(*options);
        } catch (const error& why) {  // May be the text of the peer.
            throw error(why.code(), shown(why.what(), 8192));
        }
    });
}

}  // namespace amalgam::tool

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/live_page.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>

#include "flow/web/page_files.hpp"

namespace amalgam {
namespace {

using namespace detail;

using value = nlohmann::ordered_json;

/// Rates are over this many intervals: each process reports at its own time.
constexpr std::size_t most_samples = 4;
constexpr std::size_t most_lines_at_once = 100;

std::string text_of_value(const value& what) {
    return what.dump(-1, ' ', false, value::error_handler_t::replace);
}

std::string as_event(std::string_view name, std::string_view data) {
    return fmt::format("event: {}\ndata: {}\n\n", name, data);
}

double rounded(double number) {
    return std::round(number * 1000) / 1000;
}

double per_second(std::uint64_t count, double seconds) {
    return seconds > 0 ? rounded(static_cast<double>(count) / seconds) : 0;
}

http_answer refusal(int code, std::string_view text) {
    return {.code = code, .body = fmt::format("{}\n", text)};
}

/// Seconds that each process's numbers in `passed` cover.
std::map<std::string_view, double> seconds_by_process(const run_report& passed) {
    std::map<std::string_view, double> all;
    for (const process_report& each : passed.processes)
        all.emplace(each.name, each.seconds);
    return all;
}

double seconds_of(const std::map<std::string_view, double>& all, std::string_view process) {
    const auto found = all.find(process);
    return found == all.end() ? 0 : found->second;
}

value shown_nodes(const run_report& all, const run_report& passed) {
    const auto seconds = seconds_by_process(passed);
    value nodes = value::array();
    for (std::size_t i = 0; i < std::min(all.nodes.size(), live_page::most_nodes); ++i) {
        const node_report& whole = all.nodes[i];
        const node_report& now = passed.nodes[i];
        // A node that has ended waits for nothing.
        const double time = now.ended && now.seconds == 0 ? 0 : now.seconds;
        const auto share = [&](double part) {
            return time > 0 ? rounded(std::clamp(part / time, 0.0, 1.0)) : 0;
        };
        nodes.push_back({{"name", whole.name},
                         {"process", whole.process},
                         {"inside", whole.inside},
                         {"taken", whole.taken},
                         {"given", whole.given},
                         {"taken_rate", per_second(now.taken, seconds_of(seconds, now.process))},
                         {"given_rate", per_second(now.given, seconds_of(seconds, now.process))},
                         {"busy", share(now.busy_seconds())},
                         {"core", share(now.waited_for_core)},
                         {"lock", share(now.waited_for_lock)},
                         {"outside", share(now.waited_outside)},
                         {"input", share(now.waited_for_input)},
                         {"output", share(now.waited_for_output)},
                         {"ended", whole.ended}});
    }
    return nodes;
}

value shown_channels(const run_report& all, const run_report& passed) {
    const auto seconds = seconds_by_process(passed);
    value channels = value::array();
    for (std::size_t i = 0; i < std::min(all.channels.size(), live_page::most_channels); ++i) {
        const channel_report& whole = all.channels[i];
        const channel_report& now = passed.channels[i];
        const double time = seconds_of(seconds, now.process);
        channels.push_back({{"from", whole.from},
                            {"to", whole.to},
                            {"process", whole.process},
                            {"items", whole.items},
                            {"rate", per_second(now.items, time)},
                            {"bytes_rate", per_second(now.bytes, time)},
                            {"waiting", whole.waiting},
                            {"most_waiting", whole.most_waiting},
                            {"between", whole.between_groups}});
    }
    return channels;
}

value shown_processes(const page_state& state, const run_report& passed) {
    value processes = value::array();
    for (const page_process& each : state.processes) {
        value one{{"label", each.label},
                  {"where", each.where},
                  {"state", each.state},
                  {"running", each.running}};
        double processor = each.processor;
        std::uint64_t memory = each.memory;
        for (const process_report& now : passed.processes) {
            if (now.name != each.label) continue;
            processor = now.seconds > 0 ? now.processor_seconds / now.seconds : 0;
            memory = now.resident_bytes;
            one["cores"] = now.cores;
        }
        one["processor"] = each.running ? rounded(processor) : 0;
        one["memory"] = each.running ? memory : 0;
        processes.push_back(std::move(one));
    }
    return processes;
}

value shown_tables(const std::vector<page_table>& tables) {
    value all = value::array();
    for (const page_table& each : tables) {
        value rows = value::array();
        for (const auto& row : each.rows) {
            if (rows.size() == live_page::most_rows) break;
            value cells = value::array();
            for (const page_table::cell& one : row)
                cells.push_back(printable(one.text));
            rows.push_back(std::move(cells));
        }
        all.push_back(
            {{"name", each.name},
             {"columns", each.columns},
             {"texts", each.texts},
             {"rows", std::move(rows)},
             {"more", each.rows.size() - std::min(each.rows.size(), live_page::most_rows)}});
    }
    return all;
}

value as_value(const bottleneck_report& neck) {
    return {{"cause", name(neck.why)},       {"node", neck.node},
            {"process", neck.process},       {"to_node", neck.to_node},
            {"to_process", neck.to_process}, {"sentence", neck.sentence},
            {"advice", neck.advice}};
}

/// Items per second at the end of the graph, bytes per second between groups, and how long items
/// wait in queues: by Little's law, those that wait by how many leave. Then cores and memory.
value point_of(double when, const value& nodes, const value& channels, const value& processes) {
    double items = 0, bytes = 0, waiting = 0, through = 0, cores = 0, memory = 0;
    for (const value& each : nodes)
        if (each["given"] == 0) items += each["taken_rate"].get<double>();
    for (const value& each : channels) {
        bytes += each["bytes_rate"].get<double>();
        waiting += each["waiting"].get<double>();
        through = std::max(through, each["rate"].get<double>());
    }
    for (const value& each : processes) {
        cores += each["processor"].get<double>();
        memory += each["memory"].get<double>();
    }
    const double queued = through > 0 ? waiting / through : 0;
    return {rounded(when), items, bytes, rounded(queued), rounded(cores), memory};
}

/// Of a query: "process=G1%2E0" is "G1.0". Empty: it is none.
std::string process_in(std::string_view query) {
    constexpr std::string_view front = "process=";
    if (!query.starts_with(front)) return {};
    query.remove_prefix(front.size());
    std::string text;
    for (std::size_t i = 0; i < query.size(); ++i) {
        if (query[i] != '%') {
            text += query[i];
            continue;
        }
        const int high = i + 2 < query.size() ? hex_digit(query[i + 1]) : -1;
        const int low = i + 2 < query.size() ? hex_digit(query[i + 2]) : -1;
        if (high < 0 || low < 0) return {};
        text += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return text;
}

value as_value(const told_ult& one) {
    // Numbers of 64 bits are none of JavaScript's.
    return {{"id", fmt::format("{:08x}", one.id & 0xffffffff)},
            {"name", one.name},
            {"state", name(one.state)},
            {"waits_for", one.waits_for},
            {"waited", rounded(std::chrono::duration<double>(one.waited).count())},
            {"unit", one.unit == 0 ? "" : fmt::format("{:08x}", one.unit & 0xffffffff)},
            {"stream", one.stream},
            {"trace", one.trace}};
}

}  // namespace

struct live_page::state {
    using clock = std::chrono::steady_clock;
    struct numbered {
        std::uint64_t number;
        std::string text;
    };
    /// What one browser has got.
    struct progress {
        std::uint64_t lines = 0;
        std::uint64_t state = 0;
        std::uint64_t ults = 0;
        bool has_history = false;
    };
    static constexpr std::size_t most_ults = 4;

    state(std::string_view address, page_options what);

    http_answer answer(const http_request& asked);
    http_answer take(const http_request& asked);
    std::string next_for(progress& browser);

    const page_options of;
    const clock::time_point start = clock::now();
    unique_fd asked;

    std::deque<run_report> samples;  // The last ones shown.
    std::mutex lock;                 // All below but the last two.
    std::deque<std::string> points;
    std::deque<numbered> lines, ults;
    std::vector<page_request> requests;
    std::uint64_t line_number = 0, state_number = 0, ults_number = 0;
    std::string shown;

    std::string token;
    http_listener listener;  // Last: its thread uses the others.
};

live_page::state::state(std::string_view address, page_options what)
    : of(std::move(what)),
      asked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener(address, [this](const http_request& one) { return answer(one); },
               {.posts = true, .start_later = true, .has_own_token = true, .for_browsers = true}) {
    token = listener.token().empty() ? new_token() : listener.token();
}

live_page::live_page(std::string_view address, page_options what)
    : state_(std::make_unique<state>(address, std::move(what))) {}

live_page::~live_page() = default;

std::string live_page::url() const {
    return fmt::format("{}/?token={}", state_->listener.origin(), state_->token);
}

int live_page::requests_fd() const noexcept {
    return state_->asked.get();
}

std::vector<page_request> live_page::take_requests() {
    std::uint64_t times = 0;
    static_cast<void>(!::read(state_->asked.get(), &times, sizeof times));
    const std::lock_guard hold(state_->lock);
    return std::exchange(state_->requests, {});
}

void live_page::start() {
    state_->listener.start();
}

void live_page::show(const page_state& now) {
    state& own = *state_;
    const double seconds = std::chrono::duration<double>(state::clock::now() - own.start).count();
    const run_report& so_far = now.run ? *now.run : run_report();
    const run_report passed =
        so_far.since(own.samples.empty() ? run_report() : own.samples.front());
    value all{{"command", own.of.title},
              {"can_stop", own.of.can_stop},
              {"tells_ults", own.of.tells_ults},
              {"returns", !own.listener.token().empty()},
              {"state", now.state},
              {"sentence", now.sentence},
              {"seconds", rounded(seconds)},
              {"has_graph", now.run.has_value()},
              {"nodes", shown_nodes(so_far, passed)},
              {"more_nodes", so_far.nodes.size() - std::min(so_far.nodes.size(), most_nodes)},
              {"channels", shown_channels(so_far, passed)},
              {"processes", shown_processes(now, passed)},
              {"tables", shown_tables(now.tables)}};
    // At the end, of the whole run.
    all["bottleneck"] = as_value(now.state == "running" ? passed.explain() : so_far.explain());
    const value point = point_of(seconds, all["nodes"], all["channels"], all["processes"]);
    all["point"] = point;
    std::string text = text_of_value(all);
    {
        const std::lock_guard hold(own.lock);
        own.samples.push_back(so_far);
        if (own.samples.size() > most_samples) own.samples.pop_front();
        own.points.push_back(text_of_value(point));
        if (own.points.size() > most_points) own.points.pop_front();
        own.shown = std::move(text);
        ++own.state_number;
    }
    own.listener.news();
}

void live_page::log(std::string_view text) {
    const std::lock_guard hold(state_->lock);
    state_->lines.push_back({++state_->line_number, printable(text.substr(0, most_line_bytes))});
    if (state_->lines.size() > most_lines) state_->lines.pop_front();
}

void live_page::tell_ults(const std::string& process, const result<ult_report>& told) {
    value all{{"process", process}};
    if (told) {
        const ult_report& what = told.value();
        all["pid"] = what.process;
        all["host"] = what.host;
        all["left_out"] = what.left_out;
        value ults = value::array();
        for (const told_ult& each : what.ults)
            ults.push_back(as_value(each));
        all["ults"] = std::move(ults);
    } else {
        all["why"] = printable(told.sentence());
    }
    {
        const std::lock_guard hold(state_->lock);
        state_->ults.push_back({++state_->ults_number, text_of_value(all)});
        if (state_->ults.size() > state::most_ults) state_->ults.pop_front();
    }
    state_->listener.news();
}

void live_page::finish() noexcept {
    state_->listener.stop(interval);
}

http_answer live_page::state::answer(const http_request& one) {
    if (one.post) return take(one);
    if (one.path == "/" || one.path == "/events") {
        if (!same_token(one.query, "token=" + token))
            return refusal(403,
                           "this page is for who started it: open the address that amalgam has "
                           "printed, with its token");
        if (one.path == "/events")
            return {.type = "text/event-stream",
                    .more = [this, browser = progress{.ults = ults_number}]() mutable {
                        return next_for(browser);
                    }};
    }
    const page_file* const file = find_page_file(one.path == "/" ? "/page.html" : one.path);
    if (file == nullptr) return refusal(404, "there is no such page, expected /");
    return {.type = std::string(file->type),
            .body = std::string(file->text),
            .fields =
                "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src "
                "'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n"};
}

/// Only the page itself may ask for it: it knows the token, and browsers say where a request is
/// from.
http_answer live_page::state::take(const http_request& one) {
    page_request what;
    if (one.path == "/ults" && of.tells_ults) {
        what = {page_request::kind::ults, process_in(one.query)};
        if (what.process.empty()) return refusal(400, "expected /ults?process=G1");
    } else if (one.path != "/stop" || !of.can_stop) {
        return refusal(404, "there is no such button");
    }
    const std::string scheme = listener.origin().substr(0, listener.origin().find("://") + 3);
    if (!same_token(one.token, token) || one.origin != scheme + one.host)
        return refusal(403, "only this page may ask for that");
    {
        const std::lock_guard hold(lock);
        if (requests.size() == most_requests)
            return refusal(503, "too many questions wait to be answered; ask later");
        requests.push_back(std::move(what));
    }
    const std::uint64_t once = 1;
    while (::write(asked.get(), &once, sizeof once) < 0 && errno == EINTR) {
    }
    return {.body = "asked\n"};
}

/// Runs on the listener's thread.
std::string live_page::state::next_for(progress& browser) {
    const std::lock_guard hold(lock);
    std::string text;
    if (!browser.has_history) {
        browser.has_history = true;
        text += as_event("history", fmt::format("[{}]", fmt::join(points, ",")));
    }
    value fresh = value::array();
    for (const numbered& each : lines) {
        if (each.number <= browser.lines) continue;
        fresh.push_back(each.text);
        browser.lines = each.number;
        if (fresh.size() == most_lines_at_once) break;
    }
    if (!fresh.empty()) text += as_event("log", text_of_value(fresh));
    for (const numbered& each : ults) {
        if (each.number <= browser.ults) continue;
        text += as_event("ults", each.text);
        browser.ults = each.number;
    }
    if (browser.state != state_number) {
        browser.state = state_number;
        text += as_event("state", shown);
    }
    return text;
}

}  // namespace amalgam

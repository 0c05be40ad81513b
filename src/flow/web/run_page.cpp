#include "flow/web/run_page.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/random.hpp>

#include "flow/web/page_files.hpp"

namespace amalgam::detail {
namespace {

using value = nlohmann::ordered_json;

/// Rates are over this many intervals: each process reports at its own time.
constexpr std::size_t most_samples = 4;
constexpr std::size_t most_lines_at_once = 100;

std::string new_token() {
    return fmt::format("{:016x}{:016x}", random_u64(), random_u64());
}

/// Takes as long for a wrong text as for a right one.
bool same(std::string_view a, std::string_view b) noexcept {
    if (a.size() != b.size()) return false;
    unsigned differ = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        differ |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
    return differ == 0;
}

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
    for (std::size_t i = 0; i < std::min(all.nodes.size(), run_page::most_nodes); ++i) {
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
    for (std::size_t i = 0; i < std::min(all.channels.size(), run_page::most_channels); ++i) {
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

value shown_processes(const std::vector<shown_process>& shown, const run_report& all,
                      const run_report& passed) {
    value processes = value::array();
    for (const shown_process& each : shown) {
        value one{{"label", each.label},
                  {"where", each.where},
                  {"state", each.state},
                  {"running", each.running}};
        for (std::size_t i = 0; i < all.processes.size(); ++i) {
            const process_report& now = passed.processes[i];
            if (now.name != each.label) continue;
            one["processor"] =
                each.running && now.seconds > 0 ? rounded(now.processor_seconds / now.seconds) : 0;
            one["cores"] = now.cores;
            one["memory"] = each.running ? now.resident_bytes : 0;
        }
        processes.push_back(std::move(one));
    }
    return processes;
}

value as_value(const bottleneck_report& neck) {
    return {{"cause", name(neck.why)},       {"node", neck.node},
            {"process", neck.process},       {"to_node", neck.to_node},
            {"to_process", neck.to_process}, {"sentence", neck.sentence},
            {"advice", neck.advice}};
}

/// Items per second at the end of the graph, bytes per second between groups, and how long items
/// wait in queues: by Little's law, those that wait by how many leave.
value point_of(double when, const value& nodes, const value& channels) {
    double items = 0, bytes = 0, waiting = 0, through = 0;
    for (const value& each : nodes)
        if (each["given"] == 0) items += each["taken_rate"].get<double>();
    for (const value& each : channels) {
        bytes += each["bytes_rate"].get<double>();
        waiting += each["waiting"].get<double>();
        through = std::max(through, each["rate"].get<double>());
    }
    const double queued = through > 0 ? waiting / through : 0;
    return {rounded(when), items, bytes, rounded(queued)};
}

}  // namespace

run_page::run_page(std::string_view address, std::string command)
    : command_(std::move(command)),
      token_(new_token()),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener_(address, [this](const http_request& asked) { return answer(asked); },
                {.posts = true, .start_later = true}) {}

run_page::~run_page() = default;

std::string run_page::url() const {
    return fmt::format("http://{}/?token={}", listener_.address(), token_);
}

void run_page::show(const run_report& so_far, const std::vector<shown_process>& processes,
                    std::string_view state, std::string_view last_sentence) {
    const clock::time_point now = clock::now();
    const double when = std::chrono::duration<double>(now - start_).count();
    const run_report before = samples_.empty() ? run_report{} : samples_.front().report;
    const run_report passed = so_far.since(before);
    value all{{"command", command_},
              {"state", state},
              {"sentence", last_sentence},
              {"seconds", rounded(when)},
              {"nodes", shown_nodes(so_far, passed)},
              {"more_nodes", so_far.nodes.size() - std::min(so_far.nodes.size(), most_nodes)},
              {"channels", shown_channels(so_far, passed)},
              {"processes", shown_processes(processes, so_far, passed)}};
    // At the end, of the whole run.
    all["bottleneck"] = as_value(state == "running" ? passed.explain() : so_far.explain());
    const value point = point_of(when, all["nodes"], all["channels"]);
    all["point"] = point;
    std::string text = text_of_value(all);
    {
        const std::lock_guard hold(lock_);
        samples_.push_back({now, so_far});
        if (samples_.size() > most_samples) samples_.pop_front();
        points_.push_back(text_of_value(point));
        if (points_.size() > most_points) points_.pop_front();
        state_ = std::move(text);
        ++state_number_;
    }
    listener_.news();
}

void run_page::log(std::string_view text) {
    const std::lock_guard hold(lock_);
    lines_.push_back({++line_number_, printable(text.substr(0, most_line_bytes))});
    if (lines_.size() > most_lines) lines_.pop_front();
}

void run_page::finish() noexcept {
    listener_.stop(interval);
}

http_answer run_page::answer(const http_request& asked) {
    if (asked.post) return asked.path == "/stop" ? stop(asked) : refusal(404, "expected /stop");
    if (asked.path == "/" || asked.path == "/events") {
        if (!same(asked.query, "token=" + token_))
            return refusal(403,
                           "this page is for who started the run: open the address that amalgam "
                           "run has printed, with its token");
        if (asked.path == "/events")
            return {.type = "text/event-stream",
                    .more = [this, browser = progress{}]() mutable { return next_for(browser); }};
    }
    const page_file* const file = find_page_file(asked.path == "/" ? "/page.html" : asked.path);
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
http_answer run_page::stop(const http_request& asked) {
    if (!same(asked.token, token_) || asked.origin != "http://" + asked.host)
        return refusal(403, "only the page of this run may stop it");
    const std::uint64_t one = 1;
    while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    return {.body = "stopping\n"};
}

/// Runs on the listener's thread.
std::string run_page::next_for(progress& browser) {
    const std::lock_guard hold(lock_);
    std::string text;
    if (!browser.has_history) {
        browser.has_history = true;
        text += as_event("history", fmt::format("[{}]", fmt::join(points_, ",")));
    }
    value lines = value::array();
    for (const line& each : lines_) {
        if (each.number <= browser.lines) continue;
        lines.push_back(each.text);
        browser.lines = each.number;
        if (lines.size() == most_lines_at_once) break;
    }
    if (!lines.empty()) text += as_event("log", text_of_value(lines));
    if (browser.state != state_number_) {
        browser.state = state_number_;
        text += as_event("state", state_);
    }
    return text;
}

}  // namespace amalgam::detail

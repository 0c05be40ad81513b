#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/live_page.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>

#include "flow/web/page_files.hpp"
#include "flow/web/page_values.hpp"

namespace amalgam {
namespace {

using detail::http_answer;
using detail::http_request;

/// Rates are over this many intervals: each process reports at its own time.
constexpr std::size_t most_samples = 4;
constexpr std::size_t most_lines_at_once = 100;

std::string as_event(std::string_view name, std::string_view data) {
    return fmt::format("event: {}\ndata: {}\n\n", name, data);
}

http_answer refusal(int code, std::string_view text) {
    return {.code = code, .body = fmt::format("{}\n", text)};
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
        const int high = i + 2 < query.size() ? detail::hex_digit(query[i + 1]) : -1;
        const int low = i + 2 < query.size() ? detail::hex_digit(query[i + 2]) : -1;
        if (high < 0 || low < 0) return {};
        text += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return text;
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
    std::function<std::string()> new_browser();
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
    detail::http_listener listener;  // Last: its thread uses the others.
};

live_page::state::state(std::string_view address, page_options what)
    : of(std::move(what)),
      asked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listener(address, [this](const http_request& one) { return answer(one); },
               {.posts = true, .start_later = true, .has_own_token = true, .for_browsers = true}) {
    token = listener.token().empty() ? detail::new_token() : listener.token();
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
    detail::page_texts texts =
        detail::texts_of(own.of, !own.listener.token().empty(), seconds, now,
                         own.samples.empty() ? run_report() : own.samples.front());
    own.samples.push_back(now.run.value_or(run_report()));
    if (own.samples.size() > most_samples) own.samples.pop_front();
    {
        const std::lock_guard hold(own.lock);
        own.points.push_back(std::move(texts.point));
        if (own.points.size() > most_points) own.points.pop_front();
        own.shown = std::move(texts.state);
        ++own.state_number;
    }
    own.listener.news();
}

void live_page::log(std::string_view text) {
    const std::lock_guard hold(state_->lock);
    state_->lines.push_back(
        {++state_->line_number, detail::printable(text.substr(0, most_line_bytes))});
    if (state_->lines.size() > most_lines) state_->lines.pop_front();
}

void live_page::tell_ults(const std::string& process, const result<ult_report>& told) {
    std::string text = detail::text_of(process, told);
    {
        const std::lock_guard hold(state_->lock);
        state_->ults.push_back({++state_->ults_number, std::move(text)});
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
        if (!detail::same_token(one.query, "token=" + token))
            return refusal(403,
                           "this page is for who started it: open the address that amalgam has "
                           "printed, with its token");
        if (one.path == "/events") return {.type = "text/event-stream", .more = new_browser()};
    }
    const detail::page_file* const file =
        detail::find_page_file(one.path == "/" ? "/page.html" : one.path);
    if (file == nullptr) return refusal(404, "there is no such page, expected /");
    return {.type = std::string(file->type),
            .body = std::string(file->text),
            .fields =
                "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src "
                "'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n"};
}

/// What it was told before, others have asked for.
std::function<std::string()> live_page::state::new_browser() {
    const std::lock_guard hold(lock);
    return [this, browser = progress{.ults = ults_number}]() mutable { return next_for(browser); };
}

/// Only the page itself may ask for it: it knows the token, and browsers say where a request is
/// from.
http_answer live_page::state::take(const http_request& one) {
    const bool for_ults = one.path == "/ults" && of.tells_ults;
    const bool for_checkpoint = one.path == "/checkpoint" && of.can_checkpoint;
    if (!for_ults && !for_checkpoint && (one.path != "/stop" || !of.can_stop))
        return refusal(404, "there is no such button");
    const std::string scheme = listener.origin().substr(0, listener.origin().find("://") + 3);
    if (!detail::same_token(one.token, token) || one.origin != scheme + one.host)
        return refusal(403, "only this page may ask for that");
    page_request what;
    if (for_checkpoint) what.what = page_request::kind::checkpoint;
    if (for_ults) what = {page_request::kind::ults, process_in(one.query)};
    if (for_ults && what.process.empty()) return refusal(400, "expected /ults?process=G1");
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
    std::vector<std::string> fresh;
    for (const numbered& each : lines) {
        if (each.number <= browser.lines) continue;
        fresh.push_back(each.text);
        browser.lines = each.number;
        if (fresh.size() == most_lines_at_once) break;
    }
    if (!fresh.empty()) text += as_event("log", detail::text_of(fresh));
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

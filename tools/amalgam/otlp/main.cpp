#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <amalgam/core/otlp_trace.hpp>
#include <amalgam/core/status.hpp>

#include "call/shown.hpp"
#include "otlp/collector.hpp"

// amalgam-otlp URL FOLDER…: sends the spans that processes record in these folders to a collector,
// until standard input ends, and then what is left. It is a program of its own, started by `amalgam
// trace --otlp`, so that no other part of the tool loads a library for HTTP and TLS.

namespace amalgam::tool {
namespace {

using std::chrono::milliseconds;
using time_point = std::chrono::steady_clock::time_point;

constexpr milliseconds between_looks{1'000};
constexpr milliseconds first_pause{500};
constexpr milliseconds longest_pause{30'000};

std::string variable(std::string_view name) {
    const char* const text = std::getenv(std::string(name).c_str());
    return text != nullptr ? text : "";
}
/// Of traces first, then that of all signals.
std::string otlp_variable(std::string_view what) {
    const std::string of_traces = variable(fmt::format("OTEL_EXPORTER_OTLP_TRACES_{}", what));
    return of_traces.empty() ? variable(fmt::format("OTEL_EXPORTER_OTLP_{}", what)) : of_traces;
}

collector_url url_of(const std::string& given) {
    if (given != "env") return collector_url::parse(given, true);
    if (const std::string exact = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); !exact.empty())
        return collector_url::parse(exact, false);
    const std::string base = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    return collector_url::parse(base.empty() ? "http://localhost:4318" : base, true);
}

collector_options options_of(const std::string& given) {
    collector_options options;
    options.url = url_of(given);
    options.ca_file = otlp_variable("CERTIFICATE");
    const auto fits = [](const std::string& word) {
        return std::none_of(word.begin(), word.end(),
                            [](unsigned char c) { return c < ' ' || c == 0x7f; });
    };
    for (const auto& [name, value] : parse_baggage(otlp_variable("HEADERS")))
        if (fits(name) && fits(value)) options.headers.emplace_back(name, value);
    if (const std::string text = otlp_variable("TIMEOUT"); !text.empty()) {
        unsigned ms = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, wrong] = std::from_chars(text.data(), end, ms);
        if (wrong != std::errc{} || stop != end || ms == 0 || ms > 3'600'000) {
            throw error(errc::invalid,
                        fmt::format("OTEL_EXPORTER_OTLP_TIMEOUT is \"{}\", expected milliseconds "
                                    "from 1 to 3600000; example: OTEL_EXPORTER_OTLP_TIMEOUT=10000",
                                    text));
        }
        options.timeout = milliseconds(ms);
    }
    return options;
}

/// Sends what is recorded until all of it is sent, or the time after the program's end is over.
class exporter {
public:
    exporter(collector_options options, std::vector<std::string> folders)
        : timeout_(options.timeout),
          address_(options.url.text()),
          collector_(std::move(options)),
          reader_(std::move(folders),
                  {.service_name = variable("OTEL_SERVICE_NAME"),
                   .resource_attributes = variable("OTEL_RESOURCE_ATTRIBUTES")}) {}

    int run() {
        pause(milliseconds(0));
        for (;;) {
            const bool was_over = is_over_;
            const otlp_batch batch = reader_.next();
            if (batch.spans != 0) {
                send(batch);
            } else if (was_over) {
                break;
            } else {
                pause(between_looks);
            }
        }
        return report();
    }

private:
    static time_point now() { return std::chrono::steady_clock::now(); }

    /// Ends at once when standard input does; then there is a deadline.
    void pause(milliseconds most) {
        const time_point until = now() + most;
        do {
            const auto left = std::chrono::ceil<milliseconds>(until - now()).count();
            pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
            const int wait = std::max(0, static_cast<int>(left));
            if (::poll(&input, is_over_ ? 0 : 1, wait) <= 0) continue;
            char ignored[256];
            if (::read(0, ignored, sizeof ignored) > 0) continue;
            is_over_ = true;
            deadline_ = now() + timeout_;
            return;
        } while (now() < until);
    }

    void send(const otlp_batch& batch) {
        milliseconds own_pause = first_pause;
        // After the first batch that the time is not enough for, the rest is only counted.
        while (!has_given_up_) {
            const collector_answer answer = collector_.post(batch.json);
            if (answer.how == collector_answer::outcome::taken) {
                const auto rejected = std::min<std::uint64_t>(answer.rejected, batch.spans);
                rejected_ += rejected;
                sent_ += batch.spans - rejected;
                if (rejected != 0) why_ = answer.why;
                return;
            }
            why_ = answer.why;
            if (answer.how == collector_answer::outcome::refused) break;
            tell_trouble();
            const time_point again =
                now() + (answer.retry_after.count() >= 0 ? answer.retry_after : own_pause);
            own_pause = std::min(own_pause * 2, longest_pause);
            pause(milliseconds(0));
            while (now() < again && !has_given_up_) {
                has_given_up_ = is_over_ && again >= deadline_;
                if (!has_given_up_) pause(std::chrono::ceil<milliseconds>(again - now()));
            }
            has_given_up_ = has_given_up_ || (is_over_ && now() >= deadline_);
        }
        rejected_ += batch.spans;
    }

    void tell_trouble() {
        if (told_) return;
        told_ = true;
        fmt::print(stderr, "amalgam: the collector {} takes no spans now ({}); trying on\n",
                   address_, shown(why_, 300));
    }

    int report() {
        for (const std::string& each : reader_.unreadable())
            fmt::print(stderr, "amalgam: not a trace: {}\n", shown(each, 5000));
        if (reader_.processes() == 0) {
            throw error(errc::not_found,
                        "nothing was recorded; expected a program of Amalgam that makes an "
                        "engine; example: amalgam trace --otlp http://localhost:4318 -- ./server");
        }
        std::string line = fmt::format("amalgam: {} spans of {} processes are at {}", sent_,
                                       reader_.processes(), address_);
        if (rejected_ != 0)
            line += fmt::format("; {} were not taken: {}", rejected_, shown(why_, 300));
        if (reader_.dropped() != 0) {
            line += fmt::format("; {} records were without room: see --rate and --mib",
                                reader_.dropped());
        }
        fmt::print(stderr, "{}\n", line);
        return rejected_ == 0 ? 0 : 1;
    }

    milliseconds timeout_;
    std::string address_;
    collector collector_;
    otlp_reader reader_;
    bool is_over_ = false;
    time_point deadline_{};
    bool has_given_up_ = false;
    bool told_ = false;
    std::uint64_t sent_ = 0, rejected_ = 0;
    std::string why_;
};

int run(int count, char** words) {
    if (count < 3) {
        throw error(errc::invalid,
                    "a collector and a folder are needed; expected to be started by amalgam trace "
                    "--otlp; example: amalgam-otlp http://localhost:4318 /tmp/trace");
    }
    ::signal(SIGPIPE, SIG_IGN);
    return exporter(options_of(words[1]), std::vector<std::string>(words + 2, words + count)).run();
}

}  // namespace
}  // namespace amalgam::tool

int main(int count, char** words) {
    try {
        return amalgam::tool::run(count, words);
    } catch (const std::exception& why) {
        fmt::print(stderr, "amalgam: {}\n", why.what());
        return 1;
    }
}

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/metrics.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/describe.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/rpc/metrics_server.hpp>

namespace amalgam {

namespace {

using detail::http_answer;
using detail::http_request;

http_answer metrics(const metric_snapshot& all, const http_request& asked) {
    if (asked.accept.find("application/openmetrics-text") != std::string::npos) {
        return {.type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
                .body = to_openmetrics(all)};
    }
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = to_prometheus(all)};
}

/// `ready`: whether it also serves.
http_answer health(engine& of, bool ready) {
    try {
        const engine_health now = health_of(of);
        if (!ready || now.serving) return {.body = "ok\n"};
        return {.code = 503,
                .body = fmt::format("{}\n", now.sentence.empty() ? "not serving" : now.sentence)};
    } catch (const error& why) {
        return {.code = 503, .body = fmt::format("{}\n", why.what())};
    }
}

http_answer unknown_path() {
    return {.code = 404, .body = "expected one of: /metrics, /health, /ready\n"};
}

http_answer answer(engine& of, const http_request& asked) {
    if (asked.path == "/metrics") return metrics(read_metrics(of), asked);
    if (asked.path == "/health") return health(of, false);
    if (asked.path == "/ready") return health(of, true);
    return unknown_path();
}

http_answer answer(const std::function<metric_snapshot()>& read, const http_request& asked) {
    if (asked.path == "/metrics") return metrics(read(), asked);
    if (asked.path == "/health" || asked.path == "/ready") return {.body = "ok\n"};
    return unknown_path();
}

}  // namespace

struct metrics_server::state {
    state(engine& of, std::string_view address)
        : listener(address, [&of](const http_request& asked) { return answer(of, asked); }) {}
    state(std::function<metric_snapshot()> read, std::string_view address)
        : listener(address, [read = std::move(read)](const http_request& asked) {
              return answer(read, asked);
          }) {}

    detail::http_listener listener;
};

metrics_server::metrics_server(engine& of, std::string_view address)
    : state_(std::make_unique<state>(of, address)) {}
metrics_server::metrics_server(std::function<metric_snapshot()> read, std::string_view address)
    : state_(std::make_unique<state>(std::move(read), address)) {}
metrics_server::~metrics_server() = default;

const std::string& metrics_server::address() const noexcept {
    return state_->listener.address();
}

std::string metrics_server::url() const {
    return state_->listener.origin() + "/metrics";
}

}  // namespace amalgam

#pragma once

#include <string>
#include <string_view>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/metrics.hpp>

namespace amalgam {

class engine;

/// Answers HTTP about an engine, for Prometheus and whoever watches a service:
///
///     GET /metrics   read_metrics() as text for Prometheus, or as OpenMetrics if asked for
///     GET /health    200 while the engine's stream runs
///     GET /ready     200 while set_health() says that the engine serves, else 503 and the sentence
///
/// Owner:   the caller; the engine must outlive it.
/// Threads: one of its own. address() may be called by any thread. Destroy it where you may wait,
///          and not on the engine's streams, which the thread may wait for.
/// Failure: the constructor throws error{invalid} for an address that is none, error{denied} for
///          one that other hosts can reach and that lacks a key or a token, error{in_use} for a
///          port that is taken; what credentials::from_folder() throws.
/// Cost:    nothing until somebody asks. At most 64 connections of 15 s each, requests of 8 KiB,
///          and answers of 32 MiB in all that wait for slow readers; whoever is above that is
///          turned away.
class metrics_server {
public:
    /// `address`: "127.0.0.1:9464"; port 0 chooses a free one. Whoever can connect can read what
    /// procedures and peers are called, so an address that other hosts reach needs a key, and a
    /// token that clients show: "0.0.0.0:9464?credentials=node7&token=FILE". The key is as for
    /// tcp+tls://, its certificate must name a host; the file has mode 0600, and is made if it is
    /// not there. Clients send "Authorization: Bearer TOKEN".
    metrics_server(engine& of, std::string_view address);
    /// Of anything: `read` tells the numbers, on the server's thread, and /health and /ready are
    /// 200 as long as this lives. What it throws is answered with 500, and its sentence.
    metrics_server(std::function<metric_snapshot()> read, std::string_view address);
    metrics_server(const metrics_server&) = delete;
    metrics_server& operator=(const metrics_server&) = delete;
    ~metrics_server();

    /// Where it listens: "127.0.0.1:9464".
    const std::string& address() const noexcept;
    /// As clients call it: "http://127.0.0.1:9464/metrics", "https://node7.lab:9464/metrics".
    std::string url() const;

private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace amalgam

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

struct http_request {
    std::string path;    ///< Without what follows a "?".
    std::string accept;  ///< Media types, as the client sent them.
};

struct http_answer {
    int code = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
};

/// Answers GET and HEAD over HTTP/1.1 at a loopback address, one request for each connection.
///
/// One thread waits for all connections and never for one, so that slow ones hold a little memory,
/// and no thread. Requests are read whole before `answer` runs, on that thread.
class http_listener {
public:
    static constexpr std::size_t most_connections = 64;
    static constexpr std::size_t most_request_bytes = 8192;
    static constexpr std::size_t most_unsent_bytes = std::size_t{32} << 20;
    static constexpr std::chrono::seconds longest{15};

    using handler = std::function<http_answer(const http_request&)>;

    /// Throws as metrics_server does.
    http_listener(std::string_view address, handler answer);
    http_listener(const http_listener&) = delete;
    http_listener& operator=(const http_listener&) = delete;
    ~http_listener();

    const std::string& address() const noexcept { return address_; }

private:
    using steady = std::chrono::steady_clock;
    struct connection {
        unique_fd socket;
        steady::time_point until;
        std::string in{}, out{};
        std::size_t sent = 0;
        bool ended = false;

        bool answered() const noexcept { return !out.empty(); }
    };

    void listen(std::string_view address);
    void run() noexcept;
    /// False: there is no descriptor or memory for it now.
    bool accept_all();
    bool make_room() noexcept;
    void serve(connection& one);
    void read(connection& one);
    void write(connection& one) noexcept;
    std::string answer_to(std::string_view request);
    std::size_t unsent() const noexcept;

    const handler answer_;
    std::string address_;
    unique_fd listening_, wake_;
    std::vector<connection> all_;
    const ::pid_t made_in_;
    std::thread thread_;
};

}  // namespace amalgam::detail

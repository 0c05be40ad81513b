#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/extension/tls_server.hpp>

namespace amalgam::detail {

/// 32 hexadecimal digits that nobody can guess.
std::string new_token();
/// Takes as long for a wrong text as for a right one.
bool same_token(std::string_view a, std::string_view b) noexcept;

struct http_request {
    std::string path;      ///< Without what follows a "?".
    std::string query{};   ///< What follows it.
    bool post = false;     ///< Else GET, or HEAD.
    std::string accept{};  ///< Media types, as the client sent them.
    std::string host{};    ///< "127.0.0.1:9464", as the client calls us.
    std::string origin{};  ///< Of the page that asks, if a browser says so.
    std::string token{};   ///< X-Amalgam-Token, which no page from elsewhere can send.
};

struct http_answer {
    int code = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body{};
    std::string fields{};  ///< More of the header: lines, each with its end.
    /// If set, the connection stays open, without a length of the body. Called when all before has
    /// been sent, and after news() while nothing is to be sent; gives what comes next, or nothing.
    /// So a client that reads slowly misses steps, and holds no more than one.
    std::function<std::string()> more{};
};

/// Answers GET and HEAD over HTTP/1.1, one request for each connection, at a loopback address such
/// as "127.0.0.1:9464", or encrypted: "0.0.0.0:9464?credentials=node7&token=FILE" has the
/// certificate and key of an `amalgam key`, and the token that clients must show. The file of a
/// token is made where there is none. An address that other hosts reach needs both.
///
/// One thread waits for all connections and never for one, so that slow ones hold a little memory,
/// and no thread. Requests are read whole before `answer` runs, on that thread, as does `more`.
class http_listener {
public:
    static constexpr std::size_t most_connections = 64;
    static constexpr std::size_t most_streams = 16;  ///< Of them, with http_answer::more.
    static constexpr std::size_t most_request_bytes = 8192;
    static constexpr std::size_t most_unsent_bytes = std::size_t{32} << 20;
    static constexpr std::chrono::seconds longest{15};  ///< Without reading what was sent.

    using handler = std::function<http_answer(const http_request&)>;
    struct options {
        bool posts = false;  ///< POST is answered, too; what comes after its header is not read.
        bool start_later =
            false;  ///< By start(): until then there is no thread, so fork() is safe.
        /// `answer` refuses those who have no token: nothing is asked for it here.
        bool has_own_token = false;
        bool for_browsers = false;  ///< Refuses keys that they do not take.
    };

    /// Throws as metrics_server does.
    http_listener(std::string_view address, handler answer, options how);
    http_listener(std::string_view address, handler answer)
        : http_listener(address, std::move(answer), options{}) {}
    http_listener(const http_listener&) = delete;
    http_listener& operator=(const http_listener&) = delete;
    ~http_listener();

    const std::string& address() const noexcept { return address_; }
    /// As clients call it: "http://127.0.0.1:9464", "https://node7.lab:9464".
    const std::string& origin() const noexcept { return origin_; }
    /// Of the file that the address names; empty: it names none.
    const std::string& token() const noexcept { return token_; }

    void start();
    /// There is more to send. Any thread; does not wait.
    void news() noexcept;
    /// Ends all connections: at once, or when what is to be sent has been, for `grace` at most.
    void stop(std::chrono::milliseconds grace) noexcept;

private:
    using steady = std::chrono::steady_clock;
    struct connection {
        unique_fd socket;
        steady::time_point until;
        std::string in{}, out{};
        std::size_t sent = 0;
        std::function<std::string()> more{};
        bool ended = false;
        bool is_begun = false;
        bool is_answered = false;
        bool is_refused = false;  // By TLS.
        std::unique_ptr<tls_server_end> tls{};
    };

    void listen(std::string_view address);
    void run() noexcept;
    /// False: there is no descriptor or memory for it now.
    bool accept_all();
    bool make_room() noexcept;
    void serve(connection& one);
    void read(connection& one);
    void write(connection& one);
    static bool take(connection& one, std::string_view received);
    static void put(connection& one, std::string plain);
    void continue_stream(connection& one);
    bool is_to_end() noexcept;
    http_answer answer_to(std::string_view request, bool& head);
    std::size_t unsent() const noexcept;
    std::size_t streams() const noexcept;
    void wake() noexcept;

    const handler answer_;
    const options how_;
    std::string address_, origin_, token_;
    std::unique_ptr<tls_server> tls_;
    unique_fd listening_, wake_;
    std::vector<connection> all_;
    std::atomic<bool> stops_{false};
    steady::time_point stop_by_{};  // Before stops_.
    const detail::fork_check forked_;
    std::thread thread_;
};

}  // namespace amalgam::detail

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>

#include "rpc/http/http_place.hpp"

namespace amalgam::detail {

namespace {

std::string_view up_to(std::string_view& text, std::string_view end) {
    const std::size_t at = std::min(text.find(end), text.size());
    const std::string_view front = text.substr(0, at);
    text.remove_prefix(std::min(at + end.size(), text.size()));
    return front;
}

bool same_word(std::string_view a, std::string_view b) {
    const auto lower = [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](char x, char y) { return lower(x) == lower(y); });
}

/// A page from elsewhere could have its own name resolve to this host, and read what a browser
/// here can. Then the browser names that page's host.
bool is_of_this_host(std::string_view host) {
    if (host.empty()) return true;
    // Nothing but a port may follow: "[::1].page.example" and "localhost:80@page.example" do not
    // name this host.
    const std::size_t colon = host.find(':', host.front() == '[' ? host.find(']') : 0);
    const std::string name(host.substr(0, colon));
    const std::string_view port = colon == host.npos ? "" : host.substr(colon + 1);
    if (port.find_first_not_of("0123456789") != port.npos) return false;
    ::in_addr four{};
    return same_word(name, "localhost") || name == "[::1]" ||
           (::inet_pton(AF_INET, name.c_str(), &four) == 1 && ntohl(four.s_addr) >> 24 == 127);
}

std::string_view reason(int code) {
    switch (code) {
        case 200:
            return "OK";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 431:
            return "Request Header Fields Too Large";
        case 500:
            return "Internal Server Error";
        default:
            return "Service Unavailable";
    }
}

std::string bytes_of(const http_answer& what, bool body = true) {
    std::string out = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}{}{}Cache-Control: "
        "no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        what.code, reason(what.code), what.type,
        what.more ? "" : fmt::format("Content-Length: {}\r\n", what.body.size()),
        what.code == 405   ? "Allow: GET, HEAD\r\n"
        : what.code == 401 ? "WWW-Authenticate: Bearer\r\n"
                           : "",
        what.fields);
    if (body) out += what.body;
    return out;
}

http_answer sentence(int code, std::string_view text) {
    return {.code = code, .body = fmt::format("{}\n", text)};
}

}  // namespace

http_listener::http_listener(std::string_view address, handler answer, options how)
    : answer_(std::move(answer)), how_(how) {
    listen(address);
    if (!how_.start_later) start();
}

void http_listener::start() {
    // Signals are for the program's own threads.
    ::sigset_t every, before;
    ::sigfillset(&every);
    ::pthread_sigmask(SIG_BLOCK, &every, &before);
    try {
        thread_ = std::thread([this] { run(); });
    } catch (...) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

http_listener::~http_listener() {
    if (forked_.is_in_child()) {
        // It has not come along over fork(). Another thread may have its stack by now, and with
        // that its id: to detach this one would detach that.
        if (thread_.joinable()) static_cast<void>(new std::thread(std::move(thread_)));
        // It may have been changing these as the process forked, so nothing of them may be freed.
        static_cast<void>(new std::vector<connection>(std::move(all_)));
        static_cast<void>(tls_.release());
        return;
    }
    stop(std::chrono::milliseconds(0));
}

void http_listener::stop(std::chrono::milliseconds grace) noexcept {
    if (!thread_.joinable()) return;
    stop_by_ = steady::now() + grace;
    stops_.store(true);
    wake();
    thread_.join();
    all_.clear();
}

void http_listener::news() noexcept {
    wake();
}

void http_listener::wake() noexcept {
    const std::uint64_t one = 1;
    while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void http_listener::listen(std::string_view address) {
    http_place place = parse_http_place(address, how_.has_own_token);
    listen_address& where = place.where;
    token_ = std::move(place.token);
    if (!place.credentials.empty()) {
        tls_ = std::make_unique<tls_server>(
            credentials::from_folder(place.credentials),
            how_.for_browsers ? tls_server::clients::browsers : tls_server::clients::any);
    }
    listening_ =
        unique_fd(::socket(where.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    wake_ = unique_fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!listening_ || !wake_) {
        throw error(errc::no_memory,
                    fmt::format("cannot make a socket for HTTP ({})", std::strerror(errno)));
    }
    const int yes = 1;
    ::setsockopt(listening_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(listening_.get(), where.get(), where.size) != 0 ||
        ::listen(listening_.get(), static_cast<int>(most_connections)) != 0) {
        throw error(errno == EADDRINUSE ? errc::in_use : errc::invalid,
                    fmt::format("cannot listen at {} ({}), expected a free port; example: "
                                "127.0.0.1:0, which chooses one",
                                text_of(where), std::strerror(errno)));
    }
    ::getsockname(listening_.get(), where.get(), &where.size);
    address_ = text_of(where);
    origin_ = tls_ ? "https://" + host_for_clients(where, tls_->hosts()) : "http://" + address_;
}

void http_listener::run() noexcept {
    std::vector<::pollfd> looks;
    steady::time_point accepts_again{};  // After a failure: else poll() would not wait.
    bool asked_for_last = false;
    for (;;) {
        const steady::time_point now = steady::now();
        std::erase_if(all_,
                      [&](const connection& each) { return each.ended || now >= each.until; });
        try {
            looks.clear();
            looks.reserve(2 + most_connections);
        } catch (const std::bad_alloc&) {
            return;  // Only possible at the start.
        }
        // news() just before stop() may not have been seen yet.
        const bool asks_for_last = stops_ && !std::exchange(asked_for_last, stops_);
        if (!asks_for_last && is_to_end()) return;
        looks.push_back({wake_.get(), POLLIN, 0});
        looks.push_back({now >= accepts_again ? listening_.get() : -1, POLLIN, 0});
        steady::time_point next = now + std::chrono::hours(1);
        if (now < accepts_again) next = accepts_again;
        for (const connection& each : all_) {
            looks.push_back(
                {each.socket.get(), static_cast<short>(each.out.empty() ? POLLIN : POLLOUT), 0});
            next = std::min(next, each.until);
        }
        if (stops_) next = std::min(next, asks_for_last ? now : stop_by_);
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
        if (::poll(looks.data(), looks.size(), static_cast<int>(left)) < 0) continue;
        const bool has_news = looks[0].revents != 0 || asks_for_last;
        std::uint64_t times = 0;
        if (has_news) static_cast<void>(::read(wake_.get(), &times, sizeof times));
        for (std::size_t i = 2; i < looks.size(); ++i) {
            connection& one = all_[i - 2];
            try {
                if (looks[i].revents != 0) serve(one);
                if (has_news && !one.ended && one.more && one.out.empty()) continue_stream(one);
            } catch (const std::exception&) {  // Of `more`, or no memory.
                one.ended = true;
            }
        }
        if (looks[1].revents != 0 && !accept_all())
            accepts_again = steady::now() + std::chrono::milliseconds(100);
    }
}

bool http_listener::accept_all() {
    for (std::size_t i = 0; i < most_connections; ++i) {
        ::pollfd waits{listening_.get(), POLLIN, 0};
        if (::poll(&waits, 1, 0) != 1) return true;  // No newcomer waits: nobody is evicted.
        if (!make_room()) return false;
        unique_fd fresh(
            ::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fresh) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
        try {
            connection one{.socket = std::move(fresh), .until = steady::now() + longest};
            if (tls_) one.tls = tls_->accept();
            all_.push_back(std::move(one));
        } catch (const std::exception&) {  // No memory.
            return false;
        }
    }
    return true;
}

/// Whoever has connected and asks nothing makes room for those that come. False: all are being
/// answered.
bool http_listener::make_room() noexcept {
    std::erase_if(all_, [](const connection& each) { return each.ended; });
    if (all_.size() < most_connections) return true;
    const auto silent = std::find_if(all_.begin(), all_.end(),
                                     [](const connection& each) { return !each.is_answered; });
    if (silent == all_.end()) return false;
    all_.erase(silent);
    return true;
}

/// Whether stop() was called, and nothing is left to send that may still be sent.
bool http_listener::is_to_end() noexcept {
    if (!stops_) return false;
    if (steady::now() >= stop_by_) return true;
    return std::all_of(all_.begin(), all_.end(),
                       [](const connection& each) { return each.ended || each.out.empty(); });
}

void http_listener::serve(connection& one) {
    if (one.out.empty()) read(one);
    if (!one.out.empty() && !one.ended) write(one);
}

/// Takes what was received into `in`. False: it is no TLS.
bool http_listener::take(connection& one, std::string_view received) {
    if (one.tls) return static_cast<bool>(one.tls->take(received, one.in, one.out));
    one.in.append(received);
    return true;
}

/// What is to be sent, for `plain`; the last of it, unless more of a stream may follow.
void http_listener::put(connection& one, std::string plain) {
    one.out.erase(0, std::exchange(one.sent, 0));
    if (!one.tls) {
        one.out = std::move(plain);
        return;
    }
    one.tls->put(plain, one.out);
    if (!one.more) one.tls->end(one.out);
}

void http_listener::read(connection& one) {
    char part[most_request_bytes];
    const ssize_t got = ::recv(one.socket.get(), part, sizeof part, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        one.ended = true;
        return;
    }
    const bool is_first = !std::exchange(one.is_begun, true);
    if (one.tls && is_first && part[0] >= 'A' && part[0] <= 'Z') {  // No record begins so.
        one.tls.reset();
        one.is_answered = true;
        return put(one, bytes_of(sentence(400, "this address is encrypted, expected https")));
    }
    if (!take(one, {part, static_cast<std::size_t>(got)})) {
        one.is_refused = true;  // An alert says why.
        one.ended = one.out.empty();
        return;
    }
    if (one.more) {  // It has asked already.
        one.in.clear();
        return;
    }
    const std::size_t end = one.in.find("\r\n\r\n");
    if (end == one.in.npos && one.in.size() <= most_request_bytes) return;
    http_answer out;
    bool head = false;
    if (end > most_request_bytes) {
        out = sentence(431, "the request is too large, expected at most 8 KiB");
    } else if (unsent() > most_unsent_bytes) {
        out = sentence(503, "too many answers wait for slow readers; ask later");
    } else {
        out = answer_to(std::string_view(one.in).substr(0, end + 2), head);
        if (head) out.more = nullptr;
        if (out.more && streams() >= most_streams)
            out = sentence(503, "too many pages are open, expected at most 16; close some");
    }
    std::string bytes = bytes_of(out, !head);
    one.more = std::move(out.more);
    one.is_answered = true;
    put(one, std::move(bytes));
    one.in = std::string();
}

http_answer http_listener::answer_to(std::string_view request, bool& head) {
    std::string_view line = up_to(request, "\r\n");
    const std::string_view method = up_to(line, " ");
    std::string_view target = up_to(line, " ");
    if (!line.starts_with("HTTP/1.") || !target.starts_with('/')) {
        return sentence(400, "this is no request of HTTP/1.1; example: GET /metrics HTTP/1.1");
    }
    head = method == "HEAD";
    http_request asked{.path = std::string(up_to(target, "?"))};
    asked.query = target;
    asked.post = how_.posts && method == "POST";
    if (!head && !asked.post && method != "GET")
        return sentence(405, "nothing can be changed here, expected GET");
    std::string_view bearer;
    while (!request.empty()) {
        std::string_view field = up_to(request, "\r\n");
        const std::string_view name = up_to(field, ":");
        if (same_word(name, "accept")) {
            asked.accept += fmt::format("{},", trimmed(field));
        } else if (same_word(name, "origin")) {
            asked.origin = trimmed(field);
        } else if (same_word(name, "x-amalgam-token")) {
            asked.token = trimmed(field);
        } else if (same_word(name, "authorization")) {
            std::string_view words = trimmed(field);
            if (same_word(up_to(words, " "), "bearer")) bearer = trimmed(words);
        } else if (same_word(name, "host")) {
            asked.host = trimmed(field);
            // A certificate says whom clients may call so.
            if (!tls_ && !is_of_this_host(asked.host))
                return sentence(403,
                                "this is for clients on this host, by its loopback address; "
                                "example: http://127.0.0.1/metrics");
        }
    }
    if (!how_.has_own_token && !token_.empty() && !same_token(bearer, token_))
        return sentence(401,
                        "this is for clients that have the token, expected the field "
                        "Authorization: Bearer TOKEN");
    try {
        return answer_(asked);
    } catch (const std::exception& why) {
        return sentence(500, why.what());
    } catch (...) {
        return sentence(500,
                        "the function that answers threw an exception not derived from "
                        "std::exception");
    }
}

void http_listener::write(connection& one) {
    const ssize_t put = ::send(one.socket.get(), one.out.data() + one.sent,
                               one.out.size() - one.sent, MSG_NOSIGNAL);
    if (put < 0) {
        one.ended = errno != EAGAIN && errno != EINTR;
        return;
    }
    one.sent += static_cast<std::size_t>(put);
    if (one.sent < one.out.size()) return;
    if (one.more) return continue_stream(one);
    if (!one.is_answered && !one.is_refused) {  // It was TLS's own.
        one.out.clear();
        one.sent = 0;
        return;
    }
    // Bytes that nobody has read would turn the end into a reset, which may overtake the answer.
    ::shutdown(one.socket.get(), SHUT_WR);
    char rest[4096];
    static_cast<void>(::recv(one.socket.get(), rest, sizeof rest, MSG_DONTWAIT));
    one.ended = true;
}

/// Asks for what comes next, now that all before is sent. The time to read it begins anew.
void http_listener::continue_stream(connection& one) {
    put(one, one.more());
    one.until = one.out.empty() ? steady::time_point::max() : steady::now() + longest;
}

std::size_t http_listener::streams() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(all_.begin(), all_.end(),
                      [](const connection& each) { return !each.ended && each.more != nullptr; }));
}

std::size_t http_listener::unsent() const noexcept {
    std::size_t bytes = 0;
    for (const connection& each : all_)
        bytes += each.out.size();  // Kept whole until it is sent.
    return bytes;
}

}  // namespace amalgam::detail

#include "otlp/collector.hpp"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/status.hpp>

namespace amalgam::tool {

namespace {

constexpr std::size_t most_answer_bytes = std::size_t{1} << 20;

[[noreturn]] void refuse(const std::string& text) {
    throw error(errc::invalid,
                fmt::format("the collector \"{}\" is no address of one that takes OTLP over HTTP; "
                            "expected http://HOST:PORT or https://HOST:PORT; example: "
                            "http://localhost:4318",
                            text));
}

/// Ends what runs for too long: each of httplib's own limits is for one part of a request.
class watchdog {
public:
    watchdog(httplib::ClientImpl& client, std::chrono::milliseconds limit)
        : thread_([this, &client, limit] {
              std::unique_lock hold(lock_);
              if (ended_.wait_for(hold, limit, [this] { return is_over_; })) return;
              // Again and again: it may just be about to open the next connection.
              do {
                  client.stop();
              } while (!ended_.wait_for(hold, std::chrono::milliseconds(50),
                                        [this] { return is_over_; }));
          }) {}
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;
    ~watchdog() {
        {
            const std::lock_guard hold(lock_);
            is_over_ = true;
        }
        ended_.notify_one();
        thread_.join();
    }

private:
    std::mutex lock_;
    std::condition_variable ended_;
    bool is_over_ = false;
    std::thread thread_;
};

/// Of the answer to what was taken: {"partialSuccess":{"rejectedSpans":"3","errorMessage":"…"}}.
void read_partial_success(const std::string& body, collector_answer& answer) {
    const auto all = nlohmann::json::parse(body, nullptr, false);
    if (!all.is_object() || !all.contains("partialSuccess")) return;
    const auto& part = all["partialSuccess"];
    if (!part.is_object()) return;
    if (part.contains("errorMessage") && part["errorMessage"].is_string())
        answer.why = part["errorMessage"].get<std::string>();
    if (!part.contains("rejectedSpans")) return;
    const auto& number = part["rejectedSpans"];
    if (number.is_number_unsigned()) {
        answer.rejected = number.get<std::uint64_t>();
    } else if (number.is_string()) {
        const auto text = number.get<std::string>();
        std::from_chars(text.data(), text.data() + text.size(), answer.rejected);
    }
}

/// The sentence of a refusal: {"message":"…"}, or text.
std::string said_in(const std::string& body) {
    const auto all = nlohmann::json::parse(body, nullptr, false);
    std::string text = body;
    if (all.is_object() && all.contains("message") && all["message"].is_string())
        text = all["message"].get<std::string>();
    return text.substr(0, 200);
}

}  // namespace

collector_url collector_url::parse(const std::string& text, bool base) {
    collector_url url;
    std::string_view rest = text;
    if (rest.starts_with("http://")) {
        rest.remove_prefix(7);
    } else if (rest.starts_with("https://")) {
        rest.remove_prefix(8);
        url.encrypted = true;
    } else {
        refuse(text);
    }
    const std::size_t slash = rest.find('/');
    std::string_view authority = rest.substr(0, slash);
    url.path = slash == rest.npos ? "" : rest.substr(slash);
    const bool bad = std::any_of(text.begin(), text.end(), [](unsigned char c) {
        return c <= ' ' || c >= 0x7f || c == '#' || c == '@';
    });
    if (bad) refuse(text);
    std::string_view port;
    if (authority.starts_with('[')) {
        const std::size_t end = authority.find(']');
        if (end == authority.npos) refuse(text);
        url.host = authority.substr(1, end - 1);
        port = authority.substr(end + 1);
    } else {
        url.host = authority.substr(0, authority.find(':'));
        port = authority.substr(url.host.size());
    }
    url.port = url.encrypted ? 443 : 80;
    if (!port.empty()) {
        port.remove_prefix(port.front() == ':' ? 1 : 0);
        const char* const end = port.data() + port.size();
        const auto [stop, wrong] = std::from_chars(port.data(), end, url.port);
        if (wrong != std::errc{} || stop != end || url.port < 1 || url.port > 65535) refuse(text);
    }
    if (url.host.empty()) refuse(text);
    if (base) {
        while (url.path.ends_with('/'))
            url.path.pop_back();
        url.path += "/v1/traces";
    } else if (url.path.empty()) {
        url.path = "/";
    }
    return url;
}

std::string collector_url::text() const {
    const bool is_ipv6 = host.find(':') != host.npos;
    return fmt::format("{}://{}{}{}:{}{}", encrypted ? "https" : "http", is_ipv6 ? "[" : "", host,
                       is_ipv6 ? "]" : "", port, path);
}

class collector::connection {
public:
    explicit connection(collector_options options) : options_(std::move(options)) {
        const collector_url& url = options_.url;
        if (url.encrypted) {
            auto client = std::make_unique<httplib::SSLClient>(url.host, url.port);
            if (!options_.ca_file.empty()) client->set_ca_cert_path(options_.ca_file);
            client->enable_server_certificate_verification(true);
            client_ = std::move(client);
        } else {
            client_ = std::make_unique<httplib::ClientImpl>(url.host, url.port);
        }
        client_->set_connection_timeout(options_.timeout);
        client_->set_read_timeout(options_.timeout);
        client_->set_write_timeout(options_.timeout);
        client_->set_keep_alive(true);
        client_->set_decompress(false);
        client_->set_tcp_nodelay(true);
    }

    collector_answer post(const std::string& json) {
        std::string body;
        httplib::Request request;
        request.method = "POST";
        request.path = options_.url.path;
        for (const auto& [key, value] : options_.headers)
            request.headers.emplace(key, value);
        request.headers.emplace("Content-Type", "application/json");
        request.body = json;
        request.content_receiver = [&](const char* data, std::size_t bytes, std::uint64_t,
                                       std::uint64_t) {
            if (body.size() + bytes > most_answer_bytes) return false;
            body.append(data, bytes);
            return true;
        };
        const httplib::Result result = [&] {
            const watchdog limit(*client_, options_.timeout);
            return client_->send(request);
        }();
        collector_answer answer;
        if (!result) {
            answer.why = said_of(result.error());
            client_->stop();
            return answer;
        }
        read(*result, body, answer);
        return answer;
    }

private:
    std::string said_of(httplib::Error why) const {
        if (why == httplib::Error::SSLServerVerification) {
            return "its certificate is signed by no authority that is trusted here; "
                   "OTEL_EXPORTER_OTLP_CERTIFICATE names the file of one";
        }
        if (why == httplib::Error::SSLLoadingCerts)
            return "OTEL_EXPORTER_OTLP_CERTIFICATE names no readable file of certificates";
        return fmt::format("no answer within {} ms: {}", options_.timeout.count(),
                           httplib::to_string(why));
    }

    static void read(const httplib::Response& response, const std::string& body,
                     collector_answer& answer) {
        const int code = response.status;
        if (code >= 200 && code < 300) {
            answer.how = collector_answer::outcome::taken;
            return read_partial_success(body, answer);
        }
        const std::string said = said_in(body);
        answer.why = fmt::format("it answered {}{}{}", code, said.empty() ? "" : ": ", said);
        // Those that the protocol says to try again.
        if (code != 429 && code != 502 && code != 503 && code != 504) {
            answer.how = collector_answer::outcome::refused;
            return;
        }
        const std::string after = response.get_header_value("Retry-After");
        unsigned seconds = 0;
        const char* const end = after.data() + after.size();
        const auto [stop, wrong] = std::from_chars(after.data(), end, seconds);
        if (wrong == std::errc{} && stop == end && stop != after.data())
            answer.retry_after = std::chrono::seconds(std::min(seconds, 3600u));
    }

    collector_options options_;
    std::unique_ptr<httplib::ClientImpl> client_;
};

collector::collector(collector_options options)
    : connection_(std::make_unique<connection>(std::move(options))) {}
collector::~collector() = default;

collector_answer collector::post(const std::string& json) {
    return connection_->post(json);
}

}  // namespace amalgam::tool

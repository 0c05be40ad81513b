#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace amalgam::tool {

/// Where a collector of traces listens: http://HOST[:PORT][/PATH], or https.
struct collector_url {
    bool encrypted = false;
    std::string host;
    int port = 0;
    std::string path;

    /// `base`: the path lacks /v1/traces. Failure: throws error{invalid}.
    static collector_url parse(const std::string& text, bool base);
    std::string text() const;
};

struct collector_options {
    collector_url url;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string ca_file;  ///< PEM; empty: the system's.
    std::chrono::milliseconds timeout{10'000};
};

/// How a POST ended.
struct collector_answer {
    enum class outcome { taken, refused, later } how = outcome::later;
    std::string why;  ///< Of refused and later: what the collector said, or the network.
    /// Of later: how long it asks to be left alone; negative: it says nothing.
    std::chrono::seconds retry_after{-1};
    std::uint64_t rejected = 0;  ///< Spans that it took the others without.
};

/// A connection to a collector that takes OTLP over HTTP. A POST, with all of its parts, ends
/// within the timeout, whatever the other side does.
class collector {
public:
    explicit collector(collector_options options);
    collector(const collector&) = delete;
    collector& operator=(const collector&) = delete;
    ~collector();

    collector_answer post(const std::string& json);

private:
    class connection;
    std::unique_ptr<connection> connection_;
};

}  // namespace amalgam::tool

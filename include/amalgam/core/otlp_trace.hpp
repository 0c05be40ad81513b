#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace amalgam {

/// The pairs of "key=value,key=value", percent-encoded, as W3C Baggage has them, and
/// OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPORTER_OTLP_HEADERS; what is no such pair is left out.
std::vector<std::pair<std::string, std::string>> parse_baggage(std::string_view text);

/// Options of an otlp_reader.
struct otlp_options {
    std::size_t most_spans = 512;  ///< In one batch.
    /// Resource attributes of processes that had no OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES
    /// of their own. Without a name, a service is called as its program is.
    std::string service_name = {};
    std::string resource_attributes = {};  ///< "key=value,key=value", percent-encoded.
};

/// Spans of one process.
struct otlp_batch {
    std::string json;       ///< An ExportTraceServiceRequest, as a POST to /v1/traces carries it.
    std::size_t spans = 0;  ///< 0: there are none now, and `json` is empty.
};

/// Follows what processes record with AMALGAM_TRACE in some folders, and gives the spans of calls,
/// handlers and transfers as OTLP's JSON, each once. What the ULT of a handler waited for are
/// events of its span. Times are those of each host's wall clock.
///
/// Threads: like a plain value.
/// Cost:    memory for 16 MiB of records and 512 KiB of texts at a time. What was given is not
///          kept, and nothing is read before it is asked for, so the files are the queue.
class otlp_reader {
public:
    explicit otlp_reader(std::vector<std::string> folders, otlp_options options = {});
    otlp_reader(const otlp_reader&) = delete;
    otlp_reader& operator=(const otlp_reader&) = delete;
    ~otlp_reader();

    /// Failure: throws error{invalid} if a folder cannot be read.
    otlp_batch next();

    /// How many processes have been found so far.
    std::size_t processes() const noexcept;
    /// Records that found no room in their processes: see AMALGAM_TRACE_MIB.
    std::uint64_t dropped() const noexcept;
    /// Files that hold no trace, each with the reason.
    std::vector<std::string> unreadable() const;

private:
    class state;
    std::unique_ptr<state> state_;
};

}  // namespace amalgam

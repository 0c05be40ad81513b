#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace amalgam::detail {

/// The pairs of "key=value,key=value", percent-encoded, as W3C Baggage has them and
/// OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPORTER_OTLP_HEADERS; what is no such pair is left out.
std::vector<std::pair<std::string, std::string>> parse_baggage(std::string_view text);

}  // namespace amalgam::detail

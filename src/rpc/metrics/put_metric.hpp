#pragma once

#include <utility>
#include <vector>

#include <amalgam/core/metrics.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

inline constexpr metric_kind grows = metric_kind::counter;
inline constexpr metric_kind varies = metric_kind::gauge;

/// A number whose name the program has given to a metric of another kind is counted as failed; the
/// others are there all the same.
template <typename Value>
void put_metric(metric_writer& into, const metric_description& what,
                std::vector<metric_label> labels, const Value& value) {
    try {
        into.add(what, std::move(labels), value);
    } catch (const error&) {
        into.add_failure();
    }
}

}  // namespace amalgam::detail

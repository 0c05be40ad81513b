#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>

#include "perf/measurement.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {

/// One test over one URI, compared with bare libraries over the same medium.
struct comparison {
    measurement ours;
    std::vector<std::optional<measurement>> peers;  ///< In the order of the libraries.
};

/// The test's result as a number: microseconds, calls per second, GiB per second.
double figure_of(const perf_test& test, const measurement& m);
/// "us", "1/s", "GiB/s"
std::string_view unit_of(const perf_test& test);

/// Runs tests along with bare libraries. A missing library is reported once on standard error, and
/// left out.
///
/// Threads: one.
class comparer {
public:
    explicit comparer(std::vector<std::string> libraries) : libraries_(std::move(libraries)) {}

    /// Failure: throws the error of our own measurement.
    comparison run(const perf_test& test, const request& asked);

    std::string table_head() const;
    /// Ratios are ours over theirs, whichever direction is better.
    std::string table_row(const perf_test& test, const comparison& one) const;

private:
    std::optional<measurement> peer(const std::string& library, const perf_test& test,
                                    const request& asked);

    std::vector<std::string> libraries_;
    std::map<std::string, std::optional<measurement>> measured_;  // By all parameters.
    std::map<std::string, bool> said_;
};

}  // namespace amalgam::perf

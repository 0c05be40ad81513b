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

/// One test over one URI, and what bare libraries do over the same medium.
struct comparison {
    measurement ours;
    std::vector<std::optional<measurement>> peers;  ///< As the libraries are listed.
};

/// What a test is about, as a number: microseconds, calls a second, GiB a second.
double figure_of(const perf_test& test, const measurement& m);
/// "us", "1/s", "GiB/s"
std::string_view unit_of(const perf_test& test);

/// Runs tests beside bare libraries. A library that is missing is said once on the standard error
/// stream, and left out.
///
/// Threads: one.
class comparer {
public:
    explicit comparer(std::vector<std::string> libraries) : libraries_(std::move(libraries)) {}

    /// Failure: throws what our own measurement did.
    comparison run(const perf_test& test, const request& asked);

    std::string table_head() const;
    /// Ratios are ours over theirs, whichever way is better.
    std::string table_row(const perf_test& test, const comparison& one) const;

private:
    std::optional<measurement> peer(const std::string& library, const perf_test& test,
                                    const request& asked);

    std::vector<std::string> libraries_;
    std::map<std::string, std::optional<measurement>> measured_;  // By everything that was asked.
    std::map<std::string, bool> said_;
};

}  // namespace amalgam::perf

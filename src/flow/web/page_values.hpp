#pragma once

#include <string>
#include <vector>

#include <amalgam/flow/live_page.hpp>

namespace amalgam::detail {

/// A state, and its point of the time lines, as JSON.
struct page_texts {
    std::string state, point;
};
/// `returns`: whether a later page may have the same token; `before`: from when rates are.
page_texts texts_of(const page_options& of, bool returns, double seconds, const page_state& now,
                    const run_report& before);
/// The ULTs of a process, or why there are none, as JSON.
std::string text_of(const std::string& process, const result<ult_report>& told);
/// Lines of output as JSON.
std::string text_of(const std::vector<std::string>& lines);

}  // namespace amalgam::detail

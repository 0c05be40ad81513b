#include "flow/launcher/report.hpp"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {
namespace {

// For a file alone: so old may be what is known of a process that is killed.
constexpr std::chrono::milliseconds for_a_file{500};

}  // namespace

std::uint64_t collected_report::interval_ms() const noexcept {
    if (show_every_.count() > 0) return static_cast<std::uint64_t>(show_every_.count());
    return file_.empty() ? 0 : for_a_file.count();
}

void collected_report::take(std::size_t process, std::string_view json) {
    auto said = parse_run_report(json);
    if (!said) return;  // Of another version: what the others say is shown.
    if (by_process_.empty()) next_ = clock::now() + show_every_ / 4;  // The others are about to.
    by_process_[process] = std::move(said).value();
    news_ = true;
}

std::chrono::milliseconds collected_report::until_next(
    clock::time_point now, std::chrono::milliseconds never) const noexcept {
    if (show_every_.count() == 0 || !news_) return never;
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(next_ - now),
                    std::chrono::milliseconds(0));
}

std::string collected_report::next_line(clock::time_point now) {
    if (show_every_.count() == 0 || !news_ || now < next_) return {};
    news_ = false;
    next_ = now + show_every_;
    return all().line();
}

std::string collected_report::finish() const {
    const run_report whole = all();
    if (!file_.empty()) {
        std::ofstream to(file_);
        to << whole.json() << std::endl;
        if (!to)
            throw error(errc::not_found, fmt::format("--report names \"{}\", which cannot be "
                                                     "written, expected a file in a folder that "
                                                     "exists",
                                                     file_));
    }
    return show_every_.count() == 0 || by_process_.empty() ? "" : whole.text();
}

run_report collected_report::all() const {
    run_report whole;
    for (const auto& [process, said] : by_process_)
        whole.add(said);
    return whole;
}

}  // namespace amalgam::detail

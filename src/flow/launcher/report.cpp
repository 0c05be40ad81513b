#include "flow/launcher/report.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/live_page.hpp>

namespace amalgam::detail {
namespace {

// If only a file is wanted: maximum age of the data about a killed process.
constexpr std::chrono::milliseconds for_a_file{500};

error unwritable(const std::string& file) {
    return error(errc::not_found,
                 fmt::format("--report names \"{}\", which cannot be written, expected a file in a "
                             "folder that exists; example: report.json",
                             file));
}

}  // namespace

// Does not open it: a pipe would block, and a run that does not start leaves no file.
void collected_report::check(const std::string& file) {
    if (file.empty()) return;
    const bool is_new = ::access(file.c_str(), F_OK) != 0;
    const std::string folder = std::filesystem::path(file).parent_path().string();
    struct stat about {};
    const bool good = is_new ? ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0 &&
                                   std::filesystem::path(file).has_filename()
                             : ::access(file.c_str(), W_OK) == 0 &&
                                   ::stat(file.c_str(), &about) == 0 && !S_ISDIR(about.st_mode);
    if (!good) throw unwritable(file);
}

std::uint64_t collected_report::interval_ms() const noexcept {
    std::chrono::milliseconds every = show_every_;
    const auto also = [&](std::chrono::milliseconds other) {
        every = every.count() == 0 ? other : std::min(every, other);
    };
    if (web_) also(live_page::interval);
    if (!file_.empty() && show_every_.count() == 0) also(for_a_file);
    return static_cast<std::uint64_t>(every.count());
}

void collected_report::take(std::size_t process, std::string_view json) {
    auto said = parse_run_report(json);
    if (!said) return;  // Another version; the others are still shown.
    if (by_process_.empty()) next_ = clock::now() + show_every_ / 4;  // The others come next.
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
    run_report so_far = all();
    std::string line = so_far.line(last_);
    last_ = std::move(so_far);
    return line;
}

std::string collected_report::finish() const {
    const run_report whole = all();
    if (!file_.empty()) {
        std::ofstream to(file_);
        to << whole.json() << std::endl;
        if (!to) throw unwritable(file_);
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

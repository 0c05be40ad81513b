#include "chrome_events.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <unistd.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

trace_output::trace_output(const std::string& file)
    : file_(file), part_(fmt::format("{}.{}.part", file, ::getpid())) {
    if (file_ == "/dev/stdout" || file_ == "-") {
        to_ = stdout;
    } else if (std::error_code none; std::filesystem::exists(file_, none) &&
                                     !std::filesystem::is_regular_file(file_, none)) {
        part_ = file_;  // A pipe or device.
        to_ = std::fopen(part_.c_str(), "we");
    } else {
        to_ = std::fopen(part_.c_str(), "wxe");
    }
    if (to_ == nullptr) refuse(errno);
}

trace_output::~trace_output() {
    if (to_ == nullptr) return;
    if (to_ != stdout) std::fclose(to_);
    if (to_ != stdout && part_ != file_) ::unlink(part_.c_str());
}

void trace_output::add(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), to_) != text.size()) refuse(errno);
}

void trace_output::finish() {
    std::FILE* const to = std::exchange(to_, nullptr);
    int why = std::fflush(to) != 0 ? errno : 0;
    if (to != stdout && std::fclose(to) != 0 && why == 0) why = errno;
    if (why == 0 && to != stdout && part_ != file_ &&
        std::rename(part_.c_str(), file_.c_str()) != 0) {
        why = errno;
    }
    if (why == 0) return;
    if (to != stdout && part_ != file_) ::unlink(part_.c_str());
    refuse(why);
}

void trace_output::refuse(int why) const {
    throw error(errc::invalid,
                fmt::format("cannot write the trace to \"{}\" ({}); expected a file in a "
                            "folder of yours with room for it; example: -o /tmp/trace.json",
                            file_, std::strerror(why)));
}

}  // namespace amalgam::detail

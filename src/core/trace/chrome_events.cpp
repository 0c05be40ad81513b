#include "chrome_events.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

// A number, too: other threads may write the same file.
trace_output::trace_output(const std::string& file)
    : file_(file), part_(fmt::format("{}.{}-{:016x}.part", file, ::getpid(), random_u64())) {
    if (file_ == "/dev/stdout" || file_ == "-") {
        to_ = stdout;
    } else if (std::error_code none; std::filesystem::exists(file_, none) &&
                                     !std::filesystem::is_regular_file(file_, none)) {
        part_ = file_;  // A pipe or device.
        to_ = std::fopen(part_.c_str(), "we");
    } else {
        to_ = open_part();
    }
    if (to_ == nullptr) refuse(errno);
}

trace_output::~trace_output() {
    if (to_ == nullptr) return;
    if (to_ != stdout) std::fclose(to_);
    if (has_name_) ::unlink(part_.c_str());
}

// Without a name until it is complete, so that nothing is left of it however this process ends.
std::FILE* trace_output::open_part() {
    std::string folder = std::filesystem::path(file_).parent_path().string();
    if (folder.empty()) folder = ".";
    const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (unnamed >= 0) {
        std::FILE* const opened = ::fdopen(unnamed, "w");
        if (opened == nullptr) ::close(unnamed);
        return opened;
    }
    // The file system, a network's for example, has none of those.
    std::FILE* const opened = std::fopen(part_.c_str(), "wxe");
    has_name_ = opened != nullptr;
    return opened;
}

/// Gives the file the name of its part; returns errno. It cannot take another's place at once.
int trace_output::name_part(int file) {
    const std::string unnamed = fmt::format("/proc/self/fd/{}", file);
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, part_.c_str(), AT_SYMLINK_FOLLOW) != 0)
        return errno;
    has_name_ = true;
    return 0;
}

void trace_output::add(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), to_) != text.size()) refuse(errno);
}

void trace_output::finish() {
    std::FILE* const to = std::exchange(to_, nullptr);
    const bool takes_place = to != stdout && part_ != file_;
    int why = std::fflush(to) != 0 ? errno : 0;
    if (why == 0 && takes_place && !has_name_) why = name_part(::fileno(to));
    if (to != stdout && std::fclose(to) != 0 && why == 0) why = errno;
    if (why == 0 && takes_place && std::rename(part_.c_str(), file_.c_str()) != 0) why = errno;
    if (why == 0) return;
    if (has_name_) ::unlink(part_.c_str());
    refuse(why);
}

void trace_output::refuse(int why) const {
    throw error(errc::invalid,
                fmt::format("cannot write the trace to \"{}\" ({}); expected a file in a "
                            "folder of yours with room for it; example: -o /tmp/trace.json",
                            file_, std::strerror(why)));
}

}  // namespace amalgam::detail

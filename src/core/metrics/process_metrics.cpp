#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <amalgam/core/metrics.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam {

namespace {

/// Of a file that the kernel writes as it is read, at once; empty if it cannot be read.
std::string kernel_file(const char* path) {
    const unique_fd file(::open(path, O_RDONLY | O_CLOEXEC));
    if (!file) return {};
    std::string text(8192, '\0');
    const ::ssize_t got = ::read(file.get(), text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
}

/// Word `index` of `text`, from 0, as a number.
bool number_at(std::string_view text, unsigned index, std::uint64_t& into) {
    for (; index > 0; --index) {
        const std::size_t space = text.find(' ');
        if (space == text.npos) return false;
        text.remove_prefix(space + 1);
    }
    return std::from_chars(text.data(), text.data() + text.size(), into).ec == std::errc();
}

double in_seconds(const ::timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

void write_process_metrics(metric_writer& into) {
    ::rusage used{};
    if (::getrusage(RUSAGE_SELF, &used) == 0) {
        into.add({"process_cpu_seconds_total", "Processor time of the process, user and system.",
                  metric_kind::counter, "seconds"},
                 {}, in_seconds(used.ru_utime) + in_seconds(used.ru_stime));
    }
    // The second field is the program's name in parentheses, and may contain anything.
    const std::string stat = kernel_file("/proc/self/stat");
    const std::size_t name_end = stat.rfind(") ");
    std::uint64_t number = 0;
    if (name_end != stat.npos) {
        const std::string_view rest = std::string_view(stat).substr(name_end + 2);
        if (number_at(rest, 17, number)) {
            into.add({"process_threads", "Threads of the process."}, {},
                     static_cast<double>(number));
        }
        if (number_at(rest, 21, number)) {
            into.add({"process_resident_memory_bytes", "Memory of the process that is in RAM.",
                      metric_kind::gauge, "bytes"},
                     {},
                     static_cast<double>(number) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
        }
    }
    if (::DIR* const folder = ::opendir("/proc/self/fd")) {
        double open = -1;  // Without the one that reads.
        while (const ::dirent* const each = ::readdir(folder))
            open += each->d_name[0] != '.';
        ::closedir(folder);
        into.add({"process_open_fds", "Open file descriptors of the process."}, {}, open);
    }
}

}  // namespace amalgam

#include "fabric/trust/keys/new_file.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/whole_file.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {
namespace {

constexpr int most_attempts = 1000;
constexpr std::chrono::milliseconds attempt_interval{10};

[[noreturn]] void cannot_write(const std::string& path) {
    const int why = errno;
    throw error(status{errc::denied, why},
                fmt::format("\"{}\" cannot be written ({})", path, std::strerror(why)));
}

[[noreturn]] void is_taken(const std::string& path) {
    throw error(errc::in_use, fmt::format("\"{}\" exists already and is not replaced without being "
                                          "told to; example: --force",
                                          path));
}

void check_written(const std::string& path, const write_fault& fault) {
    if (!fault) return;
    errno = fault.native;
    cannot_write(path);
}

void place(const std::string& path, whole_file& file) {
    const write_fault fault = file.place();
    if (fault.native == EEXIST && !file.replaces()) is_taken(path);
    check_written(path, fault);
}

file_writing in_locked_folder(unsigned mode, bool overwrite) {
    return {.mode = mode, .has_exact_mode = true, .replaces = overwrite, .is_alone = true};
}

}  // namespace

void write_file(const std::string& path, std::string_view content, unsigned mode, bool overwrite) {
    whole_file file(path, in_locked_folder(mode, overwrite));
    check_written(path, file.write(as_bytes_of(content)));
    place(path, file);
    sync_folder_of(path);
}

struct file_changes::change {
    explicit change(const std::string& where) : path(where), gone(where + ".gone") {}

    /// So that it can come back.
    void keep_what_is_there() {
        if (comes && !comes->replaces()) return;
        ::unlink(gone.c_str());
        is_kept = ::link(path.c_str(), gone.c_str()) == 0;
        if (!is_kept && errno != ENOENT) cannot_write(path);
    }

    void carry_out() {
        if (comes)
            place(path, *comes);
        else if (::unlink(path.c_str()) != 0 && errno != ENOENT)
            cannot_write(path);
        is_done = true;
    }

    void undo() noexcept {
        if (is_kept) {
            ::rename(gone.c_str(), path.c_str());
            // What was not replaced yet has both names, and rename() leaves them.
            ::unlink(gone.c_str());
        } else if (is_done && comes) {
            ::unlink(path.c_str());
        }
    }

    const std::string path, gone;
    std::optional<whole_file> comes;  // None: the file goes.
    bool is_kept = false;             // As `gone`.
    bool is_done = false;
};

file_changes::file_changes() = default;
file_changes::~file_changes() = default;

void file_changes::write(const std::string& path, std::string_view content, unsigned mode,
                         bool overwrite) {
    auto made = std::make_unique<change>(path);
    made->comes.emplace(path, in_locked_folder(mode, overwrite));
    check_written(path, made->comes->write(as_bytes_of(content)));
    all_.push_back(std::move(made));
}

void file_changes::remove(const std::string& path) {
    all_.push_back(std::make_unique<change>(path));
}

void file_changes::finish() {
    try {
        for (const auto& each : all_)
            if (each->comes) check_written(each->path, each->comes->prepare());
        for (const auto& each : all_)
            each->keep_what_is_there();
        for (const auto& each : all_)
            each->carry_out();
    } catch (...) {
        for (auto each = all_.rbegin(); each != all_.rend(); ++each)
            (*each)->undo();
        throw;
    }
    for (const auto& each : all_)
        ::unlink(each->gone.c_str());
    if (!all_.empty()) sync_folder_of(all_.front()->path);
}

void make_folder(const std::string& path) {
    for (std::size_t end = 0; end != path.npos;) {
        end = path.find('/', end + 1);
        const std::string part = path.substr(0, end);
        if (part.empty() || is_folder(part)) continue;
        if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) cannot_write(part);
    }
    if (!is_folder(path)) {
        errno = ENOTDIR;
        cannot_write(path);
    }
}

unique_fd lock_folder(const std::string& path) {
    unique_fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) {
        const int why = errno;
        throw error(status{errc::not_found, why},
                    fmt::format("there is no folder \"{}\" ({}), expected one that `amalgam key "
                                "new` made",
                                path, std::strerror(why)));
    }
    // Not for ever: who holds it may be stopped.
    for (int i = 0; ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
        if (errno != EWOULDBLOCK && errno != EINTR) cannot_write(path);
        if (i == most_attempts)
            throw error(errc::in_use, fmt::format("the folder \"{}\" is being changed by another "
                                                  "process, which does not end",
                                                  path));
        std::this_thread::sleep_for(attempt_interval);
    }
    return folder;
}

bool is_folder(const std::string& path) noexcept {
    struct stat about {};
    return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

bool is_there(const std::string& path) noexcept {
    struct stat about {};
    return ::lstat(path.c_str(), &about) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

}  // namespace amalgam::detail

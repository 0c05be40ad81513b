#include "fabric/trust/keys/new_file.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Takes the place `as` for what stands under the name `from`, or, with `from` empty, for a file
/// without a name. Returns errno, 0 for success.
int give_name(const std::string& from, const unique_fd& file, const std::string& as) {
    const std::string open_file = fmt::format("/proc/self/fd/{}", file.get());
    const char* const what = from.empty() ? open_file.c_str() : from.c_str();
    return ::linkat(AT_FDCWD, what, AT_FDCWD, as.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/// A file on its way to its place. Where the file system can do that it has no name until then, and
/// the kernel frees it if this process is killed. Else, and for the moment in which it replaces
/// another, its name is NAME.new; the next that writes to NAME removes what was left there.
class unfinished_file {
public:
    unfinished_file(const std::string& as, unsigned mode, bool overwrite)
        : as_(as), beside_(as + ".new"), overwrite_(overwrite) {
        ::unlink(beside_.c_str());
        if (::access("/proc/self/fd", X_OK) == 0)
            file_.reset(::open(folder_of(as).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
        if (!file_) {
            file_.reset(::open(beside_.c_str(),
                               O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
            has_name_ = static_cast<bool>(file_);
        }
        if (!file_) cannot_write(as);
        if (::fchmod(file_.get(), mode) != 0) fail();
    }
    unfinished_file(const unfinished_file&) = delete;
    unfinished_file& operator=(const unfinished_file&) = delete;
    ~unfinished_file() {
        if (has_name_) ::unlink(beside_.c_str());
    }

    void write(std::string_view content) {
        while (!content.empty()) {
            const ssize_t put = ::write(file_.get(), content.data(), content.size());
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) fail();
            content.remove_prefix(static_cast<std::size_t>(put));
        }
        if (::fsync(file_.get()) != 0) fail();
    }

    bool overwrites() const noexcept { return overwrite_; }

    /// What place() needs room in the folder for.
    void prepare() {
        if (!overwrite_ || has_name_) return;
        if (const int why = give_name({}, file_, beside_); why != 0) fail(why);
        has_name_ = true;
    }

    void place() {
        if (!overwrite_) {  // A link does not replace anything.
            const int why = give_name(has_name_ ? beside_ : std::string(), file_, as_);
            if (why == EEXIST) is_taken(as_);
            if (why != 0) fail(why);
            return;
        }
        prepare();
        if (::rename(beside_.c_str(), as_.c_str()) != 0) fail();
        has_name_ = false;
    }

private:
    [[noreturn]] void fail(int why = errno) {
        if (std::exchange(has_name_, false)) ::unlink(beside_.c_str());
        errno = why;
        cannot_write(as_);
    }

    const std::string as_, beside_;
    const bool overwrite_;
    unique_fd file_;
    bool has_name_ = false;  // beside_
};

/// Names in it are on the disk, too.
void sync_folder_of(const std::string& path) noexcept {
    const unique_fd folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder) ::fsync(folder.get());
}

}  // namespace

void write_file(const std::string& path, std::string_view content, unsigned mode, bool overwrite) {
    unfinished_file file(path, mode, overwrite);
    file.write(content);
    file.place();
    sync_folder_of(path);
}

struct file_changes::change {
    explicit change(const std::string& where) : path(where), gone(where + ".gone") {}

    /// So that it can come back.
    void keep_what_is_there() {
        if (comes && !comes->overwrites()) return;
        ::unlink(gone.c_str());
        is_kept = ::link(path.c_str(), gone.c_str()) == 0;
        if (!is_kept && errno != ENOENT) cannot_write(path);
    }

    void carry_out() {
        if (comes)
            comes->place();
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
    std::optional<unfinished_file> comes;  // None: the file goes.
    bool is_kept = false;                  // As `gone`.
    bool is_done = false;
};

file_changes::file_changes() = default;
file_changes::~file_changes() = default;

void file_changes::write(const std::string& path, std::string_view content, unsigned mode,
                         bool overwrite) {
    auto made = std::make_unique<change>(path);
    made->comes.emplace(path, mode, overwrite);
    made->comes->write(content);
    all_.push_back(std::move(made));
}

void file_changes::remove(const std::string& path) {
    all_.push_back(std::make_unique<change>(path));
}

void file_changes::finish() {
    try {
        for (const auto& each : all_)
            if (each->comes) each->comes->prepare();
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

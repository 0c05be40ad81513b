#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/detail/whole_file.hpp>
#include <amalgam/core/random.hpp>

namespace amalgam::detail {
namespace {

namespace files = std::filesystem;

constexpr int most_links = 40;  // As the kernel's.

files::path folder_of(const files::path& path) {
    return path.has_parent_path() ? path.parent_path() : files::path(".");
}

/// Whether the link may have been laid there for us by another user, as in /tmp. The kernel refuses
/// these, too, but not where fs.protected_symlinks is 0.
bool is_from_a_stranger(const struct stat& link, const files::path& folder) {
    struct stat around = {};
    constexpr ::mode_t anybodys = S_ISVTX | S_IWOTH;
    return link.st_uid != ::geteuid() && ::stat(folder.c_str(), &around) == 0 &&
           (around.st_mode & anybodys) == anybodys && around.st_uid != link.st_uid;
}

/// From a file to the one that it leads to by links, which need not be there yet. Returns errno.
int follow_links(files::path& path) {
    struct stat there = {};
    for (int links = 0; ::lstat(path.c_str(), &there) == 0 && S_ISLNK(there.st_mode); ++links) {
        const files::path folder = folder_of(path);
        if (links == most_links) return ELOOP;
        if (is_from_a_stranger(there, folder)) return EACCES;
        std::error_code why;
        path = folder / files::read_symlink(path, why);  // Absolute: the link's alone.
        if (why) return why.value();
    }
    return 0;
}

/// Gives the file another name; with `from` empty, one that has none yet. Returns errno.
int give_name(const std::string& from, const unique_fd& file, const char* as) {
    const std::string open_file = fmt::format("/proc/self/fd/{}", file.get());
    const char* const what = from.empty() ? open_file.c_str() : from.c_str();
    return ::linkat(AT_FDCWD, what, AT_FDCWD, as, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

}  // namespace

write_fault write_fault::of(int native) {
    if (native == 0) return {};
    return {native, std::strerror(native)};
}

write_fault whole_file::find_place() {
    place_ = path_;
    struct stat there = {};
    const bool looks =
        how_.follows_links || how_.keeps_mode || how_.special != special_file::replaced;
    if (looks && ::stat(path_.c_str(), &there) != 0) {
        if (errno != ENOENT) return fail(errno);
    } else if (looks && S_ISREG(there.st_mode)) {
        if (how_.keeps_mode) kept_mode_ = there.st_mode & 07777;
    } else if (how_.special == special_file::refused) {
        if (S_ISDIR(there.st_mode)) return fail(EISDIR);
        return {0, "it is no regular file"};
    } else if (how_.special == special_file::written) {
        is_special_ = true;
        return {};
    }
    if (how_.follows_links) return fail(follow_links(place_));
    return {};
}

write_fault whole_file::open() {
    if (is_special_) {
        file_.reset(::open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
        return fail(file_ ? 0 : errno);
    }
    // What others may not read is open to nobody before its mode is set.
    const bool is_set_later = how_.has_exact_mode || kept_mode_;
    const ::mode_t first = is_set_later ? 0600 : how_.mode;
    beside_ = place_.string();
    if (how_.is_alone)
        ::unlink((beside_ += ".new").c_str());
    else
        beside_ += fmt::format(".{:016x}", random_u64());
    if (::access("/proc/self/fd", X_OK) == 0)
        file_.reset(::open(folder_of(place_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, first));
    if (!file_) {
        constexpr int fresh = O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
        file_.reset(::open(beside_.c_str(), fresh, first));
        has_name_ = static_cast<bool>(file_);
    }
    if (!file_) return fail(errno);
    if (is_set_later && ::fchmod(file_.get(), kept_mode_.value_or(how_.mode)) != 0 &&
        how_.has_exact_mode)
        return fail(errno);
    return {};
}

write_fault whole_file::put(const_bytes content) {
    while (!content.empty()) {
        const ssize_t put = ::write(file_.get(), content.data(), content.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail(errno);
        content = content.subspan(static_cast<std::size_t>(put));
    }
    // Not every file system, and no device, can do that.
    if (!is_special_ && ::fsync(file_.get()) != 0 && errno != EINVAL) return fail(errno);
    return {};
}

write_fault whole_file::write(const_bytes content) {
    if (auto why = find_place()) return why;
    if (auto why = open()) return why;
    return put(content);
}

write_fault whole_file::prepare() {
    if (is_special_ || !how_.replaces || has_name_) return {};
    const int why = give_name({}, file_, beside_.c_str());
    has_name_ = why == 0;
    return fail(why);
}

write_fault whole_file::place() {
    if (is_special_) return {};
    if (!how_.replaces)  // A link does not replace anything.
        return fail(give_name(has_name_ ? beside_ : std::string(), file_, place_.c_str()));
    if (auto why = prepare()) return why;
    if (std::rename(beside_.c_str(), place_.c_str()) != 0) return fail(errno);
    has_name_ = false;
    return {};
}

void whole_file::remove_unplaced() noexcept {
    if (std::exchange(has_name_, false)) ::unlink(beside_.c_str());
}

/// 0: nothing has failed.
write_fault whole_file::fail(int why) {
    if (why != 0) remove_unplaced();
    return write_fault::of(why);
}

void sync_folder_of(const files::path& file) noexcept try {
    const unique_fd folder(::open(folder_of(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder) ::fsync(folder.get());
} catch (const std::bad_alloc&) {  // The file is there all the same.
}

write_fault write_whole_file(const std::string& path, const_bytes content,
                             const file_writing& how) {
    whole_file file(path, how);
    if (auto why = file.write(content)) return why;
    if (auto why = file.place()) return why;
    sync_folder_of(file.where());
    return {};
}

}  // namespace amalgam::detail

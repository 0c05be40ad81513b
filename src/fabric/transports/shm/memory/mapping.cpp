#include "fabric/transports/shm/memory/mapping.hpp"

#include <cerrno>
#include <cstdio>
#include <ctime>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace amalgam::detail {

shm_mapping::~shm_mapping() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
}

shm_mapping shm_mapping::of(int fd, std::size_t offset, std::size_t bytes, bool writable) noexcept {
    const int rights = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* at = ::mmap(nullptr, bytes, rights, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return {};
    return {static_cast<std::byte*>(at), bytes};
}

bool shm_mapping::allow_writing() noexcept {
    return ::mprotect(data_, bytes_, PROT_READ | PROT_WRITE) == 0;
}

shm_mapping shm_mapping::mirrored(int fd, std::size_t offset, std::size_t bytes) noexcept {
    void* space = ::mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) return {};
    shm_mapping both(static_cast<std::byte*>(space), 2 * bytes);
    for (std::size_t view : {std::size_t{0}, bytes}) {
        void* at = ::mmap(both.data_ + view, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          fd, static_cast<off_t>(offset));
        if (at == MAP_FAILED) return {};
    }
    return both;
}

namespace {

/// Extends a file. A file size limit (`ulimit -f`) gives EFBIG, not a signal.
bool set_length(int fd, std::size_t bytes) noexcept {
    sigset_t limit, before, pending;
    ::sigemptyset(&limit);
    ::sigaddset(&limit, SIGXFSZ);
    ::sigpending(&pending);
    const bool was_pending = ::sigismember(&pending, SIGXFSZ) == 1;
    ::pthread_sigmask(SIG_BLOCK, &limit, &before);
    const bool done = ::ftruncate(fd, static_cast<off_t>(bytes)) == 0;
    const int error = errno;
    if (!done && error == EFBIG && !was_pending) {
        constexpr timespec at_once{};
        while (::sigtimedwait(&limit, nullptr, &at_once) < 0 && errno == EINTR) {
        }
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error;
    return done;
}

/// Whether the system accounts for memory before it is touched; it then raises SIGBUS for a page of
/// a memory file if there is none.
bool is_memory_counted() noexcept {
    static const bool counted = [] {
        const unique_fd file(::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
        char mode = 0;
        return file && ::read(file.get(), &mode, 1) == 1 && mode == '2';
    }();
    return counted;
}

}  // namespace

bool reserve_shm_pages(int fd, std::size_t offset, std::size_t bytes) noexcept {
    return !is_memory_counted() || take_shm_pages(fd, offset, bytes);
}

bool take_shm_pages(int fd, std::size_t offset, std::size_t bytes) noexcept {
    int how = -1;
    do {
        how = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                          static_cast<off_t>(bytes));
    } while (how != 0 && errno == EINTR);
    return how == 0;
}

result<unique_fd> make_shm_memory(std::size_t bytes) {
    unique_fd fd(::memfd_create("amalgam-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
    if (!fd && errno == EINVAL)  // Before Linux 6.3.
        fd.reset(::memfd_create("amalgam-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    // Whoever is passed it could else open it anew with other rights.
    if (!fd || ::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 || !set_length(fd.get(), bytes) ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        const int error = errno;
        return failure{
            {errc::no_memory, error},
            error == EFBIG
                ? fmt::format("shm: shared memory of {} bytes exceeds the file size limit, which "
                              "applies to it; raise the limit (ulimit -f)",
                              bytes)
                : fmt::format("shm: cannot allocate {} bytes of shared memory (errno {}); check "
                              "the limits on memory and open files (ulimit -n)",
                              bytes, error)};
    }
    return fd;
}

unique_fd reopen_to_read(int fd) noexcept {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return unique_fd(::open(path, O_RDONLY | O_CLOEXEC));
}

bool forbid_new_writers(int fd) noexcept {
    return ::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
}

unique_fd reopen_shm_memory(pid_t owner, std::uint64_t descriptor, std::uint64_t device,
                            std::uint64_t inode, std::size_t bytes, bool writable) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%ld/fd/%lu", static_cast<long>(owner),
                  static_cast<unsigned long>(descriptor));
    const auto is_it = [&](const struct stat& facts) {
        return S_ISREG(facts.st_mode) && facts.st_dev == device && facts.st_ino == inode;
    };
    // Checked before opening, as opening may have side effects if it is a device by now.
    struct stat facts {};
    if (::stat(path, &facts) != 0) return {};
    errno = EXDEV;
    if (!is_it(facts)) return {};
    unique_fd fd(::open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!fd) return {};
    errno = EXDEV;
    if (::fstat(fd.get(), &facts) != 0 || !is_it(facts) || !is_shm_memory(fd.get(), bytes))
        return {};
    return fd;
}

bool is_shm_memory(int fd, std::size_t bytes) noexcept {
    struct stat facts {};
    struct statfs place {};
    // Rejects huge pages (hugetlbfs supports seals too): there may be none left where the creator
    // punched a hole, and touching it would raise SIGBUS.
    if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) ||
        facts.st_size != static_cast<off_t>(bytes) || ::fstatfs(fd, &place) != 0 ||
        place.f_type != TMPFS_MAGIC)
        return false;
    // Files on disks or servers have no seals: EINVAL.
    const int seals = ::fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace amalgam::detail

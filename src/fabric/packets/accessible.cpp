#include "fabric/packets/accessible.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace amalgam::detail {
namespace {

struct file_close {
    void operator()(std::FILE* one) const noexcept { std::fclose(one); }
};

/// Whether the mapping of `at` has these rights. True if the system does not tell.
bool mapping_allows(std::uintptr_t at, bool write) noexcept {
    const std::unique_ptr<std::FILE, file_close> maps(std::fopen("/proc/self/maps", "re"));
    if (maps == nullptr) return true;
    char line[512];
    while (std::fgets(line, sizeof line, maps.get()) != nullptr) {
        unsigned long first = 0, end = 0;
        char rights[5] = {};
        if (std::sscanf(line, "%lx-%lx %4s", &first, &end, rights) != 3) continue;
        if (at >= first && at < end) return rights[write ? 1 : 0] != '-';
    }
    return false;
}

bool page_allows(std::uintptr_t at, std::uintptr_t page_bytes, bool write) noexcept {
    static const bool is_known = ::madvise(nullptr, 0, MADV_POPULATE_READ) == 0;
    if (!is_known) return true;
    const std::uintptr_t page = at - at % page_bytes;
    if (::madvise(reinterpret_cast<void*>(page), page_bytes,
                  write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
        return true;
    if (errno == EFAULT || errno == ENOMEM) return false;
    // Device memory is refused with the same error as missing rights.
    return errno != EINVAL || mapping_allows(at, write);
}

}  // namespace

result<void> check_accessible(scatter segments, access rights) noexcept try {
    const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const bool write = allows(rights, access::write);
    for (const mutable_bytes& one : segments) {
        if (one.empty()) continue;
        const auto first = reinterpret_cast<std::uintptr_t>(one.data());
        const auto last = first + one.size() - 1;
        for (const std::uintptr_t at : {first, last}) {
            if (page_allows(at, page_bytes, write)) {
                if (last / page_bytes == first / page_bytes) break;
                continue;
            }
            return failure{{errc::invalid, EFAULT},
                           fmt::format("the memory at {:#x} cannot be {} by this process, so peers "
                                       "cannot access it either",
                                       at, write ? "written" : "read")};
        }
    }
    return {};
} catch (const std::bad_alloc&) {
    return failure{{errc::no_memory}, {}};
}

}  // namespace amalgam::detail

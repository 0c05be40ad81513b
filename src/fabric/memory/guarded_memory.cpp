#include "fabric/memory/guarded_memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace amalgam::detail {
namespace {

using transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                             unsigned long);

enum class outcome { whole, faulted, refused };

/// Moves `bytes` bytes between `near` and `far`, which the kernel treats as another process's
/// memory.
outcome move(transfer call, void* near, void* far, std::size_t bytes) noexcept {
    while (bytes > 0) {
        const iovec here{near, bytes};
        const iovec there{far, bytes};
        const ssize_t moved = call(::getpid(), &here, 1, &there, 1, 0);
        if (moved <= 0) return moved < 0 && errno != EFAULT ? outcome::refused : outcome::faulted;
        near = static_cast<std::byte*>(near) + moved;
        far = static_cast<std::byte*>(far) + moved;
        bytes -= static_cast<std::size_t>(moved);
    }
    return outcome::whole;
}

bool can_fault_in() noexcept {
    static const bool is_known = ::madvise(nullptr, 0, MADV_POPULATE_READ) == 0;
    return is_known;
}

/// Faults pages in, and changes nothing. Returns errno; 0 if the system does not know how.
int fault_in(const_bytes memory, int advice) noexcept {
    static const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::uintptr_t before = at % page_bytes;
    if (!can_fault_in() ||
        ::madvise(reinterpret_cast<void*>(at - before), memory.size() + before, advice) == 0)
        return 0;
    return errno;
}

}  // namespace

bool read_guarded(const_bytes from, std::byte* to) noexcept {
    const outcome how =
        move(&::process_vm_readv, to, const_cast<std::byte*>(from.data()), from.size());
    if (how == outcome::refused) std::memcpy(to, from.data(), from.size());
    return how != outcome::faulted;
}

bool write_guarded(mutable_bytes to, const std::byte* from) noexcept {
    const outcome how =
        move(&::process_vm_writev, const_cast<std::byte*>(from), to.data(), to.size());
    if (how == outcome::refused) std::memcpy(to.data(), from, to.size());
    return how != outcome::faulted;
}

bool is_readable(const_bytes memory) noexcept {
    std::array<std::byte, 4096> scratch;
    while (!memory.empty()) {
        const const_bytes some = memory.first(std::min(memory.size(), scratch.size()));
        if (move(&::process_vm_readv, scratch.data(), const_cast<std::byte*>(some.data()),
                 some.size()) == outcome::faulted)
            return false;
        memory = memory.subspan(some.size());
    }
    return true;
}

bool is_readable_now(const_bytes memory) noexcept {
    if (!can_fault_in()) return is_readable(memory);
    return fault_in(memory, MADV_POPULATE_READ) == 0;
}

bool is_writable_now(mutable_bytes memory) noexcept {
    return fault_in(memory, MADV_POPULATE_WRITE) == 0;
}

bool user_memory::copy_in(std::span<const mutable_bytes> to, segment_cursor& at,
                          const_bytes from) noexcept {
    if (scratch_.empty()) {
        detail::copy_in(to, at, from);
        return true;
    }
    bool whole = true;
    walk(to, at, from.size(), [&](mutable_bytes piece) {
        whole = whole && write_guarded(piece, from.data());
        from = from.subspan(piece.size());
    });
    return whole;
}

bool user_memory::may_update(mutable_bytes memory) const noexcept {
    return scratch_.empty() || fault_in(memory, MADV_POPULATE_WRITE) == 0;
}

bool user_memory::may_read(std::span<const const_bytes> memory) const noexcept {
    if (scratch_.empty()) return true;
    for (const const_bytes& one : memory) {
        const int error = one.empty() ? 0 : fault_in(one, MADV_POPULATE_READ);
        if (error != 0 && error != EINVAL) return false;
    }
    return true;
}

bool user_memory::fetch_small(std::vector<const_bytes>& pieces, std::size_t first,
                              std::size_t bytes) noexcept {
    if (bytes == 0 || bytes > scratch_.size()) return true;
    std::byte* to = scratch_.data();
    for (std::size_t i = first; i < pieces.size(); ++i) {
        if (!read_guarded(pieces[i], to)) return false;
        to += pieces[i].size();
    }
    pieces.resize(first + 1);
    pieces[first] = {scratch_.data(), bytes};
    return true;
}

}  // namespace amalgam::detail

#include "fabric/transports/shm/memory/arena.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace amalgam::detail {
namespace {

bool is_among_the_last(int fd) noexcept {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           static_cast<rlim_t>(fd) >= limit.rlim_cur / 2;
}

}  // namespace

shm_arena::shm_arena(unique_fd fd, shm_mapping memory, const shm_shown_block& shown)
    : fd_(std::move(fd)), memory_(std::move(memory)), shown_(shown), gaps_{{0, shown.bytes}} {}

result<shm_arena> shm_arena::make(std::size_t bytes) {
    result<unique_fd> fd = make_shm_memory(bytes);
    if (!fd) return fd.why();
    if (is_among_the_last(fd->get()))
        return failure{{errc::overloaded, EMFILE}, "shm: half of the file descriptors are in use"};
    struct stat facts {};
    shm_mapping memory = shm_mapping::of(fd->get(), 0, bytes, /*writable=*/true);
    if (!memory || ::fstat(fd->get(), &facts) != 0)
        return failure{{errc::no_memory, errno}, "shm: out of address space for a block"};
    const shm_shown_block shown{.address = reinterpret_cast<std::uint64_t>(memory.data()),
                                .bytes = bytes,
                                .descriptor = static_cast<std::uint64_t>(fd->get()),
                                .device = facts.st_dev,
                                .inode = facts.st_ino};
    return shm_arena(std::move(*fd), std::move(memory), shown);
}

std::optional<mutable_bytes> shm_arena::cut(std::size_t bytes) {
    const auto fit = std::find_if(gaps_.begin(), gaps_.end(),
                                  [&](const gap& one) { return one.bytes >= bytes; });
    if (fit == gaps_.end()) return std::nullopt;
    const auto index = fit - gaps_.begin();
    gaps_.reserve(cuts_ + 2);
    gap& from = gaps_[static_cast<std::size_t>(index)];
    const mutable_bytes out(memory_.data() + from.offset, bytes);
    from.offset += bytes;
    from.bytes -= bytes;
    if (from.bytes == 0) gaps_.erase(gaps_.begin() + index);
    ++cuts_;
    return out;
}

bool shm_arena::reserve(mutable_bytes cut) const noexcept {
    return reserve_shm_pages(fd_.get(), static_cast<std::size_t>(cut.data() - memory_.data()),
                             cut.size());
}

void shm_arena::give_back(mutable_bytes cut) noexcept {
    const auto offset = static_cast<std::size_t>(cut.data() - memory_.data());
    ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(cut.size()));
    --cuts_;
    auto after = std::find_if(gaps_.begin(), gaps_.end(),
                              [&](const gap& one) { return one.offset > offset; });
    after = gaps_.insert(after, {offset, cut.size()});  // Capacity: see gaps_.
    if (after + 1 != gaps_.end() && after->offset + after->bytes == (after + 1)->offset) {
        after->bytes += (after + 1)->bytes;
        gaps_.erase(after + 1);
    }
    if (after != gaps_.begin() && (after - 1)->offset + (after - 1)->bytes == after->offset) {
        (after - 1)->bytes += after->bytes;
        gaps_.erase(after);
    }
}

bool shm_arena::holds(const_bytes range) const noexcept {
    const auto from = reinterpret_cast<std::uintptr_t>(range.data());
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
    return from >= begin && from - begin <= memory_.bytes() &&
           range.size() <= memory_.bytes() - (from - begin);
}

}  // namespace amalgam::detail

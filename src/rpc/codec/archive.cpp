#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam {

void body::grow(std::size_t bytes) {
    const std::size_t wanted = headroom + std::max(size_ + bytes, 2 * capacity_);
    buffer larger = pool_ != nullptr ? pool_->take(wanted) : buffer::of(wanted);
    larger.resize(larger.capacity());
    std::memcpy(larger.data() + headroom, values_, size_);
    large_ = std::move(larger);
    values_ = large_.data() + headroom;
    capacity_ = large_.capacity() - headroom;
}

body_bytes body::take() {
    if (large_.capacity() == 0) {
        large_ = pool_ != nullptr ? pool_->take(headroom + size_) : buffer::of(headroom + size_);
        if (size_ != 0) std::memcpy(large_.data() + headroom, values_, size_);
    }
    body_bytes taken{std::move(large_), {}};
    taken.values = const_bytes(taken.held.data() + headroom, size_);
    values_ = inline_ + headroom;
    capacity_ = inline_bytes;
    size_ = 0;
    return taken;
}

std::byte* detail::view_room::fresh(std::size_t bytes) {
    blocks_.push_back(buffer::of(bytes));
    capacity_ += bytes;
    return blocks_.back().data();
}

std::byte* detail::view_room::take(std::size_t bytes, std::size_t alignment) {
    if (bytes >= block_bytes / 2) return fresh(bytes);
    std::size_t skip = (0 - reinterpret_cast<std::uintptr_t>(shared_)) & (alignment - 1);
    if (skip + bytes > left_) {
        shared_ = fresh(block_bytes);
        left_ = block_bytes;
        skip = 0;
    }
    std::byte* const at = shared_ + skip;
    shared_ = at + bytes;
    left_ -= skip + bytes;
    return at;
}

void detail::throw_too_many(std::size_t elements) {
    throw error(
        errc::too_large,
        "a container of " + std::to_string(elements) +
            " elements cannot be serialized, expected at most 4294967295; send it in parts");
}

}  // namespace amalgam

#include "fabric/transports/shm/memory/block_cache.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {
namespace {

// Attempts to skip after one that lacked a descriptor or memory: each costs a system call before a
// copy that is only somewhat slower.
constexpr unsigned attempts_to_skip = 1000;

}  // namespace

std::byte* shm_block_cache::locate(const shm_registrations_view& registrations, pid_t owner,
                                   std::size_t slot, const_bytes range, access asked) noexcept {
    if (slot >= shm_registrations_layout::block_count) return nullptr;
    mapped_block* block = find(slot, registrations.block_version(slot));
    if (block == nullptr) block = map(registrations, owner, slot);
    if (block == nullptr) return nullptr;
    if (allows(asked, access::write) && !block->writable) {
        if (!block->memory.allow_writing()) return nullptr;
        block->writable = true;
    }
    block->last_use = ++uses_;
    const auto from = reinterpret_cast<std::uint64_t>(range.data());
    if (from < block->address || from - block->address > block->bytes ||
        range.size() > block->bytes - (from - block->address))
        return nullptr;
    return block->memory.data() + (from - block->address);
}

shm_block_cache::mapped_block* shm_block_cache::find(std::size_t slot,
                                                     std::uint64_t version) noexcept {
    auto is_it = [&](const mapped_block& one) {
        return one.slot == slot && one.version == version;
    };
    if (latest_ < blocks_.size() && is_it(blocks_[latest_])) return &blocks_[latest_];
    const auto found = std::find_if(blocks_.begin(), blocks_.end(), is_it);
    if (found == blocks_.end()) return nullptr;
    latest_ = static_cast<std::size_t>(found - blocks_.begin());
    return &*found;
}

shm_block_cache::mapped_block* shm_block_cache::map(const shm_registrations_view& registrations,
                                                    pid_t owner, std::size_t slot) noexcept try {
    if (!denied_.ok() || owner <= 0) return nullptr;
    if (skip_attempts_ > 0) {
        --skip_attempts_;
        return nullptr;
    }
    const std::optional<shm_shown_block> shown = registrations.block(slot);
    if (!shown || shown->bytes == 0 || shown->bytes % shm_page_bytes != 0) return nullptr;
    const unique_fd fd = reopen_shm_memory(owner, shown->descriptor, shown->device, shown->inode,
                                           shown->bytes, /*writable=*/true);
    if (!fd) return failed(errno);
    shm_mapping memory = shm_mapping::of(fd.get(), 0, shown->bytes, /*writable=*/false);
    if (!memory) return failed(errno);

    blocks_.reserve(capacity);
    mapped_block fresh{slot, shown->version, shown->address, shown->bytes, std::move(memory), false,
                       0};
    if (blocks_.size() < capacity) {
        blocks_.push_back(std::move(fresh));
        latest_ = blocks_.size() - 1;
    } else {
        const auto oldest =
            std::min_element(blocks_.begin(), blocks_.end(),
                             [](const auto& a, const auto& b) { return a.last_use < b.last_use; });
        *oldest = std::move(fresh);
        latest_ = static_cast<std::size_t>(oldest - blocks_.begin());
    }
    return &blocks_[latest_];
} catch (const std::bad_alloc&) {
    return failed(ENOMEM);
}

shm_block_cache::mapped_block* shm_block_cache::failed(int error) noexcept {
    if (error == EMFILE || error == ENFILE || error == ENOMEM)
        skip_attempts_ = attempts_to_skip;
    else
        denied_ = {errc::unsupported, error};
    return nullptr;
}

void shm_block_cache::drop_freed(const shm_registrations_view& registrations) noexcept {
    if (blocks_.empty()) return;
    const std::uint64_t freed = registrations.blocks_freed();
    if (std::exchange(freed_seen_, freed) == freed) return;
    std::erase_if(blocks_, [&](const mapped_block& one) {
        return registrations.block_version(one.slot) != one.version;
    });
}

}  // namespace amalgam::detail

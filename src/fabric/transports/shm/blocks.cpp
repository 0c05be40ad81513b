#include "fabric/transports/shm/blocks.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "fabric/transports/shm/mapping.hpp"

namespace amalgam::detail {

class shm_block final : public shared_block::body {
public:
    shm_block(shm_block_table& table, std::size_t slot, unique_fd fd, shm_mapping memory,
              std::size_t bytes) noexcept
        : table_(&table),
          slot_(slot),
          fd_(std::move(fd)),
          memory_(std::move(memory)),
          bytes_(bytes) {}
    ~shm_block() override {
        if (table_ != nullptr) table_->remove(*this);
        // A peer that sleeps may have it mapped for long: its pages go now.
        ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    static_cast<off_t>(memory_.bytes()));
    }

    mutable_bytes bytes() const noexcept override { return {memory_.data(), bytes_}; }
    bool is_shared() const noexcept override { return table_ != nullptr; }

    std::size_t slot() const noexcept { return slot_; }
    bool holds(const_bytes range) const noexcept {
        const auto from = reinterpret_cast<std::uintptr_t>(range.data());
        const auto start = reinterpret_cast<std::uintptr_t>(memory_.data());
        return from >= start && from - start <= bytes_ && range.size() <= bytes_ - (from - start);
    }
    void leave_table() noexcept { table_ = nullptr; }

private:
    shm_block_table* table_;
    const std::size_t slot_;
    const unique_fd fd_;
    const shm_mapping memory_;
    const std::size_t bytes_;
};

namespace {

struct before {
    bool operator()(const std::byte* at, const shm_block* block) const noexcept {
        return std::less<>()(at, static_cast<const std::byte*>(block->bytes().data()));
    }
};

}  // namespace

shm_block_table::~shm_block_table() {
    for (shm_block* block : by_address_)
        block->leave_table();
}

result<shared_block> shm_block_table::allocate(std::size_t bytes) noexcept try {
    if (bytes == 0) return allocate_private(bytes);
    result<shared_block> made = allocate_shared(bytes);
    if (made) return made;
    ++private_count_;
    why_private_ = made.code();
    return allocate_private(bytes);
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

result<shared_block> shm_block_table::allocate_shared(std::size_t bytes) {
    if (taken_.all()) return {errc::overloaded, "shm: the board shows no more blocks"};
    if (bytes > ~std::size_t{0} / 2)
        return {errc::no_memory, "shm: a block longer than an address space"};
    std::size_t slot = 0;
    while (taken_[slot])
        ++slot;
    by_address_.reserve(by_address_.size() + 1);

    const std::size_t whole = (bytes + shm_page_bytes - 1) / shm_page_bytes * shm_page_bytes;
    result<unique_fd> fd = make_shm_memory(whole);
    if (!fd) return fd.why();
    struct stat facts {};
    shm_mapping memory = shm_mapping::of(fd->get(), 0, whole, /*writable=*/true);
    if (!memory || ::fstat(fd->get(), &facts) != 0)
        return failure{{errc::no_memory, errno}, "shm: no address space for a block"};
    const shm_shown_block shown{.address = reinterpret_cast<std::uint64_t>(memory.data()),
                                .bytes = whole,
                                .descriptor = static_cast<std::uint64_t>(fd->get()),
                                .device = facts.st_dev,
                                .inode = facts.st_ino};
    auto block = std::make_unique<shm_block>(*this, slot, std::move(*fd), std::move(memory), bytes);
    const auto place =
        std::upper_bound(by_address_.begin(), by_address_.end(), block->bytes().data(), before());
    by_address_.insert(place, block.get());
    taken_[slot] = true;
    board_.publish_block(slot, shown);
    return shared_block(std::move(block));
}

std::uint64_t shm_block_table::names_of(scatter segments) const noexcept {
    std::uint64_t names = 0;
    if (by_address_.empty()) return names;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const auto next =
            std::upper_bound(by_address_.begin(), by_address_.end(), segments[i].data(), before());
        if (next == by_address_.begin() || !(*(next - 1))->holds(segments[i])) continue;
        names |= std::uint64_t{(*(next - 1))->slot() + 1} << (i * shm_region_slot::block_bits);
    }
    return names;
}

void shm_block_table::remove(shm_block& block) noexcept {
    board_.withdraw_block(block.slot());
    taken_[block.slot()] = false;
    std::erase(by_address_, &block);
}

}  // namespace amalgam::detail

#include "fabric/transports/shm/memory/blocks.hpp"

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <functional>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <amalgam/core/detail/forks.hpp>

#include "fabric/transports/shm/memory/arena.hpp"

namespace amalgam::detail {

/// State shared by a table and its blocks until the last of them is gone.
class shm_shelf {
public:
    explicit shm_shelf(shm_registrations& registrations) noexcept
        : registrations_(&registrations) {}

    struct place {
        shm_arena* arena;
        mutable_bytes bytes;
    };

    result<place> cut(std::size_t bytes) {
        const std::lock_guard one(lock_);
        result<place> found = find_or_add(bytes);
        if (found && !found->arena->reserve(found->bytes)) {
            const int error = errno;
            drop(*found);
            return failure{{errc::no_memory, error}, "shm: out of memory for a block"};
        }
        return found;
    }

    /// In a child of fork() memory and table are still the parent's.
    void give_back(const place& gone) noexcept {
        if (forked_.is_in_child()) return;
        const std::lock_guard one(lock_);
        drop(gone);
    }

    std::uint64_t names_of(scatter segments) const noexcept {
        const std::lock_guard one(lock_);
        std::uint64_t names = 0;
        if (arenas_.empty()) return names;
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const auto next = after(segments[i].data());
            if (next == arenas_.begin() || !(*(next - 1))->holds(segments[i])) continue;
            names |= std::uint64_t{(*(next - 1))->slot + 1} << (i * shm_region_slot::block_bits);
        }
        return names;
    }

    bool is_shown() const noexcept {
        const std::lock_guard one(lock_);
        return registrations_ != nullptr;
    }
    void hide() noexcept {
        if (forked_.is_in_child()) return;
        const std::lock_guard one(lock_);
        registrations_ = nullptr;
    }
    void note_private(status why) noexcept {
        const std::lock_guard one(lock_);
        ++private_.blocks;
        private_.why = why;
    }
    shm_block_table::shortage private_blocks() const noexcept {
        const std::lock_guard one(lock_);
        return private_;
    }

private:
    using arena_list = std::vector<std::unique_ptr<shm_arena>>;

    result<place> find_or_add(std::size_t bytes) {
        if (bytes <= shm_block_table::largest_cut)
            for (const auto& arena : arenas_)
                if (const auto found = arena->cut(bytes)) return place{arena.get(), *found};
        result<shm_arena*> fresh =
            add(bytes <= shm_block_table::largest_cut ? shm_block_table::arena_bytes : bytes);
        if (!fresh) return fresh.why();
        return place{*fresh, *(*fresh)->cut(bytes)};
    }

    void drop(const place& gone) noexcept {
        gone.arena->give_back(gone.bytes);
        if (!gone.arena->is_whole()) return;
        if (registrations_ != nullptr) registrations_->withdraw_block(gone.arena->slot);
        taken_[gone.arena->slot] = false;
        std::erase_if(arenas_, [&](const auto& arena) { return arena.get() == gone.arena; });
    }

    arena_list::const_iterator after(const std::byte* at) const noexcept {
        return std::upper_bound(
            arenas_.begin(), arenas_.end(), at,
            [](const std::byte* x, const auto& arena) { return std::less<>()(x, arena->start()); });
    }

    result<shm_arena*> add(std::size_t bytes) {
        if (taken_.all())
            return {errc::overloaded, "shm: too many blocks for the port's registrations"};
        result<shm_arena> made = shm_arena::make(bytes);
        if (!made) return made.why();
        auto arena = std::make_unique<shm_arena>(std::move(*made));
        while (taken_[arena->slot])
            ++arena->slot;
        shm_arena& fresh = *arena;
        arenas_.insert(after(fresh.start()), std::move(arena));
        taken_[fresh.slot] = true;
        registrations_->publish_block(fresh.slot, fresh.shown());
        return &fresh;
    }

    const fork_check forked_;
    mutable std::mutex lock_;
    shm_registrations* registrations_;  // Null once the port is gone.
    arena_list arenas_;                 // By address.
    std::bitset<shm_registrations_layout::block_count> taken_;
    shm_block_table::shortage private_;
};

namespace {

class shm_block final : public shared_block::body {
public:
    shm_block(std::shared_ptr<shm_shelf> shelf, const shm_shelf::place& at,
              std::size_t bytes) noexcept
        : shelf_(std::move(shelf)), at_(at), bytes_(bytes) {}
    ~shm_block() override { shelf_->give_back(at_); }

    mutable_bytes bytes() const noexcept override { return at_.bytes.first(bytes_); }
    bool is_shared() const noexcept override { return shelf_->is_shown(); }

private:
    const std::shared_ptr<shm_shelf> shelf_;
    const shm_shelf::place at_;
    const std::size_t bytes_;
};

}  // namespace

shm_block_table::shm_block_table(shm_registrations& registrations)
    : shelf_(std::make_shared<shm_shelf>(registrations)) {}

shm_block_table::~shm_block_table() {
    shelf_->hide();
}

result<shared_block> shm_block_table::allocate(std::size_t bytes) noexcept try {
    if (bytes == 0 || bytes > ~std::size_t{0} / 2) return allocate_private(bytes);
    const std::size_t whole = (bytes + shm_page_bytes - 1) / shm_page_bytes * shm_page_bytes;
    const result<shm_shelf::place> at = shelf_->cut(whole);
    if (!at) {
        shelf_->note_private(at.code());
        return allocate_private(bytes);
    }
    try {
        return shared_block(std::make_unique<shm_block>(shelf_, *at, bytes));
    } catch (const std::bad_alloc&) {
        shelf_->give_back(*at);
        throw;
    }
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

std::uint64_t shm_block_table::names_of(scatter segments) const noexcept {
    return shelf_->names_of(segments);
}

shm_block_table::shortage shm_block_table::private_blocks() const noexcept {
    return shelf_->private_blocks();
}

}  // namespace amalgam::detail

#include "fabric/transports/shm/memory/registrations.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "fabric/transports/shm/memory/cross_memory.hpp"

namespace amalgam::detail {
namespace {

// framed_port keeps the slot in the low half of a region's id, and its generation in the high half.
std::size_t slot_index(const remote_key& key) noexcept {
    return static_cast<std::uint32_t>(key.region);
}

constexpr unsigned shape_count_shift = 8;

}  // namespace

result<shm_registrations> shm_registrations::make() {
    result<unique_fd> fd = make_shm_memory(shm_registrations_layout::bytes);
    if (!fd) return fd.why();
    shm_mapping memory = shm_mapping::of(fd->get(), 0, shm_registrations_layout::bytes, true);
    if (!memory)
        return failure{{errc::no_memory, errno},
                       "shm: out of address space for the port's registrations"};
    if (!reserve_shm_pages(fd->get(), 0, shm_registrations_layout::bytes))
        return failure{{errc::no_memory, errno}, "shm: out of memory for the port's registrations"};
    // Without seals (an old kernel), peers could write our registrations: that harms only those who
    // trust it.
    forbid_new_writers(fd->get());
    return shm_registrations(std::move(*fd), std::move(memory));
}

shm_region_slot* shm_registrations::slot_of(const remote_key& key) const noexcept {
    const std::size_t index = slot_index(key);
    return index < shm_registrations_layout::slot_count ? &state().slots[index] : nullptr;
}

void shm_registrations::publish(const remote_key& key, scatter segments,
                                std::uint64_t blocks) noexcept {
    using slot = shm_region_slot;
    slot* place = slot_of(key);
    if (place == nullptr || segments.size() > slot::max_segments) return;
    auto& word = place->word;
    auto put = [&](std::size_t index, std::uint64_t value) {
        // release: a reader that sees any of the new words also sees the odd version.
        word[index].store(value, std::memory_order_release);
    };
    const std::uint64_t version = word[slot::version].load(std::memory_order_relaxed);
    put(slot::version, version | 1);
    put(slot::secret, key.secret);
    put(slot::length, key.bytes);
    put(slot::shape, static_cast<std::uint64_t>(key.rights) | segments.size() << shape_count_shift);
    put(slot::blocks, blocks);
    for (std::size_t i = 0; i < segments.size(); ++i) {
        put(slot::segments + 2 * i, reinterpret_cast<std::uint64_t>(segments[i].data()));
        put(slot::segments + 2 * i + 1, segments[i].size());
    }
    put(slot::region, key.region);
    put(slot::version, (version | 1) + 1);
}

bool shm_registrations::withdraw(const remote_key& key) noexcept {
    using slot = shm_region_slot;
    slot* place = slot_of(key);
    if (place == nullptr) return false;
    auto& word = place->word;
    if (word[slot::region].load(std::memory_order_relaxed) != key.region) return false;
    // Stays odd until the slot is reused. seq_cst: followed by a check of who is copying.
    word[slot::version].fetch_or(1, std::memory_order_seq_cst);
    word[slot::region].store(0, std::memory_order_release);
    word[slot::secret].store(0, std::memory_order_release);
    return true;
}

void shm_registrations::publish_block(std::size_t index, const shm_shown_block& block) noexcept {
    using slot = shm_block_slot;
    auto& word = state().blocks[index].word;
    const std::uint64_t version = word[slot::version].load(std::memory_order_relaxed) | 1;
    word[slot::version].store(version, std::memory_order_release);
    word[slot::address].store(block.address, std::memory_order_release);
    word[slot::length].store(block.bytes, std::memory_order_release);
    word[slot::descriptor].store(block.descriptor, std::memory_order_release);
    word[slot::device].store(block.device, std::memory_order_release);
    word[slot::inode].store(block.inode, std::memory_order_release);
    word[slot::version].store(version + 1, std::memory_order_release);
}

void shm_registrations::withdraw_block(std::size_t index) noexcept {
    state().blocks[index].word[shm_block_slot::version].fetch_or(1, std::memory_order_seq_cst);
    state().blocks_freed.fetch_add(1, std::memory_order_seq_cst);
}

std::size_t shm_found_region::block_of(std::size_t segment) const noexcept {
    constexpr std::uint64_t mask = (1u << shm_region_slot::block_bits) - 1;
    const std::uint64_t name = blocks >> (segment * shm_region_slot::block_bits) & mask;
    return name == 0 || name > shm_registrations_layout::block_count
               ? shm_registrations_layout::block_count
               : static_cast<std::size_t>(name - 1);
}

shm_registrations_view::a_touch shm_registrations_view::current_touch(
    std::uint64_t of) const noexcept {
    a_touch now{state().touching.load(std::memory_order_seq_cst), 0};
    if (now.number % 2 == 0) return {};
    now.what = state().touched.load(std::memory_order_acquire);
    const bool is_ours = state().touches_of.load(std::memory_order_acquire) == of;
    // The words belong to that touch only if it has not ended meanwhile. A later touch looks its
    // region up after what we changed.
    return is_ours && is_touching(now) ? now : a_touch{};
}

std::optional<shm_shown_block> shm_registrations_view::block(std::size_t index) const noexcept {
    using slot = shm_block_slot;
    if (index >= shm_registrations_layout::block_count) return std::nullopt;
    const auto& word = state().blocks[index].word;
    auto read = [&](std::size_t which) { return word[which].load(std::memory_order_acquire); };
    const shm_shown_block seen{read(slot::version),    read(slot::address), read(slot::length),
                               read(slot::descriptor), read(slot::device),  read(slot::inode)};
    // Version 0: never used.
    if (seen.version == 0 || seen.version % 2 != 0 || read(slot::version) != seen.version)
        return std::nullopt;
    return seen;
}

shm_found_region shm_registrations_view::find(const remote_key& key, std::uint64_t offset,
                                              std::uint64_t bytes, access asked) const noexcept {
    using slot = shm_region_slot;
    shm_found_region found;
    const std::size_t index = slot_index(key);
    if (index >= shm_registrations_layout::slot_count) return found;
    const auto& word = state().slots[index].word;
    const std::uint64_t version = word[slot::version].load(std::memory_order_seq_cst);
    std::array<std::uint64_t, slot::words> copy;
    for (std::size_t i = slot::region; i < slot::words; ++i)
        copy[i] = word[i].load(std::memory_order_acquire);
    // Being changed: it is not the region of the key, or soon will not be.
    if (version % 2 != 0 || word[slot::version].load(std::memory_order_seq_cst) != version)
        return found;
    if (copy[slot::region] != key.region) return found;

    found.what = shm_found_region::kind::refused;
    const std::uint64_t length = copy[slot::length];
    remote_key issued = key;  // Its region is checked, and its incarnation is this one's.
    issued.secret = copy[slot::secret];
    issued.bytes = length;
    issued.rights = static_cast<access>(copy[slot::shape] & 3);
    if (!issued.grants(key, offset, bytes, asked)) {
        if (issued.secret != key.secret) found.what = shm_found_region::kind::unknown;
        return found;
    }
    found.segment_count =
        std::min<std::size_t>(copy[slot::shape] >> shape_count_shift, slot::max_segments);
    found.blocks = copy[slot::blocks];
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < found.segment_count; ++i) {
        const std::uint64_t size = copy[slot::segments + 2 * i + 1];
        if (size > length - total) return found;
        total += size;
        found.segments[i] = foreign_bytes(copy[slot::segments + 2 * i], size);
    }
    if (total != length) return found;
    found.what = shm_found_region::kind::open;
    return found;
}

}  // namespace amalgam::detail

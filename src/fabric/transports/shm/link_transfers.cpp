// Put and get without the target's help: directly between its memory and ours.
#include <algorithm>
#include <array>
#include <type_traits>

#include "fabric/transports/shm/link.hpp"
#include "fabric/transports/shm/memory/cross_memory.hpp"
#include "fabric/transports/shm/port.hpp"

namespace amalgam::detail {
namespace {

// Bytes copied between two checks of whether it is still allowed, which bounds how long closing a
// region waits: about 300 us if the kernel copies, 30 us if we do.
constexpr std::size_t crossed_at_once = std::size_t{4} << 20;
constexpr std::size_t mapped_at_once = std::size_t{1} << 20;

template <typename Bytes>
cross_place<Bytes> place_in(std::span<const Bytes> segments, std::uint64_t offset) noexcept {
    cross_place<Bytes> place{segments, {}};
    walk(segments, place.at, static_cast<std::size_t>(offset), [](Bytes) {});
    return place;
}

status cross(pid_t pid, cross_place<const_bytes>& here, cross_place<const_bytes>& there,
             std::size_t bytes) noexcept {
    return copy_to_process(pid, here, there, bytes);
}
status cross(pid_t pid, cross_place<mutable_bytes>& here, cross_place<const_bytes>& there,
             std::size_t bytes) noexcept {
    return copy_from_process(pid, here, there, bytes);
}

void copy(cross_place<const_bytes>& here, std::span<const mutable_bytes> there,
          std::uint64_t offset, std::size_t bytes) noexcept {
    segment_cursor at = place_in(there, offset).at;
    copy_across(there, at, here.segments, here.at, bytes);
}
void copy(cross_place<mutable_bytes>& here, std::span<const mutable_bytes> there,
          std::uint64_t offset, std::size_t bytes) noexcept {
    segment_cursor at = place_in(there, offset).at;
    walk(there, at, bytes, [&](const_bytes piece) { copy_in(here.segments, here.at, piece); });
}

}  // namespace

bool shm_link::locate(const shm_found_region& found, access asked,
                      std::span<mutable_bytes> here) noexcept {
    static_assert(shm_region_slot::max_segments < shm_block_cache::capacity);
    if (found.blocks == 0 || !port_.shares_blocks() || !blocks_.denied().ok()) return false;
    blocks_.drop_freed(
        registrations_);  // Only here: what the peer writes must not unmap located memory.
    for (std::size_t i = 0; i < found.segment_count; ++i) {
        const const_bytes& there = found.segments[i];
        here[i] = {};
        if (there.empty()) continue;
        std::byte* at = blocks_.locate(registrations_, pid_, found.block_of(i), there, asked);
        if (at == nullptr) {
            if (!blocks_.denied().ok()) port_.blocks_denied(blocks_.denied());
            return false;
        }
        here[i] = {at, there.size()};
    }
    return true;
}

template <typename Local>
std::optional<status> shm_link::transfer(std::span<const Local> local, const remote_key& key,
                                         std::uint64_t offset) noexcept {
    constexpr bool is_put = std::is_same_v<Local, const_bytes>;
    constexpr access asked = is_put ? access::write : access::read;
    if (phase_ != phase::up || key.incarnation != incarnation_) return std::nullopt;
    std::uint64_t left = total_bytes(local);
    cross_place<Local> here{local, {}};
    bool crossed = false;
    for (bool first = true; first || left > 0; first = false) {
        const touch touching(*this, shm_touched::region(key.region, is_put));
        if (pair_.theirs().closed.load(std::memory_order_seq_cst) != 0)
            return status{errc::disconnected};
        const shm_found_region found = registrations_.find(key, offset, left, asked);
        if (found.what != shm_found_region::kind::open) {
            if (first && found.what == shm_found_region::kind::unknown) return std::nullopt;
            return status{errc::denied};
        }
        std::array<mutable_bytes, shm_region_slot::max_segments> mapped;
        const bool maps = locate(found, asked, mapped);
        const auto some = static_cast<std::size_t>(
            std::min<std::uint64_t>(left, maps ? mapped_at_once : crossed_at_once));
        if (maps) {
            copy(here, {mapped.data(), found.segment_count}, offset, some);
            // The data read is valid if the owner has not given up on us meanwhile, as it does not
            // wait forever.
            if constexpr (!is_put) {
                std::atomic_thread_fence(std::memory_order_acquire);
                if (pair_.theirs().closed.load(std::memory_order_seq_cst) != 0)
                    return status{errc::disconnected};
            }
        } else if (!crosses_) {
            return std::nullopt;  // By frames, from the start: they write the same bytes.
        } else {
            // The id of a process that is gone may have been reused.
            if (is_put && !crossed && !is_there()) return status{errc::disconnected};
            crossed = true;
            auto there = place_in(foreign_segments(found.segments, found.segment_count), offset);
            const status what = cross(pid_, here, there, some);
            if (is_refusal_of_kernel(what)) {
                crosses_ = false;
                port_.cross_memory_denied(what);
                return std::nullopt;
            }
            if (!what.ok()) return what;
        }
        offset += some;
        left -= some;
    }
    // It was the right process if it is still here.
    if (!is_put && crossed && !is_there()) return status{errc::disconnected};
    return status{};
}

std::optional<status> shm_link::put(gather from, const remote_key& key,
                                    std::uint64_t offset) noexcept {
    return transfer<const_bytes>(from, key, offset);
}

std::optional<status> shm_link::get(scatter into, const remote_key& key,
                                    std::uint64_t offset) noexcept {
    return transfer<mutable_bytes>(into, key, offset);
}

std::optional<status> shm_link::atomic(const remote_key& key, std::uint64_t offset,
                                       const atomic_operation& what, std::uint64_t& old) noexcept {
    if (phase_ != phase::up || key.incarnation != incarnation_) return std::nullopt;
    const touch touching(*this, shm_touched::region(key.region, /*for_writing=*/true));
    if (pair_.theirs().closed.load(std::memory_order_seq_cst) != 0)
        return status{errc::disconnected};
    const shm_found_region found =
        registrations_.find(key, offset, atomic_operation::bytes, access::read_write);
    if (found.what == shm_found_region::kind::unknown) return std::nullopt;
    if (found.what != shm_found_region::kind::open) return status{errc::denied};
    std::array<mutable_bytes, shm_region_slot::max_segments> mapped;
    if (!locate(found, access::read_write, mapped)) return std::nullopt;  // The owner does it.
    const std::span<const mutable_bytes> there(mapped.data(), found.segment_count);
    segment_cursor at = place_in(there, offset).at;
    while (there[at.index].empty())
        ++at.index;
    std::byte* const number = number_at(there, at);
    if (number == nullptr) return status{errc::invalid, EINVAL};
    old = what.apply(number);
    // The owner may have given up on us meanwhile, and the memory be somebody else's.
    if (pair_.theirs().closed.load(std::memory_order_seq_cst) != 0)
        return status{errc::disconnected};
    return status{};
}

}  // namespace amalgam::detail

#include "fabric/rma/region_table.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <optional>

#include <amalgam/core/random.hpp>
#include <amalgam/fabric/extension/bound_key.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/peers/peer_table.hpp"

namespace amalgam::detail {

segment_cursor region_entry::at(std::uint64_t offset) const noexcept {
    if (segments.size() <= 1) return {0, static_cast<std::size_t>(offset)};
    const auto after = std::upper_bound(starts.begin(), starts.end(), offset);
    const auto index = static_cast<std::size_t>(after - starts.begin()) - 1;
    return {index, static_cast<std::size_t>(offset - starts[index])};
}

remote_key region_entry::key(std::uint64_t incarnation) const noexcept {
    remote_key told;
    told.secret = secret;
    told.region = id;
    told.incarnation = incarnation;
    told.bytes = bytes;
    told.rights = rights;
    return told;
}

result<remote_key> region_table::open(scatter segments, access rights) noexcept try {
    region_entry entry;
    entry.segments.assign(segments.begin(), segments.end());
    entry.starts.reserve(segments.size());
    for (const mutable_bytes& one : segments) {
        if (one.size() > std::numeric_limits<std::size_t>::max() - entry.bytes)
            return {errc::invalid,
                    "the segments of a region add up to more than the address space"};
        entry.starts.push_back(entry.bytes);
        entry.bytes += one.size();
    }
    const std::size_t slot = ids_.make_room();
    if (slot >= slots_.size()) slots_.emplace_back();
    entry.id = ids_.take();
    entry.secret = random_u64();
    entry.rights = rights;
    slots_[slot] = std::move(entry);
    return slots_[slot].key(incarnation_);
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

bool region_table::close(std::uint64_t id) noexcept {
    region_entry* entry = find(id);
    if (entry == nullptr) return false;
    *entry = region_entry{};
    ids_.give_back(id);
    return true;
}

region_entry* region_table::find(std::uint64_t id) noexcept {
    const std::size_t slot = slot_ids::slot(id);
    if (id == 0 || slot >= slots_.size() || slots_[slot].id != id) return nullptr;
    return &slots_[slot];
}

region_entry* region_table::check(const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                                  access asked) noexcept {
    region_entry* entry = find(key.region);
    if (entry == nullptr || !entry->key(incarnation_).grants(key, offset, bytes, asked))
        return nullptr;
    return entry;
}

region_entry* region_table::check_bound(const peer_record& by, const remote_key& key,
                                        std::uint64_t offset, std::uint64_t bytes,
                                        access asked) noexcept {
    region_entry* const entry = by.up() ? find(key.region) : nullptr;
    if (entry == nullptr) return nullptr;
    const remote_key issued = entry->key(incarnation_);
    // Null: it has no key of its own, as behind a pre-shared one, or the port proves nothing and
    // has given nobody such a key.
    const key_fingerprint* const proven = by.link->proven_key();
    const std::optional<std::uint32_t> user = by.link->proven_user();
    const auto opens = [&](const remote_key& made) {
        return made.grants(key, offset, bytes, asked);
    };
    return (proven != nullptr && opens(bound_to(issued, *proven))) ||
                   (user && opens(bound_to_user(issued, *user))) || opens(bound_to(issued, by.id))
               ? entry
               : nullptr;
}

}  // namespace amalgam::detail

#include "rpc/peers/known_peers.hpp"

#include <new>
#include <utility>

namespace amalgam::detail {

void peer_state::set_verified(std::uint32_t procedure, bool yes) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << procedure % 64;
    std::uint64_t* mine = &verified_first_;
    if (procedure >= 64) {
        const std::size_t word = procedure / 64 - 1;
        if (word >= verified_.size()) {
            if (!yes) return;
            try {
                verified_.resize(word + 1);
            } catch (const std::bad_alloc&) {
                return;  // The names are sent once more.
            }
        }
        mine = &verified_[word];
    }
    *mine = yes ? *mine | bit : *mine & ~bit;
}

peer_state& known_peers::meet(std::uint16_t port, peer_id id) {
    if (peer_state* known = find(port, id)) return *known;
    if (free_.empty()) {
        // So that forget() never allocates.
        if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 8);
        slots_.push_back(std::make_unique<peer_state>());
        free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t slot = free_.back();
    by_id_.emplace(key{id, port}, slot);
    free_.pop_back();
    peer_state& fresh = *slots_[slot];
    fresh.name = peer(owner_, port, slot, id);
    return fresh;
}

peer_state* known_peers::look_up(std::uint16_t port, peer_id id) noexcept {
    const auto at = by_id_.find(key{id, port});
    if (at == by_id_.end()) return nullptr;
    peer_state* const found = slots_[at->second].get();
    if (found->heard) recent_of(port, id) = found;
    return found;
}

void known_peers::forget(peer_state& gone) noexcept {
    const auto port = static_cast<std::uint16_t>(gone.name.port());
    by_id_.erase(key{gone.name.id(), port});
    // The next peer in its slot might have this place, too, and is not heard yet.
    if (recent_of(port, gone.name.id()) == &gone) recent_of(port, gone.name.id()) = nullptr;
    const std::uint32_t slot = gone.name.slot();
    gone.name = peer();
    gone.address.clear();
    gone.verified_first_ = 0;
    gone.verified_.clear();
    gone.introduced = false;
    gone.untold = false;
    gone.unanswered = false;
    gone.heard = false;
    gone.at_once_bytes = 0;
    gone.lane = nullptr;
    gone.who.reset();
    free_.push_back(slot);
}

}  // namespace amalgam::detail

#include "fabric/peer_table.hpp"

#include <limits>

namespace amalgam::detail {

peer_record* peer_table::find(const std::string& canonical) const noexcept {
    const auto at = by_address_.find(canonical);
    return at == by_address_.end() ? nullptr : at->second;
}

peer_record& peer_table::add(frame_link& link, std::string address, std::string canonical) {
    if (free_.empty()) {
        free_.reserve(slots_.size() + 1);  // So that remove() never allocates.
        generations_.reserve(slots_.size() + 1);
        slots_.push_back(std::make_unique<peer_record>(port_, on_down_));
        generations_.push_back(0);
        free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t slot = free_.back();
    if (slots_[slot] == nullptr) slots_[slot] = std::make_unique<peer_record>(port_, on_down_);
    peer_record& record = *slots_[slot];
    if (!canonical.empty()) by_address_.emplace(canonical, &record);
    free_.pop_back();
    record.id = peer_id{(std::uint64_t{++generations_[slot]} << 32) | slot};
    record.link = &link;
    record.address = std::move(address);
    record.canonical = std::move(canonical);
    link.peer = record.id;
    link.record = &record;
    return record;
}

void peer_table::forget_address(peer_record& record) noexcept {
    if (!record.canonical.empty()) by_address_.erase(record.canonical);
    record.canonical.clear();
}

void peer_table::remove(peer_record& record) noexcept {
    const auto slot = static_cast<std::uint32_t>(record.id.value);
    slots_[slot].reset();
    // A slot whose generations are used up retires: an old id must never fit again.
    if (generations_[slot] != std::numeric_limits<std::uint32_t>::max()) free_.push_back(slot);
}

}  // namespace amalgam::detail

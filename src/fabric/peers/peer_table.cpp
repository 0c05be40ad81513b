#include "fabric/peers/peer_table.hpp"

#include <utility>

namespace amalgam::detail {

peer_record* peer_table::find(const std::string& canonical) const noexcept {
    const auto at = by_address_.find(canonical);
    return at == by_address_.end() ? nullptr : at->second;
}

peer_record& peer_table::add(frame_link& link, std::string address, std::string canonical) {
    auto made = std::make_unique<peer_record>(port_, on_down_);
    peer_record& record = *made;
    const std::size_t slot = ids_.make_room();
    if (slot >= slots_.size()) slots_.emplace_back();
    if (!canonical.empty()) by_address_.emplace(canonical, &record);
    record.id = peer_id{ids_.take()};
    slots_[slot] = std::move(made);
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
    const std::uint64_t id = record.id.value;
    slots_[slot_ids::slot(id)].reset();
    ids_.give_back(id);
}

}  // namespace amalgam::detail

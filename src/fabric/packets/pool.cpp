#include "fabric/packets/pool.hpp"

#include <algorithm>
#include <new>

namespace amalgam::detail {

bool packet_pool::grow() noexcept try {
    auto made = std::make_unique<block>();
    made->memory.reset(new std::byte[packet::head_room + packet_bytes_]);
    made->head.data = made->memory.get() + packet::head_room;
    all_.push_back(std::move(made));
    give_back(all_.back()->head);
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

void packet_pool::abandon(packet& one) noexcept {
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [&](const auto& each) { return &each->head == &one; });
    (void)at->release();
    all_.erase(at);
}

}  // namespace amalgam::detail

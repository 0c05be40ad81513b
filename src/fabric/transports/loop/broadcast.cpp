#include "fabric/transports/loop/broadcast.hpp"

#include <algorithm>
#include <exception>

namespace amalgam::detail {

bool loop_broadcast::send(const_bytes packet) noexcept {
    try {
        const auto hub = hub_.lock();
        return hub != nullptr && packet.size() <= max_bytes_ && hub->spread(*this, packet);
    } catch (const std::exception&) {
        return false;  // Out of memory.
    }
}

std::shared_ptr<broadcast_medium> virtual_hub::broadcast(std::string_view name) {
    auto made =
        std::make_shared<loop_broadcast>(weak_from_this(), station_of(name), options.inline_bytes);
    std::erase_if(broadcasts_, [](const auto& each) { return each.expired(); });
    broadcasts_.push_back(made);
    return made;
}

bool virtual_hub::spread(const loop_broadcast& from, const_bytes packet) {
    if (from.is_off() || next_operation() != fate::good) return false;
    auto held = std::make_shared<buffer>(buffers_.take(packet.size()));
    std::copy(packet.begin(), packet.end(), held->data());
    for (const auto& each : broadcasts_) {
        auto whom = each.lock();
        if (whom == nullptr || whom.get() == &from || random_.chance(drop)) continue;
        if (is_cut(from.where().name, whom->where().name)) continue;
        event arrival;
        arrival.when = time_.now() + delay_of_one();
        arrival.what = event::kind::packet;
        arrival.whom = std::move(whom);
        arrival.packet = held;
        schedule(std::move(arrival));
    }
    return true;
}

void virtual_hub::arrive(event&& packet) {
    loop_station& host = packet.whom->where();
    if (is_idle(host, time_.now())) return handle_packet(packet);
    packet.when = occupy(host);
    packet.what = event::kind::handled_packet;
    schedule(std::move(packet));
}

void virtual_hub::handle_packet(const event& packet) {
    packet.whom->take(packet.packet->bytes());
    mark_ready(packet.whom->where());  // The receiver may have created work for the driver.
}

}  // namespace amalgam::detail

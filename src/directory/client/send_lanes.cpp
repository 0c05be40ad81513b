#include "directory/client/send_lanes.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace amalgam::detail {

void queued_send::end(const failure* why) noexcept {
    if (why == nullptr || closed_ == nullptr || !*closed_) return ended(why);
    const failure closed{{errc::closed}, context_is_closed};
    ended(&closed);
}

bool send_lanes::push(resource_id from, resource_id to, item what) {
    what->closed_ = &closed_;
    const std::lock_guard one(lock_);
    const auto [at, opened] = lanes_.try_emplace(key(from, to));
    try {
        at->second.items.push_back(std::move(what));
    } catch (...) {
        if (opened) lanes_.erase(at);
        throw;
    }
    at->second.posted_bytes += posted(*at->second.items.back());
    if (!opened) return false;
    all_closed_.reset();
    open_.store(lanes_.size(), std::memory_order_release);
    return true;
}

bool send_lanes::push_if_open(resource_id from, resource_id to, item what, std::size_t most_bytes) {
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    if (at == lanes_.end()) return false;
    const std::size_t bytes = posted(*what);
    if (bytes != 0 && at->second.posted_bytes + bytes > most_bytes)
        throw error(errc::overloaded,
                    fmt::format("messages of {} bytes posted to resource {} already wait behind "
                                "one that has no room there; wait for that one first",
                                at->second.posted_bytes, static_cast<std::uint32_t>(to)));
    what->closed_ = &closed_;
    at->second.items.push_back(std::move(what));
    at->second.posted_bytes += bytes;
    return true;
}

send_lanes::item send_lanes::take(lane& from) noexcept {
    item first = std::move(from.items.front());
    from.items.pop_front();
    from.posted_bytes -= posted(*first);
    return first;
}

send_lanes::item send_lanes::next(resource_id from, resource_id to) {
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    if (at == lanes_.end()) return nullptr;
    if (!at->second.items.empty()) return take(at->second);
    close(at->first);
    return nullptr;
}

void send_lanes::close(std::uint64_t which) noexcept {
    lanes_.erase(which);
    open_.store(lanes_.size(), std::memory_order_release);
    if (lanes_.empty()) all_closed_.set();
}

bool send_lanes::remove(resource_id from, resource_id to, const queued_send& what) noexcept {
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    if (at == lanes_.end()) return false;
    auto& items = at->second.items;
    const auto place = std::find_if(items.begin(), items.end(),
                                    [&](const item& each) { return each.get() == &what; });
    if (place == items.end()) return false;
    items.erase(place);
    return true;
}

void send_lanes::fail(resource_id from, resource_id to, const failure& why) noexcept {
    std::deque<item> all;
    {
        const std::lock_guard one(lock_);
        const auto at = lanes_.find(key(from, to));
        if (at == lanes_.end()) return;
        all.swap(at->second.items);
        close(at->first);
    }
    for (const item& each : all)
        each->end(&why);
}

void send_lanes::wait_until_idle() {
    for (;;) {
        {
            const std::lock_guard one(lock_);
            if (lanes_.empty()) return;
        }
        all_closed_.wait();
    }
}

send_turn::send_turn(send_lanes& lanes, resource_id from, resource_id to,
                     event::time_point deadline) {
    auto mine = std::make_shared<waiting>();
    if (!lanes.push_if_open(from, to, mine, 0)) return;
    const auto leave = [&] { return lanes.remove(from, to, *mine); };
    try {
        if (!mine->given.wait_until(deadline) && leave())
            throw error(errc::timed_out,
                        fmt::format("the message to resource {} timed out behind others",
                                    static_cast<std::uint32_t>(to)));
    } catch (...) {  // Includes cancellation.
        if (!leave()) mine->done.set();
        throw;
    }
    mine_ = std::move(mine);
}

send_turn::~send_turn() {
    if (mine_ != nullptr) mine_->done.set();
}

}  // namespace amalgam::detail

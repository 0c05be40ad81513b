#include "directory/client/send_lanes.hpp"

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "directory/limits.hpp"

namespace amalgam::detail {

void queued_send::end(const failure* why) noexcept {
    if (why == nullptr || closed_ == nullptr || !*closed_) return ended(why);
    failure closed{{errc::closed}, {}};
    try {
        closed.sentence = context_is_closed;
    } catch (const std::bad_alloc&) {
        // Its code is left.
    }
    ended(&closed);
}

std::pair<send_lanes::map::iterator, bool> send_lanes::open(resource_id from, resource_id to) {
    const auto opened = lanes_.try_emplace(key(from, to));
    if (!opened.second) return opened;
    all_closed_.reset();
    open_.store(lanes_.size(), std::memory_order_release);
    return opened;
}

std::optional<send_lanes::place> send_lanes::enter(resource_id from, resource_id to,
                                                   const item& what, const peer& there) {
    list<begun> mine;
    mine.push_back({what, there});
    const std::lock_guard one(lock_);
    lane& in = open(from, to).first->second;
    if (in.has_ult || in.refused != 0 || in.beginning != 0 || !in.items.empty() ||
        in.at_once.size() >= limits::max_in_flight)
        return std::nullopt;
    what->closed_ = &closed_;
    if (in.at_once.empty()) in.beginning = ++last_begun_;
    const std::uint64_t begins = in.beginning;
    in.at_once.splice(in.at_once.end(), mine);
    return place{std::prev(in.at_once.end()), begins};
}

void send_lanes::sent(resource_id from, resource_id to, const place& which) noexcept {
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    if (at != lanes_.end() && at->second.beginning == which.begins) at->second.beginning = 0;
}

bool send_lanes::leave(resource_id from, resource_id to, const place& which) noexcept {
    list<begun> gone;  // Destroyed without the lock.
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    if (which.begins != 0) at->second.beginning = 0;
    gone.splice(gone.end(), at->second.at_once, which.at);
    return leave_to_ult(at);
}

bool send_lanes::refuse(resource_id from, resource_id to, const place& which,
                        result<errc>&& became) noexcept {
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    which.at->became = std::move(became);
    ++at->second.refused;
    if (which.begins != 0) at->second.beginning = 0;
    return leave_to_ult(at);
}

/// Once nothing that was sent at once is under way.
bool send_lanes::leave_to_ult(map::iterator which) noexcept {
    lane& of = which->second;
    if (of.at_once.size() != of.refused) return false;
    if (of.items.empty() && of.refused == 0) {
        close(which);
        return false;
    }
    return of.has_ult = true;
}

send_lanes::list<send_lanes::begun> send_lanes::take_refused(resource_id from, resource_id to) {
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    if (at == lanes_.end()) return {};
    at->second.refused = 0;
    return std::exchange(at->second.at_once, {});
}

bool send_lanes::push(resource_id from, resource_id to, item what) {
    what->closed_ = &closed_;
    list<item> mine;
    mine.push_back(std::move(what));
    const std::lock_guard one(lock_);
    const auto [at, opened] = open(from, to);
    lane& in = at->second;
    in.posted_bytes += posted(*mine.back());
    in.items.splice(in.items.end(), mine);
    if (opened) in.has_ult = true;
    return opened;
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
    close(at);
    return nullptr;
}

void send_lanes::close(map::iterator which) noexcept {
    lanes_.erase(which);
    open_.store(lanes_.size(), std::memory_order_release);
    if (lanes_.empty()) all_closed_.set();
}

bool send_lanes::remove(resource_id from, resource_id to, const queued_send& what) noexcept {
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    if (at == lanes_.end()) return false;
    auto& items = at->second.items;
    const auto its = std::find_if(items.begin(), items.end(),
                                  [&](const item& each) { return each.get() == &what; });
    if (its == items.end()) return false;
    items.erase(its);
    return true;
}

void send_lanes::fail(resource_id from, resource_id to, const failure& why) noexcept {
    list<begun> refused;
    list<item> queued;
    {
        const std::lock_guard one(lock_);
        const auto at = lanes_.find(key(from, to));
        if (at == lanes_.end()) return;
        refused.swap(at->second.at_once);
        queued.swap(at->second.items);
        close(at);
    }
    for (const begun& each : refused)
        each.what->end(&why);
    for (const item& each : queued)
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
    auto mine = make_small<waiting>();
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

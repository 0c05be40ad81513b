#include "directory/server/message_store.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace amalgam::detail {

void message_store::takers::push(taker& one) noexcept {
    one.previous = last;
    (last != nullptr ? last->next : first) = &one;
    last = &one;
    one.listed = true;
}

void message_store::takers::remove(taker& one) noexcept {
    (one.previous != nullptr ? one.previous->next : first) = one.next;
    (one.next != nullptr ? one.next->previous : last) = one.previous;
    one.listed = false;
}

void message_store::open(resource_id which) {
    const std::lock_guard one(lock_);
    boxes_.try_emplace(which);
}

void message_store::close(resource_id which) noexcept {
    const std::lock_guard one(lock_);
    const auto at = boxes_.find(which);
    if (at == boxes_.end()) return;
    for (const stored& each : at->second.messages)
        held_bytes_ -= counted(each.message.content.size());
    held_ -= at->second.messages.size();
    end(at->second.waiting, errc::not_found);
    boxes_.erase(at);
    tell_of_room();
}

void message_store::close_all() noexcept {
    const std::lock_guard one(lock_);
    closed_ = true;
    for (auto& [id, where] : boxes_)
        end(where.waiting, errc::closed);
    end(of_any_, errc::closed);
    boxes_.clear();
    held_bytes_ = held_ = 0;
    tell_of_room();
}

bool message_store::has(resource_id which) const {
    const std::lock_guard one(lock_);
    return boxes_.contains(which);
}

void message_store::end(takers& those, errc how) noexcept {
    while (those.first != nullptr) {
        taker& one = *those.first;
        those.remove(one);
        one.ended = how;
        one.who.unpark();
    }
}

message_store::taker* message_store::taker_of(const takers& those,
                                              const resource_message& message) noexcept {
    for (taker* each = those.first; each != nullptr; each = each->next)
        if (fits(message, each->which)) return each;
    return nullptr;
}

errc message_store::room_for(resource_id to, std::size_t bytes) const noexcept {
    if (boxes_.find(to) == boxes_.end()) return errc::not_found;
    // A message larger than the whole store may be stored alone.
    const bool fits =
        held_ == 0 || counted(bytes) <= most_bytes_ - std::min(most_bytes_, held_bytes_);
    return fits ? errc::ok : errc::overloaded;
}

void message_store::refuse(box& at, resource_id from) {
    if (at.refused.size() >= most_refused_) at.refused.clear();
    at.refused.insert(from);
}

errc message_store::put(resource_message& message, turn in) {
    const std::lock_guard one(lock_);
    const auto at = boxes_.find(message.to);
    if (at == boxes_.end()) return errc::not_found;
    if (in == turn::follows && at->second.refused.contains(message.from)) return errc::overloaded;
    if (in == turn::begins) at->second.refused.erase(message.from);
    for (takers* those : {&at->second.waiting, &of_any_}) {
        taker* const who = taker_of(*those, message);
        if (who == nullptr) continue;
        those->remove(*who);
        who->got.emplace(std::move(message));
        who->who.unpark();
        return errc::ok;
    }
    const std::size_t bytes = message.content.size();
    if (const errc full = room_for(message.to, bytes); full != errc::ok) {
        if (in != turn::alone) refuse(at->second, message.from);
        return full;
    }
    if (spare_.empty()) spare_.emplace_back();
    spare_.front().number = ++arrived_;
    spare_.front().message = std::move(message);
    at->second.messages.splice(at->second.messages.end(), spare_, spare_.begin());
    held_bytes_ += counted(bytes);
    ++held_;
    return errc::ok;
}

errc message_store::wait_for_room(resource_id to, std::size_t bytes, time_point deadline) {
    room_wait me{to, bytes, {}};
    {
        const std::lock_guard one(lock_);
        const errc room = room_for(to, bytes);
        if (room != errc::overloaded) return room;
        want_room_.push_back(&me);
    }
    me.who.waits_for("room for a message");
    me.who.allow_cancel();
    if (!me.who.park_once_until(deadline)) {
        std::unique_lock one(lock_);
        const auto at = std::find(want_room_.begin(), want_room_.end(), &me);
        if (at != want_room_.end()) {
            want_room_.erase(at);
            one.unlock();
            throw_if_canceled();
            return errc::overloaded;
        }
        one.unlock();
        me.who.park();  // Unparked at the last moment.
    }
    const std::lock_guard one(lock_);
    return boxes_.contains(to) ? errc::ok : errc::not_found;
}

void message_store::tell_of_room() noexcept {
    std::erase_if(want_room_, [&](room_wait* each) {
        if (room_for(each->to, each->bytes) == errc::overloaded) return false;
        each->who.unpark();
        return true;
    });
}

resource_message message_store::take_from(box& where, std::list<stored>::iterator which) {
    resource_message message = std::move(which->message);
    spare_.splice(spare_.begin(), where.messages, which);
    if (spare_.size() > 64) spare_.pop_back();
    held_bytes_ -= counted(message.content.size());
    --held_;
    tell_of_room();
    return message;
}

message_store::box& message_store::box_of(resource_id which) {
    if (closed_) throw error(errc::closed, "this context is closed; make a new one");
    const auto at = boxes_.find(which);
    if (at != boxes_.end()) return at->second;
    throw error(errc::not_found, fmt::format("this context has no resource {}: add it first",
                                             static_cast<std::uint32_t>(which)));
}

std::optional<resource_message> message_store::find_and_take(resource_id to,
                                                             const message_choice& which) {
    const auto first_in = [&](box& where) {
        auto at = where.messages.begin();
        while (at != where.messages.end() && !fits(at->message, which))
            ++at;
        return at;
    };
    if (to != resource_id::none) {
        box& where = box_of(to);
        const auto at = first_in(where);
        if (at == where.messages.end()) return std::nullopt;
        return take_from(where, at);
    }
    box* best = nullptr;
    std::list<stored>::iterator first;
    for (auto& [id, where] : boxes_) {
        const auto at = first_in(where);
        if (at == where.messages.end() || (best != nullptr && first->number < at->number)) continue;
        best = &where;
        first = at;
    }
    if (best == nullptr) return std::nullopt;
    return take_from(*best, first);
}

std::optional<resource_message> message_store::try_take(resource_id to,
                                                        const message_choice& which) {
    const std::lock_guard one(lock_);
    return find_and_take(to, which);
}

std::optional<resource_message> message_store::take(resource_id to, const message_choice& which,
                                                    time_point deadline) {
    taker me;
    me.to = to;
    me.which = which;
    takers* where = &of_any_;
    {
        const std::lock_guard one(lock_);
        if (closed_) throw error(errc::closed, "this context is closed; make a new one");
        if (auto found = find_and_take(to, which)) return found;
        if (to != resource_id::none) where = &box_of(to).waiting;
        where->push(me);
    }
    me.who.waits_for("message");
    me.who.allow_cancel();
    if (!me.who.park_once_until(deadline)) {
        std::unique_lock one(lock_);
        if (me.listed) {
            where->remove(me);
            one.unlock();
            throw_if_canceled();
            return std::nullopt;
        }
        one.unlock();
        me.who.park();  // Got a message at the last moment.
    }
    if (me.ended != errc::ok) {
        throw error(
            me.ended,
            me.ended == errc::closed
                ? std::string("this context is closed; make a new one")
                : fmt::format("resource {} was removed while a receiver waited for its messages",
                              static_cast<std::uint32_t>(to)));
    }
    return std::move(me.got);
}

std::size_t message_store::waiting() const {
    const std::lock_guard one(lock_);
    return held_;
}

}  // namespace amalgam::detail

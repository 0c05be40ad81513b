#include "directory/server/message_store.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace amalgam::detail {

namespace {

// An empty message has nothing to give up, so it need not be destroyed before it is made anew.
void move_into(resource_message& empty, resource_message&& from) noexcept {
    std::construct_at(&empty, std::move(from));
}

void move_into(resource_message& empty, resource_id from, resource_id to, std::int32_t tag,
               buffer&& content) noexcept {
    empty.from = from;
    empty.to = to;
    empty.tag = tag;
    std::construct_at(&empty.content, std::move(content));
}

}  // namespace

message_store::~message_store() {
    for (auto& [id, each] : boxes_)
        drop_all(each);
    while (spare_ != nullptr)
        ::operator delete(std::exchange(spare_, spare_->next));
}

void message_store::open(resource_id which) {
    const std::lock_guard one(lock_);
    boxes_.try_emplace(which);
}

void message_store::close(resource_id which) noexcept {
    const std::lock_guard one(lock_);
    const auto at = boxes_.find(which);
    if (at == boxes_.end()) return;
    drop_all(at->second);
    end(at->second.waiting, errc::not_found);
    boxes_.erase(at);
    forget_box(which);
    tell_of_room();
}

void message_store::close_all() noexcept {
    const std::lock_guard one(lock_);
    closed_ = true;
    for (auto& [id, where] : boxes_) {
        drop_all(where);
        end(where.waiting, errc::closed);
    }
    end(of_any_, errc::closed);
    boxes_.clear();
    forget_box(last_asked_);
    tell_of_room();
}

bool message_store::has(resource_id which) const {
    const std::lock_guard one(lock_);
    return boxes_.contains(which);
}

bool message_store::is_closed() const {
    const std::lock_guard one(lock_);
    return closed_;
}

void message_store::end(line<taker>& those, errc how) noexcept {
    while (those.first != nullptr) {
        taker& one = *those.first;
        those.remove(one);
        one.listed = false;
        one.ended = how;
        one.who.unpark();
    }
}

message_store::taker* message_store::taker_of(const line<taker>& those, resource_id from,
                                              std::int32_t tag) noexcept {
    for (taker* each = those.first; each != nullptr; each = each->next)
        if (fits(from, tag, each->which)) return each;
    return nullptr;
}

[[gnu::noinline]] message_store::box* message_store::look_up(resource_id which) noexcept {
    const auto at = boxes_.find(which);
    if (at == boxes_.end()) return nullptr;
    last_asked_ = which;
    return last_found_ = &at->second;
}

inline message_store::box& message_store::box_of(resource_id which) {
    box* const found = find_box(which);
    if (found == nullptr || closed_) [[unlikely]]
        throw_no_box(which);
    return *found;
}

[[gnu::noinline]] void message_store::throw_no_box(resource_id which) const {
    if (closed_) throw error(errc::closed, "this context is closed; make a new one");
    throw error(errc::not_found, fmt::format("this context has no resource {}: add it first",
                                             static_cast<std::uint32_t>(which)));
}

void message_store::forget_box(resource_id which) noexcept {
    if (which == last_asked_) last_found_ = nullptr;
}

bool message_store::has_room_for(std::size_t bytes) const noexcept {
    // A message larger than the whole store may be stored alone.
    return held_ == 0 || counted(bytes) <= most_bytes_ - std::min(most_bytes_, held_bytes_);
}

errc message_store::room_for(resource_id to, std::size_t bytes) noexcept {
    if (find_box(to) == nullptr) return errc::not_found;
    return has_room_for(bytes) ? errc::ok : errc::overloaded;
}

void message_store::refuse(box& at, resource_id from) {
    if (at.refused.size() >= most_refused_) at.refused.clear();
    at.refused.insert(from);
}

errc message_store::refuse(const resource_message& message, turn in) {
    const std::lock_guard one(lock_);
    box* const at = find_box(message.to);
    if (at == nullptr) return errc::not_found;
    if (in != turn::alone) refuse(*at, message.from);
    return errc::overloaded;
}

inline message_store::taker* message_store::next_taker(box& at, resource_id from,
                                                       std::int32_t tag) noexcept {
    line<taker>* those = &at.waiting;
    taker* who = taker_of(*those, from, tag);
    if (who == nullptr) {
        those = &of_any_;
        who = taker_of(*those, from, tag);
        if (who == nullptr) return nullptr;
    }
    those->remove(*who);
    who->listed = false;
    return who;
}

/// To who waits for it. False: nobody does.
bool message_store::hand_over(box& at, resource_message& message) {
    taker* const who = next_taker(at, message.from, message.tag);
    if (who == nullptr) return false;
    move_into(who->got, std::move(message));
    who->who.unpark();
    return true;
}

errc message_store::put(resource_message& message, turn in, std::uint64_t hidden_for) {
    const std::lock_guard one(lock_);
    box* const at = find_box(message.to);
    if (at == nullptr) return errc::not_found;
    if (in == turn::follows && at->refused.contains(message.from)) return errc::overloaded;
    if (in == turn::begins) at->refused.erase(message.from);
    if (hidden_for == 0 && hand_over(*at, message)) return errc::ok;
    const std::size_t bytes = message.content.size();
    if (!has_room_for(bytes)) {
        if (in != turn::alone) refuse(*at, message.from);
        return errc::overloaded;
    }
    move_into(store(*at, bytes, hidden_for), std::move(message));
    return errc::ok;
}

errc message_store::put_short(resource_id from, resource_id to, std::int32_t tag, buffer& content) {
    const std::lock_guard one(lock_);
    box* const at = find_box(to);
    if (at == nullptr) return errc::not_found;
    if (taker* const who = next_taker(*at, from, tag)) {
        move_into(who->got, from, to, tag, std::move(content));
        who->who.unpark();
        return errc::ok;
    }
    if (!has_room_for(content.size())) return errc::overloaded;
    move_into(store(*at, content.size(), 0), from, to, tag, std::move(content));
    return errc::ok;
}

void message_store::remove(box& at, stored& one, std::size_t bytes) noexcept {
    held_bytes_ -= counted(bytes);
    --held_;
    at.messages.remove(one);
    recycle(one);
}

void message_store::show(std::uint64_t hidden_for) {
    const std::lock_guard one(lock_);
    for (auto& [id, at] : boxes_) {
        for (stored* each = at.messages.first; each != nullptr;) {
            stored& now = *std::exchange(each, each->next);
            if (now.hidden_for != hidden_for) continue;
            now.hidden_for = 0;
            const std::size_t bytes = now.message.content.size();
            if (hand_over(at, now.message)) remove(at, now, bytes);
        }
    }
    if (!want_room_.empty()) tell_of_room();
}

std::size_t message_store::drop(std::uint64_t hidden_for) noexcept {
    std::size_t dropped = 0;
    const std::lock_guard one(lock_);
    for (auto& [id, at] : boxes_) {
        for (stored* each = at.messages.first; each != nullptr;) {
            stored& now = *std::exchange(each, each->next);
            if (now.hidden_for != hidden_for) continue;
            remove(at, now, now.message.content.size());
            ++dropped;
        }
    }
    if (!want_room_.empty()) tell_of_room();
    return dropped;
}

inline resource_message& message_store::store(box& at, std::size_t bytes,
                                              std::uint64_t hidden_for) {
    void* home = spare_;
    if (home != nullptr) {
        spare_ = spare_->next;
        --spares_;
    } else {
        home = ::operator new(sizeof(stored));
    }
    held_bytes_ += counted(bytes);
    ++held_;
    stored& fresh = *::new (home) stored{++arrived_, {}, hidden_for};
    at.messages.push(fresh);
    return fresh.message;
}

void message_store::recycle(stored& one) noexcept {
    one.~stored();
    if (spares_ >= most_spare) return ::operator delete(&one);
    spare_ = ::new (&one) spare{spare_};
    ++spares_;
}

void message_store::drop_all(box& of) noexcept {
    while (stored* const first = of.messages.first) {
        of.messages.remove(*first);
        held_bytes_ -= counted(first->message.content.size());
        --held_;
        recycle(*first);
    }
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
    return find_box(to) != nullptr ? errc::ok : errc::not_found;
}

void message_store::tell_of_room() noexcept {
    std::erase_if(want_room_, [&](room_wait* each) {
        if (room_for(each->to, each->bytes) == errc::overloaded) return false;
        each->who.unpark();
        return true;
    });
}

message_store::stored* message_store::first_in(const box& where,
                                               const message_choice& which) noexcept {
    stored* at = where.messages.first;
    while (at != nullptr &&
           (at->hidden_for != 0 || !fits(at->message.from, at->message.tag, which)))
        at = at->next;
    return at;
}

inline bool message_store::find_and_take(resource_id to, const message_choice& which,
                                         resource_message& into) {
    if (to == resource_id::none) return find_and_take_any(which, into);
    box& where = box_of(to);
    if (where.messages.first == nullptr) return false;
    stored* const first = first_in(where, which);
    if (first == nullptr) return false;
    take_out(where, *first, into);
    return true;
}

[[gnu::noinline]] bool message_store::find_and_take_any(const message_choice& which,
                                                        resource_message& into) {
    box* where = nullptr;
    stored* first = nullptr;
    for (auto& [id, each] : boxes_) {
        stored* const at = first_in(each, which);
        if (at == nullptr || (first != nullptr && first->number < at->number)) continue;
        where = &each;
        first = at;
    }
    if (first == nullptr) return false;
    take_out(*where, *first, into);
    return true;
}

void message_store::take_out(box& where, stored& one, resource_message& into) {
    const std::size_t bytes = one.message.content.size();
    move_into(into, std::move(one.message));
    remove(where, one, bytes);
    if (!want_room_.empty()) tell_of_room();
}

bool message_store::try_take(resource_id to, const message_choice& which, resource_message& into) {
    const std::lock_guard one(lock_);
    return find_and_take(to, which, into);
}

std::optional<resource_message> message_store::try_take(resource_id to,
                                                        const message_choice& which) {
    std::optional<resource_message> found(std::in_place);
    if (!try_take(to, which, *found)) found.reset();
    return found;
}

std::optional<resource_message> message_store::take(resource_id to, const message_choice& which,
                                                    time_point deadline) {
    std::optional<resource_message> got(std::in_place);
    if (!take(to, which, deadline, *got)) got.reset();
    return got;
}

bool message_store::take(resource_id to, const message_choice& which, time_point deadline,
                         resource_message& into) {
    taker me{.to = to, .which = which, .got = into};
    line<taker>* where = &of_any_;
    {
        const std::lock_guard one(lock_);
        if (closed_) throw error(errc::closed, "this context is closed; make a new one");
        if (find_and_take(to, which, into)) return true;
        if (to != resource_id::none) where = &box_of(to).waiting;
        where->push(me);
        me.listed = true;
    }
    me.who.waits_for("message");
    me.who.allow_cancel();
    if (!me.who.park_once_until(deadline)) {
        std::unique_lock one(lock_);
        if (me.listed) {
            where->remove(me);
            me.listed = false;
            one.unlock();
            throw_if_canceled();
            return false;
        }
        one.unlock();
        me.who.park();  // Got a message at the last moment.
    }
    if (me.ended != errc::ok) [[unlikely]]
        throw_ended(to, me.ended);
    return true;
}

[[gnu::noinline]] void message_store::throw_ended(resource_id to, errc how) {
    throw error(
        how, how == errc::closed
                 ? std::string("this context is closed; make a new one")
                 : fmt::format("resource {} was removed while a receiver waited for its messages",
                               static_cast<std::uint32_t>(to)));
}

std::size_t message_store::waiting() const {
    const std::lock_guard one(lock_);
    return held_;
}

}  // namespace amalgam::detail

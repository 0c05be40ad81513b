#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <unistd.h>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/extension/thrown.hpp>

#include "directory/client/context_core.hpp"
#include "directory/limits.hpp"
#include "directory/protocol/background.hpp"

namespace amalgam::detail {

// Whether who sends a message as a resource may do that.

namespace {

/// Whether both proved to be the same, in the same way.
bool is_same(const identity& a, const identity& b) {
    if (a.kind != b.kind) return false;
    if (a.kind == identity_kind::certificate) return a.key == b.key;
    return a.kind == identity_kind::process && a.uid == b.uid;
}

/// Who is trusted by his key alone has no other name.
bool is_named_by_key(const identity& who) {
    return who.name == to_text(who.key);
}

/// They may be one who has replaced his key: his authority gave him the name, or he has none.
bool may_be_renewed(const identity& before, const identity& now) {
    if (before.kind != identity_kind::certificate || now.kind != identity_kind::certificate)
        return false;
    return before.name == now.name || (is_named_by_key(before) && is_named_by_key(now));
}

/// This user's processes on this host are not kept apart from each other.
bool is_own_user(const identity& who) noexcept {
    return who.kind == identity_kind::process && who.uid == ::geteuid();
}

/// The owner of a resource would prove who he is, if he could be reached. Were others taken at
/// their word meanwhile, whoever keeps him from that, or waits until he is gone, could send in his
/// place.
bool must_be_compared(const identity& who) noexcept {
    return who.kind == identity_kind::certificate || who.kind == identity_kind::none;
}

}  // namespace

[[gnu::noinline]] context_core::sender context_core::judge_anew(resource_id which, const peer& by) {
    // Read first: what changes meanwhile makes the next message look again.
    const std::uint64_t before = where_.changes();
    if (asked_count_.load(std::memory_order_acquire) > 0) {
        const std::lock_guard one(asked_lock_);
        if (asked_about(which, by) != nullptr) return sender::unknown;
    }
    const sender found = learn_sender(which, by);
    if (found == sender::good) last_sender_ = {which, by, before};
    return found;
}

context_core::sender context_core::learn_sender(resource_id which, const peer& from) {
    // Nobody else may claim a resource of this context.
    if (const auto known = where_.find(which, traffic::small)) {
        if (from.is_self() || *known == from) return sender::good;
        return known->is_self() ? sender::other : compare_with_owner(which, from);
    }
    if (!from.is_self() && messages_.has(which)) return sender::other;
    const sender found = from.is_self() ? sender::good : compare_with_owner(which, from);
    if (found != sender::good) return found;
    try {
        where_.learn_sender(which, ways_to(from));
    } catch (...) {  // A user's choice function. Who sends cannot help it.
        const amalgam::failure why = thrown_here("context_options::choose");
        limited_log(log_level::warn, "directory", "cannot choose a way to the sender",
                    {{"why", why.sentence}});
        where_.learn_sender(which, ways_there(from));
    }
    return sender::good;
}

context_core::sender context_core::compare_with_owner(resource_id which, const peer& by) {
    if (const auto owner = where_.find_looked_up(which))
        return compare_with_owner(which, by, *owner);
    const identity who = by.who();
    return is_own_user(who) || who.kind == identity_kind::none || where_.uses(which, by)
               ? sender::good
               : sender::unknown;
}

context_core::sender context_core::compare_with_owner(resource_id which, const peer& by,
                                                      const peer& owner) {
    const identity who = by.who();
    if (is_own_user(who)) return sender::good;
    bool is_other = false, is_unproven = false, is_renewed = false;
    for (const peer_way& each : on_.ways(owner)) {
        const identity its = each.by.who();
        if (each.by == by || is_same(its, who)) return sender::good;
        // Other kinds say nothing of each other, but who proves nothing is not who is certified.
        // Where both ends have a pre-shared key, whom we connected to has the name of our own.
        if (may_be_renewed(its, who))
            is_renewed = true;
        else if (who.kind == identity_kind::none
                     ? its.kind == identity_kind::certificate ||
                           its.kind == identity_kind::pre_shared
                     : its.kind == who.kind && who.kind != identity_kind::pre_shared)
            is_other = true;
        if (its.kind == identity_kind::none && is_encrypted(each.can.transport)) is_unproven = true;
    }
    if (!is_other && (is_renewed || (is_unproven && must_be_compared(who)))) return sender::unknown;
    if (!is_other) return sender::good;
    forged_.add();
    limited_log(
        log_level::warn, "directory", "refused a message of another's resource",
        {{"resource", number(which)}, {"by", to_text(who)}, {"owner", to_text(owner.who())}});
    return sender::other;
}

std::shared_ptr<context_core::asked_sender> context_core::asked_about(resource_id which,
                                                                      const peer& by) const {
    const auto at = std::find_if(asked_.begin(), asked_.end(), [&](const auto& each) {
        return each->which == which && each->by == by;
    });
    return at == asked_.end() ? nullptr : *at;
}

std::shared_ptr<context_core::asked_sender> context_core::asked_before(const peer& by,
                                                                       const identity& who) const {
    std::shared_ptr<asked_sender> first;
    std::size_t of_one = 0;
    for (const auto& each : asked_) {
        if (!(each->by == by) && !is_same(each->who, who)) continue;
        if (first == nullptr) first = each;
        ++of_one;
    }
    if (of_one >= limits::max_senders_of_one) return first;
    return asked_.size() >= limits::max_senders_looked_up ? asked_.front() : nullptr;
}

std::shared_ptr<context_core::asked_sender> context_core::ask_about(resource_id which,
                                                                    const peer& by,
                                                                    const identity& who) {
    if (auto already = asked_about(which, by)) return already;
    if (asked_before(by, who) != nullptr) return nullptr;
    const auto fresh = std::make_shared<asked_sender>(++last_asked_, which, by, who);
    asked_.push_back(fresh);
    try {
        post_in_background(on_.pool(),
                           [self = shared_from_this(), fresh] { self->settle(*fresh); });
    } catch (...) {
        asked_.pop_back();
        throw;
    }
    asked_count_.store(asked_.size(), std::memory_order_release);
    return fresh;
}

context_core::owner_found context_core::look_up_sender(resource_id which) {
    owner_found found;
    try {
        const peer owner = look_up(which, traffic::small, &found);
        // So that it is connected, and known who it is. A new look-up has waited for that already,
        // so no test fails without this: it is for one that was known, and was lost a moment ago.
        (void)on_.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping")
            .on(owner)
            .within(limits::answer_limit)
            .try_call(0);
        found.at = owner;
    } catch (const error& why) {  // It listens nowhere, is gone, or cannot be reached.
        if (why.code() == errc::canceled) throw;
        found.may_exist = why.code() != errc::not_found;
        log(log_level::debug, "directory", "cannot look up who sent a message",
            {{"resource", number(which)}, {"why", why.what()}});
    } catch (...) {
        log_thrown_in("directory", "context_options::choose");
    }
    return found;
}

bool context_core::has_key(const_bytes key) {
    key_fingerprint asked;
    if (key.size() != asked.bytes.size()) return false;
    std::memcpy(asked.bytes.data(), key.data(), key.size());
    return detail::has_key(on_.core(), asked);
}

bool context_core::has_new_key(const peer& owner, const identity& who) {
    for (const peer_way& each : on_.ways(owner)) {
        const identity before = each.by.who();
        if (!may_be_renewed(before, who)) continue;
        const auto answer = has_key_.on(each.by)
                                .within(limits::answer_limit)
                                .try_call(std::as_bytes(std::span(who.key.bytes)));
        // The same connection: nobody else has answered.
        if (answer && *answer && is_same(each.by.who(), before)) return true;
    }
    return false;
}

/// Asks the directory. Where the owner listens nowhere, the sender is taken at his word.
void context_core::settle(asked_sender& whom) noexcept {
    try {
        const owner_found owner = look_up_sender(whom.which);
        sender found = sender::good;
        if (owner.at) {
            found = compare_with_owner(whom.which, whom.by, *owner.at);
            if (found == sender::unknown && has_new_key(*owner.at, whom.who)) {
                found = sender::good;
                where_.forget(whom.which);  // It is answered where it is now.
            }
        } else if (owner.would_prove && must_be_compared(whom.who))
            found = sender::unknown;
        if (found == sender::unknown) {
            forged_.add();
            limited_log(log_level::warn, "directory",
                        "refused a message of a resource whose owner cannot be reached, and so not "
                        "be compared with who sends it",
                        {{"resource", number(whom.which)}, {"by", to_text(whom.by.who())}});
        }
        whom.verdict = found == sender::good ? errc::ok : errc::denied;
        // Of an id that there is not, nothing is remembered: once somebody gets it, what is sent to
        // it must not go to who used it before.
        if (found == sender::good && owner.may_exist)
            where_.learn_sender(whom.which, ways_to(whom.by));
    } catch (const error& why) {
        if (why.code() != errc::canceled) log_thrown_in("directory", "context_options::choose");
    } catch (...) {
        log_thrown_in("directory", "context_options::choose");
    }
    // Both within the lock: what arrives next is not put before what is shown.
    const std::lock_guard one(asked_lock_);
    if (whom.verdict == errc::ok)
        messages_.show(whom.number);
    else if (const std::size_t dropped = messages_.drop(whom.number); dropped > 1)
        forged_.add(dropped - 1);  // One was counted already.
    std::erase_if(asked_, [&](const auto& each) { return each.get() == &whom; });
    asked_count_.store(asked_.size(), std::memory_order_release);
    whom.settled.set();
}

/// Keeps it until the directory has said whether it may come from there.
errc context_core::hide(const peer& by, resource_message& message, message_store::turn in) {
    {
        const std::lock_guard one(asked_lock_);
        if (const auto asked = asked_about(message.from, by))
            return messages_.put(message, in, asked->number);
    }
    // The directory may have answered a moment ago.
    const sender found = learn_sender(message.from, by);
    if (found == sender::other) return errc::denied;
    if (found == sender::good) return messages_.put(message, in);
    const identity who = by.who();
    const std::lock_guard one(asked_lock_);
    const auto asked = ask_about(message.from, by, who);
    return asked == nullptr ? messages_.refuse(message, in)
                            : messages_.put(message, in, asked->number);
}

/// Waits until the directory has said so.
errc context_core::wait_for_verdict(resource_id which, const peer& by, time_point deadline) {
    const sender found = learn_sender(which, by);
    if (found == sender::other) return errc::denied;
    if (found == sender::good) return errc::ok;
    const identity who = by.who();
    std::shared_ptr<asked_sender> asked;
    {
        const std::lock_guard one(asked_lock_);
        asked = ask_about(which, by, who);
    }
    if (asked == nullptr) return errc::overloaded;
    return asked->settled.wait_until(deadline) ? asked->verdict : errc::timed_out;
}

}  // namespace amalgam::detail

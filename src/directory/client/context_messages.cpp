#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/extension/thrown.hpp>
#include <amalgam/tasks/extension/deadline.hpp>

#include "directory/client/context_core.hpp"

namespace amalgam::detail {

// Messages between resources: their destination, path and outcome.

namespace {

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> all;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        if (end != 0) all.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

/// Content of one word, which is common, is copied without a call.
[[gnu::always_inline]] inline void copy_short(std::byte* to, const_bytes from) noexcept {
    if (from.size() == sizeof(std::uint64_t))
        std::memcpy(to, from.data(), sizeof(std::uint64_t));
    else if (!from.empty())
        std::memcpy(to, from.data(), from.size());
}

}  // namespace

message_buffer context_core::take_buffer(std::size_t bytes) {
    if (bytes > options_.eager_bytes) return long_buffers_.take(bytes);
    return short_buffers_.take(bytes);
}

[[gnu::noinline]] peer context_core::locate_anew(resource_id which, traffic what) {
    if (const auto known = where_.find(which, what)) return *known;
    if (const auto known = where_.begin_look_up(which, what)) return *known;
    const struct under_way {
        locations& of;
        resource_id which;
        ~under_way() { of.end_look_up(which); }
    } here{where_, which};
    try {
        return look_up(which, what);
    } catch (const error&) {  // It may have written itself meanwhile.
        if (const auto shown = where_.find_shown(which, what)) return *shown;
        throw;
    }
}

peer context_core::look_up(resource_id which, traffic what, owner_found* owner) {
    const auto missing = [&] {
        return error(errc::not_found, fmt::format("there is no resource {}", number(which)));
    };
    const part_answer answer = ask(which, attribute_list().ask(context_addresses));
    const found_values& found = answer.found;
    if (found.id == resource_id::none && answer.silent != 0)
        throw error(errc::timed_out,
                    fmt::format("resource {} was not found, and {} directories that may have it "
                                "did not answer",
                                number(which), answer.silent));
    if (found.id == resource_id::none) throw missing();
    const resource_id context = found.context == resource_id::none ? which : found.context;
    const std::vector<std::string> addresses = lines_of(found.values.text(context_addresses));
    if (owner != nullptr)
        owner->would_prove = std::any_of(addresses.begin(), addresses.end(), [](const auto& each) {
            const result<uri> there = parse_uri(each);
            return there && is_encrypted(*there);
        });
    // Two servers may have given out the same id: then only the address distinguishes their
    // contexts.
    const auto known_there = where_.find_context(context);
    if (context == id_ && addresses == on_.addresses()) {
        where_.learn_context(context, ways_there(self_of(on_.core())));
    } else if (!known_there || std::find(addresses.begin(), addresses.end(),
                                         known_there->address()) == addresses.end()) {
        const peer there = on_.lookup(addresses);
        where_.learn_context(context, ways_to(there));
    }
    where_.learn(which, context, owner != nullptr);
    if (const auto known = where_.find(which, what)) return *known;
    if (owner != nullptr)  // There was no room for it.
        if (const auto there = where_.find_context(context)) return *there;
    throw error(errc::disconnected,
                fmt::format("the context of resource {} is gone", number(which)));
}

ways_there context_core::ways_to(const peer& context) {
    const std::vector<peer_way> ways = on_.ways(context);
    ways_there chosen(context);
    if (ways.size() < 2) return chosen;
    for (const traffic what : {traffic::small, traffic::bulk, traffic::control}) {
        const std::size_t which = options_.choose(what, ways);
        if (which >= ways.size())
            throw error(
                errc::invalid,
                fmt::format(
                    "context_options::choose returned way {} of {}, expected an index from 0",
                    which, ways.size()));
        chosen.by[static_cast<std::size_t>(what)] = ways[which].by;
    }
    return chosen;
}

context_core::nanoseconds context_core::left_until(time_point deadline) const {
    if (deadline == time_point::max()) return nanoseconds::max();
    return std::max(nanoseconds(0), nanoseconds(deadline - on_.now()));
}

bool context_core::may_be_elsewhere(resource_id to, const peer& there, errc became) {
    // Otherwise it may have been stored there, and resending would duplicate it.
    if (became != errc::not_found && became != errc::unreachable) return false;
    became == errc::unreachable ? where_.forget(there) : where_.forget(to);
    return true;
}

error context_core::not_arrived(resource_id to, const result<errc>& became) {
    const errc how = became ? *became : became.code().code;
    return {how, how == errc::not_found
                     ? fmt::format("resource {} no longer exists", number(to))
                     : fmt::format("the message to resource {} did not arrive: {}", number(to),
                                   became ? name(how) : became.sentence())};
}

template <typename Deliver>
void context_core::send_by(resource_id to, traffic what, std::size_t bytes, time_point deadline,
                           Deliver deliver) {
    bool again = false;
    for (;;) {
        const peer there = locate(to, what);
        const result<errc> became = deliver(there, left_until(deadline));
        const errc how = became ? *became : became.code().code;
        if (how == errc::ok) return;
        if (!again && may_be_elsewhere(to, there, how)) {
            again = true;
            continue;
        }
        if (!became || how != errc::overloaded) throw not_arrived(to, became);
        room_.on(locate(to, traffic::control)).within(left_until(deadline))(to, bytes);
    }
}

void context_core::send(resource_id from, resource_id to, std::int32_t tag, const_bytes content,
                        nanoseconds within) {
    const time_point deadline = deadline_after(within, on_.now());
    if (lanes_.idle()) [[likely]]
        return send_now(from, to, tag, content, deadline);
    check_runs(on_.core());
    const send_turn mine(lanes_, from, to, deadline);
    send_now(from, to, tag, content, deadline);
}

void context_core::send_now(resource_id from, resource_id to, std::int32_t tag, const_bytes content,
                            time_point deadline) {
    if (content.size() > options_.eager_bytes) {
        const exposed lent = expose(on_, const_segments(content));
        return send_long(from, to, tag, lent, deadline);
    }
    send_by(to, traffic::small, content.size(), deadline, [&](const peer& there, nanoseconds left) {
        return message_.on(there).within(left).try_call(from, to, tag, content);
    });
}

void context_core::check_own(resource_id which) const {
    if (messages_.has(which)) return;
    if (messages_.is_closed()) throw error(errc::closed, context_is_closed);
    throw error(errc::invalid,
                fmt::format("a message cannot be sent from {}, which is not a resource of this "
                            "context; example: from {}, the context itself",
                            number(which), number(id_)));
}

void context_core::finish_sends() {
    messages_.close_all();
    if (!is_of_parent(on_.core())) lanes_.wait_until_idle();
}

std::optional<resource_message> context_core::receive(resource_id to, const message_choice& which,
                                                      nanoseconds within) {
    if (within == nanoseconds(0)) return messages_.try_take(to, which);
    check_runs(on_.core());
    return messages_.take(to, which, deadline_after(within));
}

void context_core::send_long(resource_id from, resource_id to, std::int32_t tag,
                             const amalgam::bulk& content, time_point deadline) {
    send_by(to, traffic::bulk, content.bytes(), deadline, [&](const peer& there, nanoseconds left) {
        return long_message_.on(there).within(left).try_call(from, to, tag, content);
    });
}

[[gnu::always_inline]] inline void context_core::post_short(resource_id from, resource_id to,
                                                            std::int32_t tag, const_bytes content) {
    const peer there = locate(to, traffic::small);
    const auto header = at_context::mail_header{from, to, tag}.encode();
    if (!post_mail(on_.core(), there, header, content)) [[unlikely]]
        message_.on(there).post(from, to, tag, content);
}

void context_core::post(resource_id from, resource_id to, std::int32_t tag, const_bytes content) {
    if (content.size() <= options_.eager_bytes && lanes_.idle()) [[likely]]
        return post_short(from, to, tag, content);
    message_buffer copy = take_buffer(content.size());
    std::copy(content.begin(), content.end(), copy.data());
    post(from, to, tag, std::move(copy));
}

void context_core::post(resource_id from, resource_id to, std::int32_t tag,
                        message_buffer content) {
    if (lanes_.idle()) [[likely]]
        return post_now(from, to, tag, std::move(content));
    check_runs(on_.core());
    const auto behind = make_small<posted_send>(tag, std::move(content));
    if (!lanes_.push_if_open(from, to, behind, options_.store_bytes))
        post_now(from, to, tag, std::move(behind->content()));
}

void context_core::post_now(resource_id from, resource_id to, std::int32_t tag,
                            message_buffer content) {
    if (!content.is_registered() && content.size() <= options_.eager_bytes)
        return post_short(from, to, tag, content.bytes());
    if (!content.is_registered()) {
        message_buffer copy = take_buffer(content.size());
        std::copy(content.bytes().begin(), content.bytes().end(), copy.data());
        content = std::move(copy);
    }
    const peer there = locate(to, traffic::bulk);
    long_message_.on(there).post(from, to, tag, lend(content.take_registered()));
}

amalgam::bulk context_core::lend(bulk_buffer content) {
    try {
        return expose_owned(on_, std::move(content));
    } catch (const error& why) {
        if (why.code() != errc::invalid || !content) throw;
    }
    bulk_buffer copy = long_buffers_.take(content.size());  // It is another engine's.
    std::copy(content.begin(), content.end(), copy.begin());
    return expose_owned(on_, std::move(copy));
}

void context_core::tell_undelivered(const peer& by, resource_id from, resource_id to,
                                    std::int32_t tag, errc why) {
    const auto back = where_.find(from, traffic::control);
    undelivered_.on(back.value_or(by)).post(from, to, tag, why);
}

/// A short message that nobody holds up.
[[gnu::always_inline]] inline errc context_core::arrived_alone(const peer& by, resource_id from,
                                                               resource_id to, std::int32_t tag,
                                                               const_bytes content) {
    const sender found = judge(from, by);
    if (found == sender::other) return errc::denied;
    buffer copy = short_buffers_.take(content.size());
    copy_short(copy.data(), content);
    if (found == sender::good) [[likely]]
        return messages_.put_short(from, to, tag, copy);
    resource_message hidden{from, to, tag, std::move(copy)};
    return hide(by, hidden, message_store::turn::alone);
}

void context_core::on_mail(const peer& by, const_bytes content) noexcept {
    using at_context::mail_header;
    if (closed_.load(std::memory_order_relaxed)) return;
    if (content.size() < mail_header::wire_bytes) return;
    const mail_header head = mail_header::decode(content);
    errc how = errc::no_memory;
    try {
        how = arrived_alone(by, head.from, head.to, head.tag,
                            content.subspan(mail_header::wire_bytes));
    } catch (const std::bad_alloc&) {
        // It is told.
    } catch (const error& why) {
        how = why.code().code;
    } catch (const std::exception& why) {
        return lost_mail(head, why);
    }
    if (how != errc::ok) [[unlikely]]
        tell_refused(by, head, how);
}

[[gnu::noinline]] void context_core::tell_refused(const peer& by,
                                                  const at_context::mail_header& head,
                                                  errc why) noexcept {
    try {
        tell_undelivered(by, head.from, head.to, head.tag, why);
    } catch (const std::exception& lost) {
        lost_mail(head, lost);
    }
}

[[gnu::noinline]] void context_core::lost_mail(const at_context::mail_header& head,
                                               const std::exception& why) noexcept {
    limited_log(log_level::warn, "directory", "a posted message was lost",
                {{"to", number(head.to)}, {"why", why.what()}});
}

errc context_core::message(resource_id from, resource_id to, std::int32_t tag,
                           const_bytes content) {
    const call_context& call = call_context::current();
    const errc how = arrived_alone(call.from(), from, to, tag, content);
    if (how != errc::ok && call.one_way()) tell_undelivered(call.from(), from, to, tag, how);
    return how;
}

errc context_core::message_in_turn(resource_id from, resource_id to, std::int32_t tag,
                                   const_bytes content, bool begins) {
    using turn = message_store::turn;
    const turn in = begins ? turn::begins : turn::follows;
    const peer& by = call_context::current().from();
    const sender found = judge(from, by);
    if (found == sender::other) return errc::denied;
    resource_message arrived{from, to, tag, short_buffers_.take(content.size())};
    std::copy(content.begin(), content.end(), arrived.content.data());
    return found == sender::good ? messages_.put(arrived, in) : hide(by, arrived, in);
}

errc context_core::long_message(resource_id from, resource_id to, std::int32_t tag,
                                amalgam::bulk content) {
    const call_context& call = call_context::current();
    const time_point deadline = call.deadline().value_or(time_point::max());
    errc how = wait_for_verdict(from, call.from(), deadline);
    if (how != errc::ok) {
        if (how != errc::denied && call.one_way())
            tell_undelivered(call.from(), from, to, tag, how);
        return how;
    }
    resource_message arrived{from, to, tag, {}};
    do {
        how = messages_.wait_for_room(to, content.bytes(), deadline);
        if (how != errc::ok) break;
        if (arrived.content.size() != content.bytes()) {
            arrived.content = take_buffer(content.bytes());
            how = content.try_pull(arrived.content.bytes()).code().code;
            if (how != errc::ok) break;
        }
        how = messages_.put(arrived);
    } while (how == errc::overloaded);
    if (how != errc::ok && call.one_way()) tell_undelivered(call.from(), from, to, tag, how);
    return how == errc::overloaded ? errc::timed_out : how;
}

errc context_core::room(resource_id to, std::uint64_t bytes) {
    const call_context& call = call_context::current();
    const time_point deadline = call.deadline().value_or(time_point::max());
    // Perhaps it was no room that was missing.
    const identity who = call.who();
    std::shared_ptr<asked_sender> before;
    {
        const std::lock_guard one(asked_lock_);
        before = asked_before(call.from(), who);
    }
    if (before != nullptr && !before->settled.wait_until(deadline)) return errc::overloaded;
    return messages_.wait_for_room(to, bytes, deadline);
}

void context_core::undelivered(resource_id from, resource_id to, std::int32_t tag, errc why) {
    // Only whoever has `to` knows what became of it.
    const peer& by = call_context::current().from();
    if (!by.is_self() && compare_with_owner(to, by) == sender::other) return;
    if (why == errc::not_found) where_.forget(to);
    report_undelivered({from, to, tag, why});
}

void context_core::report_undelivered(const undelivered_message& which) noexcept {
    try {
        if (options_.on_undelivered) options_.on_undelivered(which);
    } catch (...) {
        log_thrown_in("directory", "context_options::on_undelivered");
    }
}

}  // namespace amalgam::detail

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <amalgam/rpc/archive.hpp>

#include "rpc/serve/running_call.hpp"
#include "rpc/serve/server.hpp"

// The ordinary call at the server, from its header to its answer: nothing but arguments, a result,
// and perhaps a deadline. In one file and few functions, as most calls are such. Whatever turns out
// not to be ordinary on the way is left to the general functions. Functions on the way end in the
// call of what comes next, so none of them has registers to restore afterwards.

namespace amalgam::detail {

/// An ordinary call while its inline handler runs: what the handler may ask. Nothing can cancel it
/// before it ends, so it is counted but in no index.
class server::inline_call final : public call_context {
public:
    inline_call(const peer& from, engine& where, const served_procedure& what, std::uint64_t head,
                clock::time_point until) noexcept
        : call_context(from, where, what.name, until, plain_head::is_one_way(head),
                       plain_head::provider_of(head)) {}
    /// For its failure. Out of line, so that nothing is kept for it.
    [[gnu::noinline]] arrived_call as_arrived(server& by, served_procedure& what, std::uint64_t id,
                                              std::uint64_t head) const noexcept {
        return by.plain_arrival(from_, what, id, head, deadline_);
    }
};

void server::on_plain_request(peer_state& from, message& arrived, std::uint64_t head) noexcept {
    const const_bytes bytes = arrived.bytes();
    if (bytes.size() < request_bytes) [[unlikely]]
        return others_.on_any(from, arrived);
    served_procedure* const what = procedures_.same_again(load_le<std::uint64_t>(bytes.data() + 8),
                                                          plain_head::provider_of(head));
    if (what == nullptr) [[unlikely]]
        return on_plain_request_of_another(from, arrived, head);
    if (!what->plain || !serves_plain_) [[unlikely]]
        return others_.on_any(from, arrived);
    if (what->options.run == handler::inline_) {
        if (bytes.size() == what->flat_request && plain_head::encoding_of(head) == encoding::native)
            return run_flat_inline(from, *what, arrived, head);
        return run_plain_inline(from, *what, arrived, head);
    }
    if (!may_run_plain(from, *what, arrived, head)) [[unlikely]]
        return others_.on_any(from, arrived);
    launch_plain(from, *what, arrived, head);
}

// Out of line, so that on_plain_request() saves no registers.
[[gnu::noinline]] void server::on_plain_request_of_another(peer_state& from, message& arrived,
                                                           std::uint64_t head) noexcept {
    const auto id = load_le<std::uint64_t>(arrived.bytes().data() + 8);
    if (!procedures_.find_for_again(id, plain_head::provider_of(head)))
        return others_.on_any(from, arrived);
    on_plain_request(from, arrived, head);
}

/// Whether no limit is against it, and nobody wants to measure it: what is measured has a clock
/// around it, and is left to the general functions.
[[gnu::always_inline]] inline bool server::may_run_plain(const peer_state& from,
                                                         served_procedure& what,
                                                         const message& arrived,
                                                         std::uint64_t head) const noexcept {
    if (arrived.bytes().size() - request_bytes > max_values_ ||
        out_.unread_bytes().value() > max_unread_total_) [[unlikely]] {
        return false;
    }
    const bool is_too_much = plain_head::is_one_way(head)
                                 ? counts_.one_ways.value() >= max_one_ways_
                                 : running() >= max_running_ || from.unread_bytes > max_unread_;
    if (is_too_much) [[unlikely]]
        return false;
    return --what.until_measured > 0;
}

[[gnu::noinline, gnu::flatten]] void server::run_plain_inline(peer_state& from,
                                                              served_procedure& what,
                                                              message& arrived,
                                                              std::uint64_t head) noexcept {
    // Aligned as required by views of them.
    if (reinterpret_cast<std::uintptr_t>(arrived.bytes().data()) % 8 != 0 ||
        !may_run_plain(from, what, arrived, head)) [[unlikely]] {
        return others_.on_any(from, arrived);
    }
    const std::uint64_t id = arrived.tag();
    inline_call call(from.name, where_, what, head, deadline_of(plain_head::microseconds_of(head)));
    counts_.served.add();
    counts_.running.add();
    ++what.running;
    what.count_request(arrived.bytes().size() - request_bytes);
    answer_values values(&context_.buffers(), &what.options.context);
    const encoding as = plain_head::encoding_of(head);
    try {
        const running_call mine(call);
        const origin between{&context_.core(), call.from(), &values.lends, nullptr, values.context};
        archive_reader reader(arrived.bytes().subspan(request_bytes), as, &between);
        archive_writer writer(values.values, as, &between);
        if (!what.run->invoke(reader, writer, {})) [[unlikely]]
            return answer_inline(call.as_arrived(*this, what, id, head), values, &reader);
    } catch (...) {
        return answer_inline(call.as_arrived(*this, what, id, head), values, nullptr);
    }
    context_.stay_in_parent();
    // The handler may have ended the connection, and the state may be another peer's by now.
    if (!call.one_way() && !(from.name == call.from() && send_plain(from, id, as, values)))
        [[unlikely]] {
        invocation queued(call.as_arrived(*this, what, id, head), nullptr);
        return queued.answer(values, {}, {});
    }
    what.count_answer(call.one_way() ? 0 : values.values.size());
    counts_.running.subtract();
    procedures_.release(what);
    context_.look_whether_quiet();
}

namespace {
/// To where general functions expect results.
void keep(answer_values& into, const flat_result& result) {
    if (result.bytes != 0)
        std::memcpy(into.values.extend(result.bytes), &result.word, result.bytes);
}
}  // namespace

/// As run_plain_inline(), where arguments and result are numbers: no archive, no body.
[[gnu::noinline, gnu::flatten]] void server::run_flat_inline(peer_state& from,
                                                             served_procedure& what,
                                                             message& arrived,
                                                             std::uint64_t head) noexcept {
    if (!may_run_plain(from, what, arrived, head)) [[unlikely]]
        return others_.on_any(from, arrived);
    const std::uint64_t id = arrived.tag();
    inline_call call(from.name, where_, what, head, deadline_of(plain_head::microseconds_of(head)));
    counts_.served.add();
    counts_.running.add();
    ++what.running;
    flat_result result;
    try {
        const running_call mine(call);
        result = what.run->invoke_flat(arrived.bytes().data() + request_bytes);
    } catch (...) {
        answer_values nothing(&context_.buffers(), nullptr);
        return answer_inline(call.as_arrived(*this, what, id, head), nothing, nullptr);
    }
    context_.stay_in_parent();
    if (call.one_way()) {
        ++what.moved.answers;
    } else if (!(from.name == call.from() && send_flat(from, id, result))) [[unlikely]] {
        // As in run_plain_inline().
        answer_values values(&context_.buffers(), nullptr);
        keep(values, result);
        invocation queued(call.as_arrived(*this, what, id, head), nullptr);
        return queued.answer(values, {}, {});
    }
    counts_.running.subtract();
    procedures_.release(what);
    context_.look_whether_quiet();
}

/// The failure of an inline call: `misfit`, or what was thrown and is caught now.
[[gnu::noinline]] void server::answer_inline(const arrived_call& failed, answer_values& values,
                                             const archive_reader* misfit) noexcept {
    invocation call(failed, nullptr);
    misfit != nullptr ? call.answer_misfit(values, *misfit) : call.answer_thrown(values);
}

/// Runs the handler. True: `values` has the result. False: the failure was answered.
[[gnu::always_inline]] inline bool invocation::run_plain(answer_values& values,
                                                         void*& local) noexcept {
    try {
        const running_call mine(*this, local);
        const origin between{&owner_.context().core(), from_, &values.lends, nullptr,
                             values.context};
        archive_reader reader(arguments, values_as(), &between);
        archive_writer writer(values.values, values_as(), &between);
        if (!what().run->invoke(reader, writer, {})) [[unlikely]] {
            answer_misfit(values, reader);
            return false;
        }
    } catch (...) {
        answer_thrown(values);
        return false;
    }
    owner_.context().stay_in_parent();
    return true;
}

[[gnu::flatten]] void invocation::serve_plain() noexcept {
    const task_place here = task_here();
    if (begin(here.stream == &owner_.context().stream()) || is_late()) [[unlikely]]
        return serve_any();  // It does not run.
    if (is_flat()) return serve_flat(*here.local);
    answer_values values(&owner_.context().buffers(), &what().options.context);
    if (run_plain(values, *here.local) && !owner_.conclude_plain(*this, values))
        answer(values, {}, {});
}

[[gnu::flatten]] void invocation::serve_flat(void*& local) noexcept {
    flat_result result;
    try {
        const running_call mine(*this, local);
        result = what().run->invoke_flat(arguments.data());
    } catch (...) {
        answer_values nothing(&owner_.context().buffers(), nullptr);
        return answer_thrown(nothing);
    }
    owner_.context().stay_in_parent();
    if (owner_.conclude_flat(*this, result)) [[likely]]
        return;
    answer_values values(&owner_.context().buffers(), nullptr);
    keep(values, result);
    answer(values, {}, {});
}

bool server::conclude_flat(invocation& call, const flat_result& result) noexcept {
    if (!context_.on_owner()) return false;
    if (!call.one_way() && !call.canceled()) {
        peer_state* const there = peers_.find(call.from());
        if (there == nullptr || !send_flat(*there, call.id(), result)) [[unlikely]]
            return false;
        call.what().moved.sent += result.bytes;
    }
    untrack(call);
    return true;
}

bool server::conclude_plain(invocation& call, answer_values& values) noexcept {
    if (!context_.on_owner()) return false;
    if (!call.one_way() && !call.canceled()) {
        peer_state* const there = peers_.find(call.from());
        if (there == nullptr || !send_plain(*there, call.id(), call.values_as(), values))
            [[unlikely]] {
            return false;
        }
        call.what().moved.sent += values.values.size();
    }
    untrack(call);
    return true;
}

[[gnu::always_inline]] inline bool server::send_plain(peer_state& there, std::uint64_t id,
                                                      encoding as, answer_values& values) noexcept {
    if (!values.lends.empty()) [[unlikely]]
        return false;
    std::byte* const header = values.values.front(reply_bytes);
    store_le(header, plain_head::of_reply(as == encoding::xdr));
    return out_.send_now(there, id, {header, reply_bytes + values.values.size()});
}

[[gnu::always_inline]] inline bool server::send_flat(peer_state& there, std::uint64_t id,
                                                     const flat_result& result) noexcept {
    std::byte answer[reply_bytes + sizeof result.word];
    std::byte* const room = out_.room_for(there);
    std::byte* const to = room != nullptr ? room : answer;
    store_le(to, plain_head::of_reply(false));
    std::memcpy(to + reply_bytes, &result.word, sizeof result.word);
    const std::size_t bytes = reply_bytes + result.bytes;
    if (room == nullptr) [[unlikely]]
        return out_.send_now(there, id, {answer, bytes});
    there.lane->send(room, id, bytes);
    return true;
}

}  // namespace amalgam::detail

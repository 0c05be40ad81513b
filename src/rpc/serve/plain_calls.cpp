#include <cstddef>
#include <cstdint>

#include <amalgam/rpc/archive.hpp>

#include "rpc/serve/running_call.hpp"
#include "rpc/serve/server.hpp"

// The ordinary call at the server, from its header to its answer: nothing but arguments and a
// result. In one file and few functions, as most calls are such. Whatever turns out not to be
// ordinary on the way is left to the general functions.

namespace amalgam::detail {

bool server::on_plain_request(peer_state& from, message& arrived, std::uint64_t head,
                              bool one_way) noexcept {
    const auto id = load_le<std::uint64_t>(arrived.bytes().data() + 8);
    const const_bytes body = arrived.bytes().subspan(request_bytes);
    const auto provider = static_cast<std::uint16_t>(head >> 16);
    served_procedure* const what = procedures_.find(id, provider);
    if (what == nullptr || !what->plain || !serves_plain_ || body.size() > max_values_ ||
        out_.unread_bytes().value() > max_unread_total_) [[unlikely]] {
        return false;
    }
    if (one_way ? counts_.one_ways.value() >= max_one_ways_
                : running() >= max_running_ || from.unread_bytes > max_unread_) [[unlikely]] {
        return false;
    }
    // Aligned as required by views of them.
    if (what->options.run == handler::inline_) {
        if (reinterpret_cast<std::uintptr_t>(body.data()) % 8 != 0) return false;
        run_plain_inline(from, *what, arrived.tag(), head, body);
    } else {
        launch_plain(from, *what, arrived, head, body);
    }
    return true;
}

/// Runs the handler. True: `values` has the result. False: the failure was answered.
[[gnu::always_inline]] inline bool invocation::run_plain(answer_values& values) noexcept {
    try {
        const running_call mine(*this);
        engine_core& core = owner_.context().core();
        const origin came{&core, from_, nullptr, nullptr};
        const origin goes{&core, from_, &values.lends, nullptr};
        archive_reader reader(arguments, values_as(), &came);
        archive_writer writer(values.values, values_as(), &goes);
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
    answer_values values(&owner_.context().buffers());
    if (run_plain(values) && !owner_.conclude_plain(*this, values)) answer(values, {}, {});
}

/// Nothing can cancel it before it ends, so it is counted but in no index.
[[gnu::noinline, gnu::flatten]] void server::run_plain_inline(peer_state& from,
                                                              served_procedure& what,
                                                              std::uint64_t id, std::uint64_t head,
                                                              const_bytes body) noexcept {
    invocation call(plain_arrival(from, what, id, head), nullptr);
    call.plain = true;
    call.arguments = body;
    counts_.served.add();
    counts_.running.add();
    ++what.running;
    answer_values values(&context_.buffers());
    if (!call.run_plain(values)) return;
    if (!call.one_way() && !send_plain(call, values)) [[unlikely]]
        return call.answer(values, {}, {});
    untrack(call);
}

bool server::conclude_plain(invocation& call, answer_values& values) noexcept {
    if (!context_.on_owner()) return false;
    if (!call.one_way() && !call.canceled() && !send_plain(call, values)) return false;
    untrack(call);
    return true;
}

[[gnu::always_inline]] inline bool server::send_plain(const invocation& call,
                                                      answer_values& values) noexcept {
    peer_state* const there = peers_.find(call.from());
    if (there == nullptr || !values.lends.empty()) [[unlikely]]
        return false;
    std::byte* const header = values.values.front(reply_bytes);
    store_le(header, plain_head::of_reply((call.flags() & wire_flag::xdr) != 0));
    return out_.send_now(*there, call.id(), {header, reply_bytes + values.values.size()});
}

}  // namespace amalgam::detail

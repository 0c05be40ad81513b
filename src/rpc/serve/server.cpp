#include "rpc/serve/server.hpp"

#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/hash.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/limits.hpp"
#include "rpc/memory/rendezvous.hpp"
#include "rpc/serve/late_answer.hpp"
#include "rpc/serve/raw_handler.hpp"
#include "rpc/statistics/statistics_table.hpp"

namespace amalgam::detail {

namespace {

// A ULT's closure is an invocation followed by its bytes.
void destroy_invocation(void* closure) noexcept {
    static_cast<invocation*>(closure)->~invocation();
}

void serve_invocation(void* closure) {
    struct destroy {
        void* closure;
        ~destroy() { destroy_invocation(closure); }
    } at_end{closure};
    static_cast<invocation*>(closure)->serve();
}

constexpr closure_type invocation_closure{&serve_invocation, &destroy_invocation,
                                          inline_closure_bytes, alignof(invocation)};

constexpr std::size_t argument_alignment = 16;
constexpr std::size_t inline_arguments_at =
    (sizeof(invocation) + argument_alignment - 1) / argument_alignment * argument_alignment;
static_assert(inline_arguments_at + invocation::inline_bytes <= inline_closure_bytes);

/// Keeps arguments that are not copied behind the call.
[[gnu::noinline]] void keep_large(invocation& call, message& arrived, const_bytes body) {
    const auto at = static_cast<std::size_t>(body.data() - arrived.bytes().data());
    call.large = arrived.take();
    call.arguments = const_bytes(call.large.bytes()).subspan(at, body.size());
}

/// Keeps the arguments of `call`: copied to `room`, or in their original buffer.
void keep_arguments(invocation& call, std::byte* room, message& arrived, const_bytes body) {
    if (body.size() > invocation::inline_bytes) [[unlikely]]
        return keep_large(call, arrived, body);
    if (body.size() == 8) {  // Most often a number, which is a word and needs no call.
        std::memcpy(room, body.data(), 8);
    } else if (!body.empty()) {
        std::memcpy(room, body.data(), body.size());
    }
    call.arguments = {room, body.size()};
}

constexpr bool is_late(answer_form form) noexcept {
    return form == answer_form::late || form == answer_form::late_items;
}

std::uint32_t late_window(const served_procedure& what, const invocation& call) noexcept {
    return streams(what.form) ? call.window() : 0;
}

}  // namespace

server::server(engine_context& context, const call_settings& settings, engine& where,
               known_peers& peers, peer_addresses& addresses, outbox& out, detail::loans& lent,
               caller& own, other_messages& others, const engine_options& options)
    : context_(context),
      settings_(settings),
      where_(where),
      peers_(peers),
      addresses_(addresses),
      out_(out),
      loans_(lent),
      caller_(own),
      others_(others),
      allow_(options.allow),
      allow_for_(options.allow_for),
      max_running_(options.max_running),
      max_one_ways_(options.max_one_ways),
      max_unread_(options.max_unread_bytes),
      max_unread_total_(options.max_unread_bytes_total),
      max_values_(options.max_values_bytes),
      serves_plain_(settings.plain) {}

void server::on_request(peer_state& from, message& arrived,
                        const parsed_message& request) noexcept {
    const std::uint64_t id = arrived.tag();
    if (out_.unread_bytes().value() > max_unread_total_) [[unlikely]]
        cut_off_who_reads_least();
    try {
        served_procedure* const what = choose(from, id, request);
        if (what == nullptr) return;
        counts_.served.add();
        runs_in_ult(*what, request) ? launch(from, *what, arrived, request)
                                    : run_inline(from, *what, arrived, request);
    } catch (...) {
        refuse_thrown(from, id, request);
    }
}

[[gnu::noinline]] void server::refuse_thrown(peer_state& from, std::uint64_t id,
                                             const parsed_message& request) noexcept {
    try {
        throw;
    } catch (const error& why) {
        refuse(from, id, request, why.code(), text_of(why));
    } catch (const std::exception& why) {
        refuse(from, id, request, {errc::no_memory}, text_of(why));
    }
}

bool server::runs_in_ult(const served_procedure& what, const parsed_message& request) noexcept {
    if (what.options.run != handler::inline_) return true;
    return !request.extras.empty() && !find_extra(request.extras, extra::rendezvous).empty();
}

served_procedure* server::choose(peer_state& from, std::uint64_t id,
                                 const parsed_message& request) {
    served_procedure* const what = procedures_.find(request.procedure, request.provider);
    if (what != nullptr && is_welcome(from, *what, request)) [[likely]]
        return what;
    return judge(from, id, request, what);
}

/// Fast check, which most requests pass: judge() would have no objection.
bool server::is_welcome(const peer_state& from, const served_procedure& what,
                        const parsed_message& request) const noexcept {
    if (closed_ || what.restricted || request.named() || !request.extras.empty()) return false;
    if (request.body.size() > max_values_) return false;
    if (request.kind == message_kind::one_way) {
        return counts_.one_ways.value() < max_one_ways_ && !what.streams_values;
    }
    return running() < max_running_ && from.unread_bytes <= max_unread_;
}

void server::serve_unknown(std::unique_ptr<handler_base> handler, const procedure_options& options,
                           std::shared_ptr<stream_group> streams) {
    if (unknown_ != nullptr) {
        throw error(errc::invalid,
                    "this engine has a handler of undefined procedures already, expected at most "
                    "one: undefine_any() it first");
    }
    unknown_ = std::move(handler);
    unknown_options_ = options;
    unknown_streams_ = std::move(streams);
}

bool server::forget_unknown() noexcept {
    if (unknown_ == nullptr) return false;
    procedures_.forget_learned();
    unknown_.reset();
    unknown_streams_.reset();
    return true;
}

served_procedure* server::learn(const peer_state& from, const parsed_message& request) {
    if (!request.named() || is_library_procedure(request.name)) return nullptr;
    if (!procedures_.providers_of(request.procedure).empty()) return nullptr;
    if (procedures_.find(request.name) != nullptr) return nullptr;
    if (procedure_id(request.name, request.signature) != request.procedure) return nullptr;
    auto fresh = std::make_unique<served_procedure>();
    fresh->id = request.procedure;
    fresh->name = request.name;
    fresh->signature = request.signature;
    fresh->options = unknown_options_;
    fresh->options.provider = request.provider;
    fresh->streams = unknown_streams_;
    fresh->run = std::make_unique<shared_handler>(unknown_);
    fresh->form = raw_form(fresh->signature);
    fresh->streams_values = streams(fresh->form);
    if (fresh->streams_values) fresh->options.run = handler::ult;  // It waits for its reader.
    fresh->named_by = from.name;
    fresh->restricted = list_for(*fresh) != nullptr;
    return &procedures_.learn(std::move(fresh), peers_);
}

[[gnu::noinline]] clock::time_point server::deadline_in(std::uint32_t microseconds) const noexcept {
    return context_.now() + std::chrono::microseconds(microseconds);
}

arrived_call server::arrival_of(peer_state& from, served_procedure& what, const message& arrived,
                                const parsed_message& request) noexcept {
    return {*this,
            where_,
            what,
            from.name,
            arrived.tag(),
            request.provider,
            request.flags,
            request.kind == message_kind::one_way,
            deadline_of(request.microseconds)};
}

void server::keep_extras(invocation& call, const_bytes wire) {
    const bool counts = settings_.counted && !call.what().library;
    if (wire.empty() && !counts) return;
    call.keep_extras(wire);
    if (!counts) return;
    counted_row& row = context_.statistics()->handler(
        {call.procedure(), call.provider(), call.from(), parent_in(wire)});
    call.count_in(row, context_.now());
}

void server::launch(peer_state& from, served_procedure& what, message& arrived,
                    const parsed_message& request) {
    const arrived_call how = arrival_of(from, what, arrived, request);
    pool& where = what.options.in != nullptr ? *what.options.in : context_.streams().handlers();
    ult_core& runs_it = prepare_ult(where, invocation_closure, false);
    void* const closure = closure_of(&runs_it);
    auto* const call = ::new (closure) invocation(how, &runs_it);
    served_call* tracked = call;
    try {
        keep_arguments(*call, static_cast<std::byte*>(closure) + inline_arguments_at, arrived,
                       request.body);
        keep_extras(*call, request.extras);
        if (is_late(what.form)) {
            auto* const later = new late_answer(how, *call, late_window(what, *call));
            call->answer_by(*later);
            tracked = later;
        }
    } catch (...) {
        call->~invocation();
        drop_ult(runs_it);
        throw;
    }
    track(*tracked);
    count(*tracked, call->argument_bytes());
    if (how.one_way && !from.name.is_self()) count_one_way(from, *tracked);
    request.has(wire_flag::urgent) ? start_ult_first(runs_it) : start_ult(runs_it);
}

[[gnu::noinline, gnu::flatten]] void server::launch_plain(peer_state& from, served_procedure& what,
                                                          message& arrived,
                                                          std::uint64_t head) noexcept {
    const const_bytes body = arrived.bytes().subspan(request_bytes);
    what.moved.received += body.size();
    const bool one_way = plain_head::is_one_way(head);
    counts_.served.add();
    try {
        pool* const own = what.options.in;
        ult_core& runs_it = prepare_ult(own != nullptr ? *own : context_.streams().handlers(),
                                        invocation_closure, false);
        void* const closure = closure_of(&runs_it);
        auto* const call = ::new (closure)
            invocation(plain_arrival(from.name, what, arrived.tag(), head,
                                     deadline_of(plain_head::microseconds_of(head))),
                       &runs_it);
        call->plain = true;
        try {
            keep_arguments(*call, static_cast<std::byte*>(closure) + inline_arguments_at, arrived,
                           body);
        } catch (...) {
            call->~invocation();
            drop_ult(runs_it);
            throw;
        }
        track(*call);
        if (one_way && !from.name.is_self()) count_one_way(from, *call);
        start_ult(runs_it);
    } catch (...) {
        const arrived_call how = plain_arrival(from.name, what, arrived.tag(), head, {});
        parsed_message request;
        request.kind = one_way ? message_kind::one_way : message_kind::request;
        request.flags = how.flags;
        request.provider = how.provider;
        request.procedure = what.id;
        refuse_thrown(from, how.id, request);
    }
}

void server::run_inline(peer_state& from, served_procedure& what, message& arrived,
                        const parsed_message& request) {
    const arrived_call how = arrival_of(from, what, arrived, request);
    invocation call(how, nullptr);
    alignas(argument_alignment) std::byte room[invocation::inline_bytes];
    if (reinterpret_cast<std::uintptr_t>(request.body.data()) % 8 == 0) {
        call.arguments = request.body;  // Aligned as required by views of them.
    } else {
        keep_arguments(call, room, arrived, request.body);
    }
    keep_extras(call, request.extras);
    if (is_late(what.form)) {
        auto* const later = new late_answer(how, call, late_window(what, call));
        call.answer_by(*later);
        track(*later);
        count(*later, call.argument_bytes());
    } else {
        track(call);
        count(call, call.argument_bytes());
    }
    call.serve();
}

void server::conclude(invocation& call, waited_answer& answer) noexcept {
    call.is_inline() ? conclude_inline(call, answer) : answer.send();
}

[[gnu::noinline]] void server::conclude_inline(invocation& call, waited_answer& answer) noexcept {
    // This cannot wait, so what the port does not take at once must be copied.
    peer_state* const there = peers_.find(answer.to);
    const bool goes = there != nullptr && !call.one_way();
    if (answer.has_value) call.what().moved.flat_answer = answer.value_bytes;
    call.what().count_answer(goes ? answer.value_bytes : 0);
    if (goes) {
        status why = loans_.keep_answer(answer.to, answer.values.lends);
        if (why.ok() && !out_.send_copy(*there, answer.tag,
                                        {answer.pieces[0], answer.pieces[1], answer.pieces[2],
                                         answer.pieces[3]},
                                        {.is_answer = true})) {
            loans_.withdraw(answer.to, answer.values.lends);
            why = {errc::no_memory};
        }
        if (!why.ok()) answer_bare(*there, answer.tag, call.flags(), why);
    }
    untrack(call);
}

bool server::send_answer(answer_record& answer) noexcept {
    const bool wanted = !answer.call.one_way() && !answer.call.canceled();
    if (answer.is_last) {
        answer.call.what().count_answer(wanted ? answer.value_bytes : 0);
        untrack(answer.call);
    } else if (wanted && answer.counts != nullptr) {
        answer.counts->add(answer.value_bytes);
    }
    if (!wanted) return true;
    peer_state* const there = peers_.find(answer.to);
    if (there == nullptr) return true;
    const status kept = loans_.keep_answer(answer.to, answer.values.lends);
    if (!kept.ok()) {
        if (!answer.is_last) answer.call.cancel();  // A stream must not skip a value.
        answer_bare(*there, answer.tag, answer.call.flags(), kept);
        return true;
    }
    const outbox::result sent = out_.send(*there, answer);
    if (sent == outbox::result::closed) {
        loans_.withdraw(answer.to, answer.values.lends);  // Nobody else will.
    }
    return sent != outbox::result::pending;
}

/// Peers below their fair share may exceed the limit, so that those who fill it cannot shut them
/// out; twice the limit is final.
bool server::has_no_room_for_one_way(const peer_state& from) const noexcept {
    if (from.name.is_self()) return false;
    return counts_.one_ways.value() / 2 >= max_one_ways_ ||
           from.one_ways >= max_one_ways_ / (one_way_peers_ + 1);
}

void server::count_one_way(peer_state& from, served_call& call) noexcept {
    call.counts_as_one_way = true;
    counts_.one_ways.add();
    if (from.one_ways++ == 0) ++one_way_peers_;
}

[[gnu::noinline]] void server::one_way_is_over(const served_call& call) noexcept {
    counts_.one_ways.subtract();
    peer_state* const from = peers_.find(call.from());
    if (from != nullptr && from->one_ways != 0 && --from->one_ways == 0) --one_way_peers_;
}

void server::track(served_call& call) noexcept {
    counts_.running.add();
    ++call.what().running;
    calls_.add(call, running());
}

/// Counts a call of which plain_calls.cpp did not, or which it left to be measured.
void server::count(served_call& call, std::size_t argument_bytes) noexcept {
    served_procedure& what = call.what();
    what.count_request(argument_bytes);
    if (what.until_measured > 0 && --what.until_measured > 0) return;
    call.measured = true;
    const auto step = static_cast<std::int64_t>(what.measured.step(context_.now()));
    what.counted_to += step - what.until_measured;
    what.until_measured = step;
}

void server::cancel_streams() noexcept {
    calls_.for_each([](served_call& each) {
        if (streams(each.what().form)) each.cancel();
    });
}

void server::on_cancel(peer_state& from, std::uint64_t id) noexcept {
    served_call* const call = calls_.find(from.name, id);
    if (call == nullptr) return;
    counts_.canceled.add();
    call->cancel();
}

void server::on_credit(peer_state& from, std::uint64_t id, std::uint32_t items) noexcept {
    if (served_call* const call = calls_.find(from.name, id)) call->add_credit(items);
}

void server::on_peer_down(peer_state& gone) noexcept {
    if (std::exchange(gone.one_ways, 0) != 0) --one_way_peers_;
    calls_.for_each([&](served_call& each) {
        if (each.from() == gone.name && !each.one_way()) each.cancel();
    });
}

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/fabric/message.hpp>

#include "rpc/call/call_settings.hpp"
#include "rpc/call/caller.hpp"
#include "rpc/context/engine_context.hpp"
#include "rpc/memory/loans.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/outbox.hpp"
#include "rpc/peers/peer_addresses.hpp"
#include "rpc/serve/answer_record.hpp"
#include "rpc/serve/invocation.hpp"
#include "rpc/serve/procedure_table.hpp"
#include "rpc/serve/running_calls.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

/// Counters of a server.
struct server_counts {
    owned_counter running;     ///< Now; includes those to be answered late.
    owned_counter one_ways;    ///< Of those, one-way calls of peers, in ULTs.
    owned_counter served;      ///< Calls passed to a handler.
    owned_counter refused;     ///< Requests and one-way calls that were not.
    owned_counter denied;      ///< Of those, because the caller may not; posted mail, too.
    owned_counter overloaded;  ///< Of those, because too many ran.
    owned_counter cut_off;     ///< Disconnected because they did not read their answers.
    owned_counter canceled;    ///< Cancels that found their call running.
};

/// The serving side of an engine: takes requests to their handlers, and sends replies.
///
/// Requests are refused in refusals.cpp.
///
/// Threads: as stated per group of members.
class server final : public own_server {
public:
    /// `own`: makes calls to ourselves.
    server(engine_context& context, const call_settings& settings, engine& where,
           known_peers& peers, peer_addresses& addresses, outbox& out, detail::loans& lent,
           caller& own, other_messages& others, const engine_options& options);

    // ---- any thread

    engine_context& context() noexcept { return context_; }
    const call_settings& settings() const noexcept { return settings_; }
    /// See outbox.
    std::size_t eager_bytes(const peer& to) const noexcept { return out_.eager_bytes(to); }

    // ---- the stream only, except conclude()

    procedure_table& procedures() noexcept { return procedures_; }
    /// Serves names that nobody defined. Failure: throws error{invalid} if there is one.
    void serve_unknown(std::unique_ptr<handler_base> handler, const procedure_options& options,
                       std::shared_ptr<stream_group> streams);
    /// Undoes it. False: there is none.
    bool forget_unknown() noexcept;
    detail::loans& loans() noexcept { return loans_; }
    /// Adds a procedure under the allow list that applies to it. Failure: as
    /// procedure_table::add().
    void add(std::unique_ptr<served_procedure> fresh);
    /// Whether engine_options::allow lets the peer post mail; counts it if not.
    bool takes_mail(peer_state& from) noexcept;

    void on_request(peer_state& from, message& arrived, const parsed_message& request) noexcept;
    /// The same for one whose head plain_head::is_request() or is_one_way().
    void on_plain_request(peer_state& from, message& arrived, std::uint64_t head) noexcept;
    void on_cancel(peer_state& from, std::uint64_t id) noexcept override;
    /// The peer's calls need no answers any more.
    void on_peer_down(peer_state& gone) noexcept;
    /// New requests are refused with `unavailable`.
    void close() noexcept { closed_ = true, serves_plain_ = false; }
    /// Ends streaming handlers: no more credit will come.
    void cancel_streams() noexcept;
    /// The engine ends: running calls are removed from the index, since they may now end on any
    /// thread, which must not access it. After close().
    void forget_all() noexcept { calls_.drop(); }

    void on_credit(peer_state& from, std::uint64_t id, std::uint32_t items) noexcept override;

    /// The handler has returned: replies and releases the call. Parks the caller until the reply
    /// was sent. Any thread that runs handlers.
    void conclude(invocation& call, waited_answer& answer) noexcept;
    /// The same for the result of a plain call in a ULT, where neither a wait nor a copy is needed.
    /// False: nothing was done.
    bool conclude_plain(invocation& call, answer_values& values) noexcept;
    /// The same for a flat result.
    bool conclude_flat(invocation& call, const flat_result& result) noexcept;
    /// True: sent (or not wanted any more); else its on_sent will run.
    bool send_answer(answer_record& answer) noexcept;

    void refuse(peer_state& from, std::uint64_t id, const parsed_message& request, status what,
                std::string_view text) noexcept;

    /// Flags of the answer to a request with these flags.
    std::uint8_t answer_flags(std::uint8_t request, status what) const noexcept;

    std::size_t running() const noexcept { return counts_.running.value(); }
    /// How many of those run in pools for which `is_outside`.
    template <typename Predicate>
    std::size_t running_outside(Predicate is_outside) const {
        std::size_t count = 0;
        calls_.for_each([&](const served_call& each) {
            const pool* const where = each.what().options.in;
            count += where != nullptr && is_outside(*where);
        });
        return count;
    }
    template <typename Function>
    void for_each_running(Function visit) const {
        calls_.for_each(visit);
    }
    /// The call that waits for an answer under this id, or null.
    const served_call* find(const peer& from, std::uint64_t id) const noexcept {
        return calls_.find(from, id);
    }
    /// The callers whose handlers produce or read a stream, some several times.
    template <typename Function>
    void for_each_stream(Function visit) const {
        calls_.for_each([&](const served_call& each) {
            if (each.what().streams_values) visit(each.from());
        });
    }
    const server_counts& counts() const noexcept { return counts_; }

private:
    /// Inline handlers finish before the next message is looked at, so they cannot fetch arguments.
    static bool runs_in_ult(const served_procedure& what, const parsed_message& request) noexcept;
    served_procedure* choose(peer_state& from, std::uint64_t id, const parsed_message& request);
    bool is_welcome(const peer_state& from, const served_procedure& what,
                    const parsed_message& request) const noexcept;
    /// `what`, or null if refused.
    /// The list that applies to it; null: anybody may call.
    const allow_list* list_for(const served_procedure& what) const;
    /// Failure: throws std::bad_alloc.
    bool may_call(peer_state& from, const allow_list* list);
    /// As far as known. Failure: throws std::bad_alloc.
    const identity& identity_of(peer_state& from);
    void refuse_stranger(peer_state& from, std::uint64_t id, const parsed_message& request);
    served_procedure* judge(peer_state& from, std::uint64_t id, const parsed_message& request,
                            served_procedure* what);
    /// Null: nobody serves it.
    served_procedure* learn(const peer_state& from, const parsed_message& request);
    void conclude_inline(invocation& call, waited_answer& answer) noexcept;
    bool too_large(const parsed_message& request) const noexcept;
    void refuse_undefined(peer_state& from, std::uint64_t id, const parsed_message& request);
    /// What only few requests have, and where the call is counted.
    void keep_extras(invocation& call, const_bytes wire);
    void launch(peer_state& from, served_procedure& what, message& arrived,
                const parsed_message& request);
    /// Call while an exception is caught.
    void refuse_thrown(peer_state& from, std::uint64_t id, const parsed_message& request) noexcept;
    arrived_call plain_arrival(const peer& from, served_procedure& what, std::uint64_t id,
                               std::uint64_t head, clock::time_point deadline) noexcept {
        return {*this,
                where_,
                what,
                from,
                id,
                plain_head::provider_of(head),
                static_cast<std::uint8_t>(head >> 8),
                plain_head::is_one_way(head),
                deadline};
    }
    class inline_call;
    void on_plain_request_of_another(peer_state& from, message& arrived,
                                     std::uint64_t head) noexcept;
    bool may_run_plain(const peer_state& from, served_procedure& what, const message& arrived,
                       std::uint64_t head) const noexcept;
    void launch_plain(peer_state& from, served_procedure& what, message& arrived,
                      std::uint64_t head) noexcept;
    void run_plain_inline(peer_state& from, served_procedure& what, message& arrived,
                          std::uint64_t head) noexcept;
    void answer_inline(const arrived_call& failed, answer_values& values,
                       const archive_reader* misfit) noexcept;
    void run_flat_inline(peer_state& from, served_procedure& what, message& arrived,
                         std::uint64_t head) noexcept;
    bool send_plain(peer_state& there, std::uint64_t id, encoding as,
                    answer_values& values) noexcept;
    bool send_flat(peer_state& there, std::uint64_t id, const flat_result& result) noexcept;
    void run_inline(peer_state& from, served_procedure& what, message& arrived,
                    const parsed_message& request);
    bool send_text(peer_state& to, std::uint64_t id, const_bytes header, std::string_view text,
                   std::uint8_t flags) noexcept;
    /// Answers with a status only; if there is no memory for that either, disconnects, so that the
    /// peer does not wait forever. `request`: its flags.
    void answer_bare(peer_state& to, std::uint64_t id, std::uint8_t request, status what) noexcept;
    void send_verdict(peer_state& to, status what, std::uint64_t procedure,
                      std::string_view text) noexcept;
    /// Whether more than `bytes` of answers are queued because the peer does not read.
    bool leaves_unread(const peer_state& from, std::size_t bytes) const noexcept {
        return from.unread_bytes > bytes && !from.name.is_self();
    }
    void cut_off(peer_state& from) noexcept;
    void cut_off_who_reads_least() noexcept;
    /// `microseconds`: as parsed_message::microseconds.
    clock::time_point deadline_of(std::uint32_t microseconds) const noexcept {
        if (microseconds == 0) [[likely]]
            return clock::time_point::max();
        return deadline_in(microseconds);
    }
    clock::time_point deadline_in(std::uint32_t microseconds) const noexcept;
    bool has_no_room_for_one_way(const peer_state& from) const noexcept;
    void count_one_way(peer_state& from, served_call& call) noexcept;
    void one_way_is_over(const served_call& call) noexcept;
    void track(served_call& call) noexcept;
    void count(served_call& call, std::size_t argument_bytes) noexcept;
    void untrack(served_call& call) noexcept {
        running_calls::remove(call);
        counts_.running.subtract();
        if (call.counts_as_one_way) [[unlikely]]
            one_way_is_over(call);
        procedures_.release(call.what());
        context_.look_whether_quiet();
    }
    arrived_call arrival_of(peer_state& from, served_procedure& what, const message& arrived,
                            const parsed_message& request) noexcept;

    engine_context& context_;
    const call_settings& settings_;
    engine& where_;
    known_peers& peers_;
    peer_addresses& addresses_;
    outbox& out_;
    detail::loans& loans_;
    caller& caller_;
    other_messages& others_;
    procedure_table procedures_;
    std::shared_ptr<handler_base> unknown_;  // Serves names that nobody defined; or null.
    procedure_options unknown_options_;
    std::shared_ptr<stream_group> unknown_streams_;
    const std::optional<allow_list> allow_;
    const std::vector<std::pair<std::string, allow_list>> allow_for_;
    std::size_t max_running_;
    std::size_t max_one_ways_;
    std::size_t one_way_peers_ = 0;  // Peers with one-way calls in counts_.one_ways.
    std::size_t max_unread_;
    std::size_t max_unread_total_;
    std::size_t max_values_;
    bool closed_ = false;
    bool serves_plain_;  // Open, without interceptors and checksums.
    running_calls calls_;
    server_counts counts_;
};

}  // namespace amalgam::detail

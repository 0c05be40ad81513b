#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/core/latency_histogram.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/extension/mail.hpp>

#include "rpc/call/call_settings.hpp"
#include "rpc/call/remote_procedures.hpp"
#include "rpc/context/engine_context.hpp"
#include "rpc/context/sampling.hpp"
#include "rpc/memory/loans.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/outbox.hpp"
#include "rpc/peers/peer_addresses.hpp"
#include "rpc/peers/routes.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

struct pending_call;
struct rendezvous_values;

/// Counters of a caller.
struct caller_counts {
    owned_counter calls;          ///< Started calls that expect an answer.
    owned_counter one_ways;       ///< Sent.
    owned_counter retried;        ///< Retries.
    owned_counter failed;         ///< Calls that ended without a value.
    owned_counter timed_out;      ///< Of those, by their deadline.
    owned_counter late_replies;   ///< Replies to calls that had ended; dropped.
    owned_counter one_ways_lost;  ///< Not sent: the peer, or memory, was gone by then.
    owned_counter refused;        ///< One-way calls refused by the peer: it has no such procedure.
    std::array<owned_counter, 64> failed_by{};  ///< Of those that failed, by errc.
};

/// A one-way call without its types. Borrows its bytes.
struct one_way_message {
    one_way_message(const call_target& target, clock::time_point until) noexcept
        : core(target.core),
          what(target.what),
          to(target.to),
          deadline(until),
          provider(target.provider),
          xdr(target.as == encoding::xdr),
          urgent(target.urgent) {}

    engine_core* core;
    const remote_procedure* what;
    peer to;
    clock::time_point deadline;
    std::uint16_t provider;
    bool xdr;
    bool urgent;
    const_bytes extras;
    const_bytes arguments;
    held_range held{};  ///< The last part of the arguments.
    const lent_list* loans = nullptr;
};

/// What takes messages that are more than an ordinary call or its answer.
class other_messages {
public:
    virtual void on_any(peer_state& from, message& arrived) noexcept = 0;

protected:
    ~other_messages() = default;
};

/// What serves the calls that an engine makes to itself.
class own_server {
public:
    virtual void on_cancel(peer_state& from, std::uint64_t id) noexcept = 0;
    virtual void on_credit(peer_state& from, std::uint64_t id, std::uint32_t items) noexcept = 0;

protected:
    ~own_server() = default;
};

/// The calling side of an engine: pending calls, by id.
///
/// Every call passed to begin() ends exactly once: by its reply, its deadline, cancellation, loss
/// of its peer, or the end of the engine. An id combines a slot with the slot's generation, so a
/// late reply never reaches another call.
///
/// Threads: as stated per group of members.
class caller {
public:
    caller(engine_context& context, const call_settings& settings, known_peers& peers,
           route_table& routes, peer_addresses& addresses, detail::outbox& out, loans& lent,
           remote_procedures& procedures, own_server& own, other_messages& others) noexcept
        : context_(context),
          settings_(settings),
          peers_(peers),
          routes_(routes),
          addresses_(addresses),
          out_(out),
          loans_(lent),
          procedures_(procedures),
          own_server_(own),
          others_(others),
          starts_plain_(settings.plain) {}

    // ---- any thread: before a call is on the stream

    engine_context& context() noexcept { return context_; }
    const call_settings& settings() const noexcept { return settings_; }
    /// For the sizes of messages.
    const detail::outbox& outbox() const noexcept { return out_; }
    /// What the largest value of a stream takes that this peer sends in a message: see
    /// stream_call::bound_memory().
    std::size_t value_bytes_from(const peer& whom) const noexcept {
        constexpr std::size_t to_oneself = std::size_t{1} << 20;  // There the limit is endless.
        return std::clamp<std::size_t>(out_.eager_bytes(whom), 1, to_oneself);
    }
    /// Waits until the queue to `there` is below its limit.
    void admit(const peer& there);
    /// See has_room() in mail.hpp.
    bool has_room(const peer& there) noexcept;
    /// The peer; if that path is lost, another one to the same engine, if any.
    peer way_now(const peer& to);
    /// See peer_addresses.
    std::string looked_up_at(const peer& who);
    status why_lost(const peer& who);
    /// Recently lost, with no other path left: a hint, which may miss one.
    bool is_lost(const peer& who) const noexcept { return addresses_.lost().given_up(who); }
    /// Counts calls, one-way calls and mail that are handed to the stream until they are begun
    /// there, or until taken back.
    void handing() noexcept { handed_over_.fetch_add(1, std::memory_order_relaxed); }
    void taken_back() noexcept { handed_over_.fetch_sub(1, std::memory_order_relaxed); }

    // ---- the stream only

    /// Whether what is begun here now would overtake what was handed over before. A ULT that moves
    /// between streams hands over on one, and may find itself here next: then it hands over again.
    bool would_overtake() const noexcept {
        return handed_over_.load(std::memory_order_relaxed) != 0;
    }
    void begin(pending_call& call) noexcept;
    /// The same for a call without deadline, extras and retries, to a peer for which nothing is
    /// queued. False: it is not such, and nothing was done.
    bool begin_plain(pending_call& call) noexcept;
    /// The same for one with a deadline: see engine_context::deadline_after().
    bool begin_timed(pending_call& call, std::chrono::nanoseconds timeout,
                     const call_context* serving) noexcept;
    void cancel(pending_call& call) noexcept;
    /// The same for a call whose caller waits here until it has ended.
    void cancel_waited(pending_call& call) noexcept;
    void on_item(peer_state& from, std::uint64_t id, const parsed_message& item) noexcept;
    /// The port is done with the request.
    void sent(pending_call& call, status what) noexcept;
    void send_credit(pending_call& call, std::uint32_t items) noexcept;
    /// Where messages to the peer go now; null: it is lost.
    peer_state* way_to(const peer& to) noexcept { return routes_.way_to(to); }
    /// Sends a one-way call. False: the engine is stopped, or out of memory.
    bool post(peer_state& there, one_way_message& message) noexcept;
    /// The same for one that needs no more than its arguments sent. False: it does, or nothing can
    /// be sent at once; nothing was done.
    bool post_plain(const call_target& target, body& arguments) noexcept;
    /// The same for one of another thread. If it cannot be sent, nobody is left to tell but the
    /// log.
    void post_handed(one_way_message& message) noexcept;
    /// As these two, for mail of up to three pieces.
    bool post_mail(peer_state& there, std::initializer_list<const_bytes> pieces) noexcept;
    /// On any thread: the same for mail so short that it fits the lane of its peer, and from here.
    /// False: it is not such, and nothing was done.
    bool post_mail_in_lane(const peer& to, const mail_head& head, const_bytes content) noexcept;
    void post_handed(const peer& to, const_bytes mail) noexcept;
    bool is_closed() const noexcept { return closed_; }

    void on_reply(peer_state& from, std::uint64_t id, const parsed_message& reply) noexcept;
    /// The same for one whose head plain_head::is_reply().
    void on_plain_reply(peer_state& from, message& arrived, std::uint64_t head) noexcept;
    /// Fetches the next value of the call's stream.
    void fetch_value(pending_call& call, const rendezvous_values& what, loan_ids& loans) noexcept;
    /// The result of a call, or the next value of its stream, was fetched; or why that failed.
    void fetched(pending_call& call, const failure& why, const_bytes result,
                 loan_ids& loans) noexcept;
    /// An answer arrived with a wrong checksum.
    void on_damaged(peer_state& from, std::uint64_t id) noexcept;
    /// An answer arrived that this version cannot parse: no other will come.
    void on_malformed(peer_state& from, std::uint64_t id, std::string_view wrong) noexcept;
    void on_verdict(peer_state& from, const parsed_message& verdict) noexcept;
    /// Ends every call to this peer.
    void on_peer_down(peer_state& gone, status why) noexcept;
    /// From here on new calls end with `closed`.
    void refuse_new() noexcept { closed_ = true, starts_plain_ = false; }
    /// All pending calls end with `closed`.
    void close() noexcept;

    /// Includes calls between two attempts.
    std::size_t pending() const noexcept { return pending_; }
    const caller_counts& counts() const noexcept { return counts_; }
    /// With id 0 those between two attempts.
    template <typename Function>
    void for_each_pending(Function visit) const;
    /// How long calls took: `visit(index of the procedure, histogram)`.
    template <typename Function>
    void for_each_measured(Function visit) const {
        for (std::size_t i = 0; i < took_.size(); ++i)
            if (took_[i] != nullptr) visit(static_cast<std::uint32_t>(i), *took_[i]);
    }

private:
    void lose_handed(const peer& to, std::string_view what, bool is_known) noexcept;

    struct slot {
        pending_call* call = nullptr;
        std::uint32_t generation = 1;
        std::uint32_t next_free = 0;  // While the slot is used: 0, or 1 + index in measured_.
    };
    /// A call whose time is measured.
    struct measured_call {
        clock::time_point began{};
        std::uint32_t procedure = 0;
        bool used = false;
    };
    static constexpr std::uint32_t none = 0xffffffff;

    bool post_short_mail(peer_state& there, std::initializer_list<const_bytes> pieces) noexcept;
    bool add_slot() noexcept;
    bool take_slot(pending_call& call) noexcept;
    void take_free_slot(pending_call& call) noexcept;
    void start_measuring(const pending_call& call, slot& in) noexcept;
    void stop_measuring(slot& in) noexcept;
    void refuse(pending_call& call) noexcept;
    // `timed`: it has a deadline, and `left` is what the request says of it.
    template <bool timed>
    bool begin_at_once(pending_call& call, std::uint32_t left) noexcept;
    template <bool timed>
    void start_plain(pending_call& call, peer_state& there, std::size_t bytes) noexcept;
    template <bool timed>
    bool begin_by_port(pending_call& call, peer_state& there, std::uint32_t left) noexcept;
    // The ends of begin_by_port(), which say true.
    bool send_plain(pending_call& call) noexcept;
    bool not_done(pending_call& call, posted how) noexcept;
    pending_call* find(std::uint64_t id) noexcept;
    peer_state* turn(pending_call& call) noexcept;
    void frame(peer_state& there, pending_call& call) noexcept;
    void arm(pending_call& call, clock::time_point when, void (*then)(timer&) noexcept);
    void arm_deadline(pending_call& call) noexcept;
    void end(pending_call& call, status what, std::string_view text = {}) noexcept;
    void end_well(pending_call& call) noexcept;
    /// The same, decided here: tells the handler that its result is not wanted.
    void give_up(pending_call& call, status what, std::string_view text = {}) noexcept;
    void tell_canceled(peer_state& there, std::uint64_t id) noexcept;
    void fail_unsent(pending_call& call, status what, std::string_view text = {}) noexcept;
    void detach(pending_call& call) noexcept;
    void explain(pending_call& call, status what, std::string_view text) noexcept;
    void finish(pending_call& call) noexcept;
    /// False: the call has not ended, but will be retried.
    bool finish_extras(pending_call& call) noexcept;
    void count(const pending_call& call) noexcept;
    void record(pending_call& call) noexcept;
    void fetch(pending_call& call, peer_state& from, const rendezvous_values& what, loan_ids loans);
    static const char* wrong_item(const pending_call& call, const parsed_message& item) noexcept;
    void read_item(pending_call& call, const_bytes item, loan_ids& loans) noexcept;
    /// `loans`: null if nothing was lent.
    void read_result(pending_call& call, const_bytes result, loan_ids* loans) noexcept;
    static bool is_plain(const pending_call& call, const parsed_message& reply) noexcept;
    static bool decode_flat_xdr(call_record& call, const_bytes result) noexcept;
    void on_special_reply(pending_call& call, peer_state& from, const parsed_message& reply,
                          std::uint64_t id) noexcept;
    void drop_reply(peer_state& from, const parsed_message& reply) noexcept;
    bool try_again_later(pending_call& call) noexcept;
    void try_again(pending_call& call) noexcept;
    void leave_pause(pending_call& call) noexcept;

    engine_context& context_;
    const call_settings& settings_;
    known_peers& peers_;
    route_table& routes_;
    peer_addresses& addresses_;
    detail::outbox& out_;
    loans& loans_;
    remote_procedures& procedures_;
    own_server& own_server_;
    other_messages& others_;
    std::vector<slot> slots_;
    std::uint32_t first_free_ = none;
    std::size_t pending_ = 0;
    pending_call* pausing_ = nullptr;  // Between two attempts.
    bool closed_ = false;
    bool starts_plain_;  // Open, without interceptors and checksums.
    caller_counts counts_;
    std::uint64_t until_measured_ = 1;  // Calls; the first one is measured.
    sampling sampling_;
    std::array<measured_call, 16> measured_{};
    std::vector<std::unique_ptr<latency_histogram>> took_;  // By remote_procedure::index.
    std::atomic<std::size_t> handed_over_{0};               // See handing().
};

caller& caller_of(engine_core& core) noexcept;

}  // namespace amalgam::detail

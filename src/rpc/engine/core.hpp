#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/core/detail/returned_child.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/future.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/call/server.hpp"
#include "rpc/engine/streams.hpp"
#include "rpc/memory/exposure_table.hpp"
#include "rpc/memory/loans.hpp"
#include "rpc/memory/transfers.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/lost_peers.hpp"
#include "rpc/peers/outbox.hpp"
#include "rpc/peers/peer_listeners.hpp"
#include "rpc/peers/port_link.hpp"
#include "rpc/peers/routes.hpp"

namespace amalgam::detail {

/// Implementation of an engine: streams, ports, and both sides of rpc. The first stream owns the
/// ports and processes messages; other threads post work to it.
///
/// Owner:   reference-counted: by the engine, and by each future that may still cancel.
/// Threads: as stated per member.
class engine_core {
public:
    engine_core(engine& owner, endpoints where, engine_options options);
    engine_core(const engine_core&) = delete;
    engine_core& operator=(const engine_core&) = delete;

    void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    // ---- any thread

    /// Whether the caller may access the stream's data: it runs on the stream, or nothing runs
    /// concurrently.
    bool on_owner() const noexcept {
        const execution_stream* const here = execution_stream::current();
        return here == &streams_.first() || (driven_ ? here == nullptr : on_idle_loop());
    }
    /// Throws error{invalid} where the caller would wait forever.
    void check_may_wait() const;
    /// Runs the unit on the stream, in posting order. False: the engine has ended.
    bool hand_over(work_unit& unit) noexcept;
    /// Runs `work()` on the stream and waits for it. Throws what it throws, and error{closed} if
    /// the engine has ended.
    template <typename Work>
    void on_stream(Work&& work);
    /// Parks `who` until its call or transfer unparks it, once. If the waiting ULT is canceled,
    /// runs `cancel()` on the stream, waits for the end, so that borrowed memory is free again, and
    /// throws error{canceled}.
    template <typename Cancel>
    void wait_for_end(waiter& who, Cancel&& cancel);
    /// Counts other threads' one-way calls between handing_one_way() and taken_over().
    void handing_one_way() noexcept { handed_over_.fetch_add(1, std::memory_order_relaxed); }
    void taken_over() noexcept { handed_over_.fetch_sub(1, std::memory_order_relaxed); }
    /// Waits until the queue to `there` is below its limit.
    void admit(const peer& there);

    engine_streams& streams() noexcept { return streams_; }
    execution_stream& stream() noexcept { return streams_.first(); }
    clock::time_point now() const noexcept { return clock_->now(); }
    bool driven() const noexcept { return driven_; }
    encoding encodes_as() const noexcept { return options_.encoding; }
    bool adds_checksums() const noexcept { return options_.checksum; }
    /// Interceptors that see calls of such a procedure, in list order.
    const std::vector<std::shared_ptr<interceptor>>& interceptors(bool of_library) const noexcept {
        return of_library ? library_interceptors_ : options_.interceptors;
    }
    /// The earlier of `timeout` from now and the deadline of the call being served, if any.
    clock::time_point deadline_after(std::chrono::nanoseconds timeout,
                                     const call_context* serving) const noexcept;
    buffer_pool& buffers() noexcept { return buffers_; }
    counter_set& counters() noexcept { return counters_; }
    std::size_t max_message_bytes(const peer& there) const noexcept;
    /// Eager limit: larger values go by rendezvous.
    std::size_t eager_bytes(const peer& there) const noexcept {
        return there.port() < eager_.size() ? eager_[there.port()]
                                            : std::numeric_limits<std::size_t>::max();
    }
    std::chrono::milliseconds silence_limit() const noexcept {
        return options_.ports.silence_limit;
    }
    std::size_t max_values_bytes() const noexcept { return options_.max_values_bytes; }
    const std::vector<std::string>& addresses() const noexcept { return addresses_; }
    /// Of all ports; empty for one that does not listen.
    const std::vector<std::string>& port_addresses() const noexcept { return port_addresses_; }
    const peer& self() const noexcept { return self_; }
    std::uint64_t home() const noexcept { return exposures_.incarnation(); }
    result<peer> lookup(std::string_view address);
    /// Finds the engine known by these addresses; see engine::lookup().
    future<peer> start_lookup(const std::vector<std::string>& addresses);
    /// The peer; if that path is lost, another one to the same engine, if any.
    peer way_now(const peer& to);
    /// Recently lost, with no other path left: a hint, which may miss one.
    bool is_lost(const peer& who) const noexcept { return lost_.given_up(who); }
    /// Throws error{closed} after stop().
    void check_runs() const;
    /// Until end_handing_over(), which must follow in any case, the streams keep running; false:
    /// they may have ended.
    bool begin_handing_over() noexcept {
        handing_over_.fetch_add(1, std::memory_order_seq_cst);
        return !closed_.load(std::memory_order_seq_cst);
    }
    void end_handing_over() noexcept { handing_over_.fetch_sub(1, std::memory_order_release); }
    /// The message of error{closed}.
    const char* why_closed() const noexcept;
    /// Whether any peer may have several paths.
    bool knows_routes() const noexcept { return knows_routes_.load(std::memory_order_relaxed); }
    const remote_procedure& intern(std::string_view name, std::string signature);
    /// By wire id; null: nobody here calls it.
    const remote_procedure* procedure_of(std::uint64_t id);
    void stop();
    /// The user destroys the engine: stop(), then drops the engine's reference once nothing runs on
    /// its streams.
    void destroy() noexcept;
    std::size_t progress(std::size_t most);
    /// The configuration now in use.
    engine_config configuration();
    peer_listeners& listeners() noexcept { return *listeners_; }

    // ---- the stream only

    /// While one lives, user functions may run above it on the stack, and an operation below is
    /// incomplete: the engine does not end before.
    class busy {
    public:
        explicit busy(engine_core& core) noexcept : core_(core) { ++core_.busy_; }
        ~busy() { --core_.busy_; }
        busy(const busy&) = delete;
        busy& operator=(const busy&) = delete;

    private:
        engine_core& core_;
    };
    /// On the engine's stream only.
    bool is_busy() const noexcept { return busy_ != 0; }
    /// Whether some engine is busy on this stack. Any thread; takes a lock.
    static bool any_busy_here() noexcept;
    /// Called when code run by the engine's driver has returned: ends an engine destroyed in it.
    void settle() noexcept {
        if (orphaned_) [[unlikely]]
            end_orphan();
    }
    /// Called after a user function that may have forked: ends the child.
    void stay_in_parent() const noexcept {
        if (forked_.load(std::memory_order_relaxed)) [[unlikely]]
            end_returned_child();
    }
    /// The same after a call from outside on the thread of an idle loop: a user function called
    /// there may have destroyed the engine. Afterwards this may be gone.
    void settle_idle() noexcept {
        if (orphaned_) [[unlikely]]
            end_idle_orphan();
    }

    caller& calls() noexcept { return calls_; }
    server& serves() noexcept { return serves_; }
    outbox& out() noexcept { return out_; }
    loans& lending() noexcept { return loans_; }
    transfers& moves() noexcept { return transfers_; }
    exposure_table& exposures() noexcept { return exposures_; }
    /// Exposes memory to all peers, or to `only` one. Throws error{closed} after the end.
    void expose(exposure& mine, const peer* only);
    /// Memory from the first port whose peers can map it; else private. Throws likewise.
    shared_block allocate(std::size_t bytes);
    known_peers& peers() noexcept { return peers_; }
    route_table& routes() noexcept { return routes_; }
    /// State of the peer, or of another path to the same engine; null: gone.
    peer_state* way_to(const peer& to) noexcept {
        peer_state* const there = peers_.find(to);
        return there != nullptr ? there : routes_.instead_of(to);
    }
    /// Starts connecting to an address through one port. A new peer is marked untold.
    result<peer> dial(std::uint16_t port, const std::string& address);
    const capabilities& can(std::size_t port) const noexcept { return ports_[port]->can(); }
    std::size_t ports() const noexcept { return ports_.size(); }
    bool is_own(const std::string& address) const noexcept;
    /// Another engine introduces itself; returns our introduction.
    introduction introduced(const peer& from, const introduction& asked);
    /// Adds the path to those of this engine.
    void add_route(const std::shared_ptr<known_engine>& engine, peer_state& way,
                   const introduction& said, std::size_t order);
    std::uint32_t next_route_number() noexcept { return ++route_numbers_; }
    /// Another engine has given up a path to us: drop anything still in flight on it.
    void part(const peer& from, std::uint32_t number);
    std::string explain(const peer& who);
    std::vector<peer_way> ways(const peer& who);
    message_sink& self_sink() noexcept { return self_sink_; }
    /// Its address, kept after its loss: see lost_peers. Empty if no longer known.
    std::string address_of(const peer& who);
    /// The same as part of a sentence.
    std::string text_of(const peer& who);
    /// Status of calls to a lost peer: unreachable if it was never connected.
    status why_lost(const peer& who) const noexcept;
    /// The cause, as part of a sentence; empty if unknown.
    std::string_view reason(const peer& who, status why) const noexcept;
    /// The address it was looked up by, kept after its loss. Empty for one that connected to us.
    std::string looked_up_at(const peer& who);
    /// lookup() of a normalized address.
    result<peer> route_to(const std::string& address);
    void on_message(std::uint16_t port, message& arrived) noexcept;
    /// Received or fetched data does not match its checksum.
    void found_damage() noexcept { corrupt_.add(); }
    void on_peer_down(std::uint16_t port, peer_id id, status why) noexcept;
    void on_release(const peer_state& from, const_bytes ids) noexcept;
    /// There was no memory to answer the peer, which waits: ends the connection instead. Not for
    /// calls to ourselves.
    void end_untold(const peer_state& there) noexcept;
    /// Call when a call, in either direction, has ended.
    void look_whether_quiet() noexcept {
        if (quiet_ != nullptr) tell_if_quiet();
    }

private:
    /// Marks the caller as the engine's loop while this lives: no other progress() runs.
    class loop_turn {
    public:
        explicit loop_turn(engine_core& core) noexcept;
        ~loop_turn();
        loop_turn(const loop_turn&) = delete;
        loop_turn& operator=(const loop_turn&) = delete;

    private:
        engine_core& core_;
    };

    /// Runs the end on the stream when its stack is otherwise empty.
    struct end_errand final : work_unit {
        explicit end_errand(engine_core& what) noexcept : work_unit(&run_it), core(what) {}
        static void run_it(work_unit& self) noexcept;
        engine_core& core;
    };

    ~engine_core();
    void enlist();
    void delist() noexcept;
    void is_forked() noexcept;
    void open_ports(endpoints where);
    void start_streams();
    void expose_counters();
    result<peer> find_route(const std::string& address, std::string_view transport);
    /// Null: out of memory; the connection ends.
    peer_state* meet(std::uint16_t port, peer_id who) noexcept;
    void on_malformed(peer_state& from, std::uint64_t tag, const parsed_message& parsed,
                      const char* wrong) noexcept;
    /// Neither a request nor a reply.
    void on_other(peer_state& from, std::uint64_t tag, const parsed_message& parsed) noexcept;
    void forget_name(const peer& gone, bool untold, status why) noexcept;
    void keep_lost(const peer_state& gone, status why) noexcept;
    bool is_quiet() const noexcept;
    void tell_if_quiet() noexcept;
    bool on_own_stream() noexcept;
    /// Whether this is the thread that calls progress(), outside of progress().
    bool on_idle_loop() const noexcept;
    static const void* this_thread() noexcept;
    void drive_until_quiet(clock::duration at_most);
    void wait_until_quiet(clock::duration at_most);
    bool ends_beside() noexcept;
    bool stop_beside();
    void stop_here();
    bool must_end_later() const noexcept;
    void end_later() noexcept;
    void finish_end() noexcept;
    void wait_for_end();
    void stop_handing_over() noexcept;
    void end_calls(bool wait);
    void close_now() noexcept;
    void stop_streams();
    void end_elsewhere() noexcept;
    void end_orphan() noexcept;
    void end_idle_orphan() noexcept;

    engine& owner_;
    engine_options options_;
    std::vector<std::shared_ptr<interceptor>> library_interceptors_;
    std::atomic<std::uint32_t> references_{1};
    buffer_pool buffers_;
    counter_set counters_;
    std::vector<std::unique_ptr<port>> ports_;
    std::vector<std::string> uris_;       // Of all ports, in a form that can be opened again.
    std::vector<std::string> addresses_;  // Of the listening ports.
    std::vector<std::string> port_addresses_;
    peer self_;
    std::vector<std::size_t> limits_;  // max_message_bytes per port.
    std::vector<std::size_t> eager_;   // eager_bytes per port.
    bool driven_ = false;
    const clock* clock_ = nullptr;
    mutable engine_streams streams_;
    // With progress_by::caller: the loop's thread, and whether it is in progress() or stop().
    std::atomic<const void*> loop_thread_{nullptr};
    std::atomic<bool> looping_{false};

    known_peers peers_;
    lost_peers lost_;
    route_table routes_{peers_};
    std::atomic<bool> knows_routes_{false};
    std::uint32_t route_numbers_ = 0;
    outbox out_;
    caller calls_;
    server serves_;
    exposure_table exposures_;
    transfers transfers_;
    loans loans_{out_, options_.max_borrowed_bytes, options_.max_borrowed_bytes_total};
    std::optional<stream_driver> driver_;
    std::deque<port_link> links_;  // Never move: they are pollers and sinks.
    detail::self_sink self_sink_{*this};
    waiter* quiet_ = nullptr;  // stop(), while waiting.
    std::shared_ptr<peer_listeners> listeners_;
    owned_counter malformed_;
    owned_counter corrupt_;
    owned_counter peers_lost_;
    owned_counter untold_;

    std::mutex procedures_lock_;
    std::deque<remote_procedure> procedures_;  // Never move.
    std::unordered_map<std::uint64_t, remote_procedure*> procedures_by_id_;

    std::atomic<bool> stopping_{false};   // stop() has begun.
    event stopped_;                       // All but the streams has ended.
    unsigned busy_ = 0;                   // See busy; the stream's.
    std::atomic<bool> end_waits_{false};  // The stream is to run end_.
    end_errand end_{*this};
    bool orphaned_ = false;  // Destroyed inside code run by its driver; the driver's.
    // Handing over announces itself, then checks closed_. Closing sets closed_, then waits for
    // announced hand-overs. So nothing is handed to a stream that has ended.
    std::atomic<bool> closed_{false};
    std::atomic<bool> forked_{false};         // This process is a fork of the engine's.
    engine_core* next_of_all_ = nullptr;      // List of the process's engines,
    engine_core* previous_of_all_ = nullptr;  // for fork().
    std::atomic<std::size_t> handing_over_{0};
    std::atomic<std::size_t> handed_over_{0};
    std::vector<counter_set::watch> watches_;
    std::vector<counter_set::watch> port_watches_;  ///< Of counters that end with the ports.
};

template <typename Work>
void engine_core::on_stream(Work&& work) {
    if (on_owner()) return work();
    struct hop final : work_unit {
        explicit hop(Work& what) : work_unit(&hop::run_it), work(what) {
            who.waits_for("rpc engine");
        }
        static void run_it(work_unit& self) noexcept {
            auto& me = static_cast<hop&>(self);
            try {
                me.work();
            } catch (...) {
                me.failed = std::current_exception();
            }
            me.who.unpark();
        }
        Work& work;
        waiter who;
        std::exception_ptr failed;
    };
    hop there(work);
    if (!hand_over(there)) {
        throw error(errc::closed, why_closed());
    }
    there.who.park();
    if (there.failed) std::rethrow_exception(there.failed);
}

template <typename Cancel>
void engine_core::wait_for_end(waiter& who, Cancel&& cancel) {
    who.allow_cancel();
    if (who.park_once_until(waiter::time_point::max())) return;
    try {
        const cancel_later it_must_end;
        on_stream(cancel);
    } catch (const error&) {
        // The engine has ended, and so has the operation.
    }
    who.park();
    throw_if_canceled();
}

}  // namespace amalgam::detail

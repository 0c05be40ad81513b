#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/detail/returned_child.hpp>
#include <amalgam/core/metrics.hpp>
#include <amalgam/fabric/extension/peer_traffic.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/rpc/extension/mail.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/future.hpp>

#include "rpc/call/call_settings.hpp"
#include "rpc/call/caller.hpp"
#include "rpc/call/remote_procedures.hpp"
#include "rpc/context/engine_context.hpp"
#include "rpc/context/health_state.hpp"
#include "rpc/context/streams.hpp"
#include "rpc/core/keepalive.hpp"
#include "rpc/core/port_link.hpp"
#include "rpc/core/stop_callbacks.hpp"
#include "rpc/memory/exposure_table.hpp"
#include "rpc/memory/loans.hpp"
#include "rpc/memory/transfer_table.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/outbox.hpp"
#include "rpc/peers/peer_addresses.hpp"
#include "rpc/peers/peer_listeners.hpp"
#include "rpc/peers/routes.hpp"
#include "rpc/serve/server.hpp"
#include "rpc/statistics/statistics_table.hpp"
#include "rpc/streaming/value_streams.hpp"

namespace amalgam::detail {

/// Implementation of an engine: streams, ports, and both sides of rpc. The first stream owns the
/// ports and processes messages; other threads post work to it.
///
/// Owner:   reference-counted: by the engine, and by each future that may still cancel.
/// Threads: as stated per member.
class engine_core final : public engine_context, private other_messages {
public:
    engine_core(engine& owner, endpoints where, engine_options options);
    engine_core(const engine_core&) = delete;
    engine_core& operator=(const engine_core&) = delete;

    void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    // ---- any thread

    counter_set& counters() noexcept { return counters_; }
    metric_registry& metrics() noexcept { return metrics_; }
    std::chrono::milliseconds silence_limit() const noexcept {
        return options_.ports.silence_limit;
    }
    const std::vector<std::string>& addresses() const noexcept { return addresses_; }
    /// Of all ports; empty for one that does not listen.
    const std::vector<std::string>& port_addresses() const noexcept { return port_addresses_; }
    /// Whether that port binds remote keys to its peers. Also after the end, on any thread.
    bool binds_keys(std::size_t port) const noexcept {
        return port < binds_keys_.size() && binds_keys_[port];
    }
    const peer& self() const noexcept { return self_; }
    /// Whether a port proves itself by that key.
    bool has_key(const key_fingerprint& key) const;
    std::uint64_t home() const noexcept { return exposures_.incarnation(); }
    result<peer> lookup(std::string_view address);
    /// Finds the engine known by these addresses; see engine::lookup().
    future<peer> start_lookup(const std::vector<std::string>& addresses);
    /// Recently lost, with no other path left: a hint, which may miss one.
    bool is_lost(const peer& who) const noexcept { return peer_addresses_.lost().given_up(who); }
    /// Whether any peer may have several paths.
    bool knows_routes() const noexcept { return knows_routes_.load(std::memory_order_relaxed); }
    remote_procedures& procedures() noexcept { return procedures_; }
    detail::value_streams& value_streams() noexcept { return value_streams_; }
    encoding values_as() const noexcept { return settings_.values_as; }
    /// Whether some engine is busy on this stack. Takes a lock.
    static bool any_busy_here() noexcept;
    void stop();
    /// Waits until somebody else has stopped the engine; see engine::wait_until_stopped().
    void wait_for_stop();
    bool is_stopped() const noexcept { return stopped_.is_set(); }
    /// stop() on another thread where that is possible; called by a ULT of the engine.
    void stop_soon();
    bool may_be_stopped_by_peers() const noexcept { return options_.remote_stop; }
    /// See read_statistics(engine&).
    engine_statistics read_statistics();
    /// Where they go if that file is asked for; by default that of the options. May be empty.
    std::string statistics_file(std::string_view asked) const;
    const amalgam::archive_context& archive_context() const noexcept { return options_.context; }
    bool may_be_described() const noexcept { return options_.reflection; }
    health_state& health() noexcept { return health_; }
    stop_callbacks& callbacks() noexcept { return callbacks_; }
    /// The user destroys the engine: stop(), then drops the engine's reference once nothing runs on
    /// its streams.
    void destroy() noexcept;
    /// See extension/early_end.hpp.
    void end_early() noexcept;
    bool ended_early() const noexcept { return ended_early_; }
    std::size_t progress(std::size_t most);
    /// Throws error{invalid} if it has a thread of its own.
    void check_driven_by_caller(std::string_view asked) const;
    /// The configuration now in use.
    engine_config configuration();
    peer_listeners& listeners() noexcept { return *listeners_; }

    // ---- the stream only

    detail::caller& caller() noexcept { return caller_; }
    detail::server& server() noexcept { return server_; }
    detail::outbox& outbox() noexcept { return outbox_; }
    detail::loans& loans() noexcept { return loans_; }
    transfer_table& transfers() noexcept { return transfers_; }
    /// Messages or transfers wait for their turn at a port, or messages to ourselves are there.
    bool has_waiting_work() noexcept {
        return (outbox_.queued() | transfers_.waiting() | outbox_.self().waiting()) != 0;
    }
    detail::peer_addresses& peer_addresses() noexcept { return peer_addresses_; }
    exposure_table& exposures() noexcept { return exposures_; }
    known_peers& peers() noexcept { return peers_; }
    route_table& routes() noexcept { return routes_; }
    /// Memory from the first port whose peers can map it; else private. Throws error{closed} after
    /// the end.
    shared_block allocate(std::size_t bytes);
    const capabilities& can(std::size_t port) const noexcept { return ports_[port]->can(); }
    /// The stream only. Null: the port does not count.
    const traffic_counts* traffic_at(std::size_t port) const noexcept {
        return cast_if_typed<const traffic_counts>(*ports_[port]);
    }
    /// The stream only.
    identity who(const peer& which) const;
    std::size_t ports() const noexcept { return ports_.size(); }
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
    void on_message(std::uint16_t port, message& arrived) noexcept;
    void on_peer_down(std::uint16_t port, peer_id id, status why) noexcept;
    void on_release(const peer_state& from, const_bytes ids) noexcept;
    /// See accept_mail().
    void accept_mail(std::shared_ptr<mail_sink> sink) noexcept;
    /// See refuse_mail().
    void refuse_mail(const mail_sink* sink) noexcept {
        if (mail_.get() == sink) accept_mail(nullptr);
    }

private:
    /// Marks the caller as the engine's loop while this lives: no progress() runs.
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
    struct end_task final : work_unit {
        explicit end_task(engine_core& what) noexcept : work_unit(&run_it), core(what) {}
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
    void on_any(peer_state& from, message& arrived) noexcept override;
    /// From a peer that was not heard, or that others took the place of among the recent ones.
    void on_first_message(std::uint16_t port, message& arrived) noexcept;
    void on_message_from(peer_state& from, message& arrived) noexcept;
    /// Null: out of memory; the connection ends.
    peer_state* meet(std::uint16_t port, peer_id who) noexcept;
    void on_malformed(peer_state& from, std::uint64_t tag, const parsed_message& parsed,
                      const char* wrong) noexcept;
    /// Neither a request nor a reply.
    void on_other(peer_state& from, std::uint64_t tag, const parsed_message& parsed) noexcept;
    void on_mail(peer_state& from, const_bytes content) noexcept;
    void forget_name(const peer& gone, bool untold, status why) noexcept;
    bool is_quiet() const noexcept;
    void tell_if_quiet() noexcept override;
    bool on_own_stream() noexcept;
    void check_not_inside_progress() const;
    bool may_try_again() const;
    std::size_t progress_in_turn(std::size_t most);
    std::size_t progress_taken(std::size_t most) noexcept;
    std::size_t progress_asking(std::size_t most) noexcept;
    std::size_t settled(std::size_t happened) noexcept;
    void drive_until_quiet(clock::duration at_most);
    template <typename First>
    void wait_until_quiet(clock::duration at_most, First first);
    bool ends_beside() noexcept;
    bool tell_stopping();
    void all_has_ended() noexcept;
    void write_last_statistics() noexcept;
    bool stop_beside();
    void stop_here();
    bool must_end_later() const noexcept;
    void end_later() noexcept;
    void finish_end() noexcept;
    void wait_until_stopped();
    void stop_handing_over() noexcept;
    void end_calls(bool wait);
    void close_now() noexcept;
    void stop_streams();
    void end_elsewhere() noexcept;
    void end_orphan() noexcept override;
    void end_idle_orphan() noexcept override;

    engine& owner_;
    engine_options options_;
    call_settings settings_;
    std::atomic<std::uint32_t> references_{1};
    counter_set counters_;
    metric_registry metrics_;
    std::vector<std::unique_ptr<port>> ports_;
    std::vector<bool> binds_keys_;
    std::vector<std::string> uris_;       // Of all ports, in a form that can be opened again.
    std::vector<std::string> addresses_;  // Of the listening ports.
    std::vector<std::string> port_addresses_;
    peer self_;
    known_peers peers_;
    route_table routes_{peers_};
    detail::peer_addresses peer_addresses_{*this, peers_, routes_, ports_, addresses_};
    std::optional<statistics_table> counts_;  // With engine_options::statistics.
    std::atomic<bool> knows_routes_{false};
    std::uint32_t route_numbers_ = 0;
    detail::outbox outbox_;
    detail::loans loans_{outbox_, routes_, options_.max_borrowed_bytes,
                         options_.max_borrowed_bytes_total};
    exposure_table exposures_{*this, ports_};
    transfer_table transfers_;
    remote_procedures procedures_;
    detail::value_streams value_streams_{options_.max_reader_bytes};
    // Each calls the other for messages to ourselves.
    detail::caller caller_;
    detail::server server_;
    std::optional<keepalive> keepalive_;  // With engine_options::keepalive.
    std::optional<stream_driver> driver_;
    std::deque<port_link> links_;  // Never move: they are pollers and sinks.
    // For progress(): what the only port says of itself; of several or none, that there is some.
    port_work* work_ = &port_link::unknown_work();
    detail::self_sink self_sink_{*this};
    std::shared_ptr<peer_listeners> listeners_;
    std::shared_ptr<mail_sink> mail_;
    std::shared_ptr<mail_sink> read_mail_;  // The one before, while its on_mail() runs.
    bool reads_mail_ = false;
    owned_counter malformed_;
    owned_counter peers_lost_;

    std::atomic<bool> stopping_{false};  // stop() has begun.
    std::atomic<bool> ended_early_{false};
    health_state health_;
    stop_callbacks callbacks_;
    event stopped_;                       // All but the streams has ended.
    std::atomic<bool> end_waits_{false};  // The stream is to run end_.
    end_task end_{*this};
    engine_core* next_of_all_ = nullptr;      // List of the process's engines,
    engine_core* previous_of_all_ = nullptr;  // for fork().
    std::vector<counter_set::watch> watches_;
    std::vector<counter_set::watch> port_watches_;  ///< Of counters that end with the ports.
    metric_registry::registration counted_;         ///< What counters_ has, as metrics.
    metric_registry::registration port_numbers_;    ///< Ends with the ports.
};

}  // namespace amalgam::detail

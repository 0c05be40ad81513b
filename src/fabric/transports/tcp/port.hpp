#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <amalgam/core/counter.hpp>

#include "fabric/port/framed_port.hpp"
#include "fabric/sockets/binding.hpp"
#include "fabric/sockets/poller.hpp"
#include "fabric/sockets/resolver.hpp"
#include "fabric/transports/tcp/connection.hpp"
#include "fabric/transports/tcp/deadlines.hpp"
#include "fabric/transports/tcp/handshake.hpp"
#include "fabric/transports/tcp/reception.hpp"
#include "fabric/transports/tcp/tls_sessions.hpp"

namespace amalgam::detail {

/// An event source that calls a member function of another object.
template <typename Home, void (Home::*Function)() noexcept>
class forwarded_event final : public event_source {
public:
    explicit forwarded_event(Home& home) noexcept : home_(home) {}
    void ready(std::uint32_t) noexcept override { (home_.*Function)(); }

private:
    Home& home_;
};

/// A port over TCP sockets.
///
/// A round, move_frames(): query epoll, but only every few rounds while connections are busy; write
/// gathered frames; read from recently busy connections; write what the handlers posted meanwhile.
///
/// Threads: the port's thread; host names are resolved on a separate thread.
class tcp_port final : public framed_port {
public:
    struct setup {
        binding chosen;
        unique_fd listener;  ///< Empty if the port does not listen.
        advertisement shown;
        std::shared_ptr<const credentials> trust;  ///< With TLS; null: without.
        std::string proof;                         ///< The URI's option `credentials`; else empty.
    };

    tcp_port(const port_options& options, setup with);
    ~tcp_port() override;

    std::string address() const override;
    std::string explain() const override;
    identity self() const override { return tls_ == nullptr ? identity{} : tls_->trust().self(); }
    int wait_handle() const noexcept override { return events_.fd(); }
    /// See export_tls_key().
    bool export_key(peer_id peer, std::string_view label, const_bytes context,
                    mutable_bytes into) const noexcept;

    // ---- for its connections and its reception
    using framed_port::begin_placement;
    using framed_port::count_evicted;
    using framed_port::deliver;
    using framed_port::end_placement;
    using framed_port::extend_placement;
    using framed_port::link_down;
    using framed_port::remedy;
    using framed_port::sent;
    using framed_port::unreadable;
    using framed_port::unwritable;
    using framed_port::writable;

    receive_memory& memory() noexcept { return memory_; }
    poller& events() noexcept { return events_; }
    deadlines& times() noexcept { return times_; }
    std::chrono::milliseconds silence_limit() const noexcept { return options().silence_limit; }
    /// Counts calls of move_frames().
    std::uint64_t round() const noexcept { return round_; }

    std::size_t max_strangers() const noexcept { return options().max_strangers; }
    /// Ends the oldest pending handshake of an accepted connection. False: none is that old.
    bool evict_stranger(std::chrono::milliseconds age = {}) noexcept;
    /// Frees a descriptor for a new connection. False: no existing connection may be evicted.
    bool evict_for_newcomer() noexcept;
    /// A frame is incomplete: makes sure that it continues.
    void watch_frames() noexcept;

    /// False: out of memory for another connection; it is closed.
    bool take_in(unique_fd accepted) noexcept;
    /// False: out of memory for another peer.
    bool entered(connection& who) noexcept;
    void turned_away(connection& who) noexcept { turned_away_.push_back(&who); }
    void forget_turned_away(connection& who) noexcept;
    void activate(connection& who) noexcept;
    void has_work(connection& who) noexcept;
    void count_blocked(int change) noexcept { blocked_ += change; }
    /// False: enough steps of TLS handshakes in this round.
    bool may_step() noexcept { return tls_ == nullptr || tls_->may_step(round_); }
    void keep_ticket(const std::string& address, const tls_session& of) noexcept {
        tls_->keep(address, of);
    }
    /// A refused sender may post again: do not sleep before it was told.
    void note_room() noexcept { has_new_room_ = true; }

private:
    result<frame_link*> connect(std::string_view address) noexcept override;
    result<std::string> canonical(std::string_view address) const noexcept override;
    std::size_t move_frames(std::size_t budget) noexcept override;
    bool arm() noexcept override;
    void release(frame_link& link) noexcept override;
    void resume(frame_link& link) noexcept override { static_cast<connection&>(link).go_on(); }

    std::string_view scheme() const noexcept { return tls_ == nullptr ? "tcp" : "tcp+tls"; }
    connection& make_connection(std::string address);
    void make_room_for_lists();
    void remove(connection& who) noexcept;
    void ask_for_addresses(connection& who, const uri& target);
    void take_answers() noexcept;
    void run_timers() noexcept { times_.run(clock::steady().now()); }
    std::size_t work_off(std::size_t budget) noexcept;
    void report_turned_away() noexcept;
    void check_frames(clock::time_point now) noexcept;
    std::size_t read_all(std::size_t budget) noexcept;
    void prune_active() noexcept;

    binding chosen_;
    advertisement shown_;
    std::string credentials_;            ///< As the URI's option named them; else empty.
    std::unique_ptr<tls_sessions> tls_;  ///< Null without TLS.
    receive_memory memory_;
    poller events_;
    deadlines times_;
    hello hello_;
    handshake_setting setting_;
    forwarded_event<tcp_port, &tcp_port::run_timers> on_time_{*this};
    forwarded_event<tcp_port, &tcp_port::take_answers> on_answers_{*this};
    struct frame_watch final : timed {
        explicit frame_watch(tcp_port& of) : home(of) {}
        void due(clock::time_point now) noexcept override { home.check_frames(now); }
        tcp_port& home;
    };
    frame_watch frame_watch_{*this};
    bool frames_are_watched_ = false;
    std::unique_ptr<reception> reception_;
    std::unique_ptr<resolver> resolver_;  ///< Created for the first host name.
    std::unordered_map<std::uint64_t, connection*> resolving_;  ///< By question number.
    std::vector<std::unique_ptr<connection>> connections_;
    std::vector<connection*> active_;     ///< Read from in each round.
    std::vector<connection*> with_work_;  ///< See connection::work_off().
    std::vector<connection*> working_;    ///< Those of with_work_ being processed now.
    std::vector<connection*> turned_away_;
    std::uint64_t round_ = 1;
    std::size_t reads_unasked_ = 0;  ///< Reads from connections since the last epoll query.
    std::size_t turn_ = 0;           ///< Which connection is read first.
    owned_counter refused_;          ///< Handshakes of TLS that failed.
    bool has_new_room_ = false;
    int blocked_ = 0;  ///< Connections that wait for socket room.
};

}  // namespace amalgam::detail

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <poll.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/packets.hpp>
#include <amalgam/fabric/port.hpp>

#include "fabric/packets/introducing_carrier.hpp"

namespace amalgam::detail {

class introduced_carrier;

/// Over what the ends of a carrier are introduced.
struct introducer {
    std::unique_ptr<port> tcp;
    std::string scheme;          ///< The text before "://", such as "ucx+tcp".
    introduction_trust trust{};  ///< If `tcp` speaks TLS; the scheme ends in "+tls" then.
};

/// A connection of an introduced_carrier.
class introduced_link : public packet_link {
public:
    virtual ~introduced_link() = default;

    void close() noexcept final;

    /// The id by which each end wants to be addressed: the other end puts own_id() into packets it
    /// sends here, and this end puts their_id() into packets it sends there.
    std::uint64_t own_id() const noexcept { return own_id_; }
    std::uint64_t their_id() const noexcept { return their_id_; }

protected:
    /// Call for each packet sent; arrived() counts those received. Closing waits for the last
    /// packet.
    void count_sent() noexcept { ++sent_; }
    bool is_open() const noexcept { return state_ == state::open; }
    /// True: the other end connected to us; else we connected to it.
    bool was_accepted() const noexcept { return was_accepted_; }

private:
    friend class introduced_carrier;
    enum class state : std::uint8_t { introduction, open, leaving, over };

    /// The introduction, and later the farewell, while being sent.
    struct outgoing : completion {
        outgoing() : completion(&on_done) {}
        static void on_done(completion& self, status, std::size_t) noexcept {
            static_cast<outgoing&>(self).pending = false;
        }
        std::vector<std::byte> bytes;
        const_bytes piece;
        bool pending = false;
    };

    introduced_carrier* home_ = nullptr;
    peer_id peer_{};
    state state_ = state::introduction;
    std::uint64_t own_id_ = 0;
    std::uint64_t their_id_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t received_ = 0;
    std::uint64_t announced_ = 0;  ///< Packets the other end sent; known after its farewell.
    bool farewell_ = false;
    bool was_accepted_ = false;
    status why_;                   ///< Reason for leaving.
    clock::time_point leaves_at_;  ///< When leaving: the deadline.
    outgoing said_;
    std::vector<std::byte> name_;  ///< The other end's name, until its first packet arrives.
    std::unique_ptr<link_secrets> secrets_;  ///< Over tls, until they are taken.
};

/// A carrier over a library that moves packets between named ends but does not exchange the names
/// or detect that an end is gone. A tcp port of its own does both. It listens where the URI says,
/// so interface, address and port number are as requested. On each of its connections the ends
/// exchange names. When that connection is lost, so is the peer, within the same time and for the
/// same reasons as with tcp.
///
/// If that port speaks TLS, the ends have proved who they are, and share secrets by which a
/// sealed_carrier protects their packets.
///
/// Threads: the port's thread.
class introduced_carrier : public introducing_carrier, private message_sink {
public:
    void start(packet_events& events) noexcept final;
    std::string address() const final;
    std::string explain() const final;
    identity self() const final { return tcp_->self(); }
    result<std::string> canonical(std::string_view address) const final;
    result<packet_link*> connect(std::string_view address) final;
    void release(packet_link& link) noexcept final;
    std::size_t progress(std::size_t budget) noexcept final;
    int wait_handle() const noexcept final { return both_.get(); }
    bool arm() noexcept final;
    std::unique_ptr<link_secrets> take_secrets(packet_link&) noexcept final;

protected:
    /// Only ends with the same scheme connect.
    /// Failure: throws error{no_memory}.
    explicit introduced_carrier(introducer by);
    /// Call first in the destructor.
    void end_introductions() noexcept;
    /// Call in the constructor.
    void sleep_also_on(int fd);
    /// Call in arm_paths(): the same for the descriptors that every packet makes ready, with the
    /// events of poll(), in place of those of the last call. A port that has long been awake takes
    /// them out of its epoll set, where each packet would cost a wake-up that nobody waits for.
    /// False: no memory for it.
    bool sleep_on_busy(std::span<const pollfd> those) noexcept;
    /// Call before one of them is closed: its number may be another file's at the next call, and a
    /// child process that has a copy would keep it in the set.
    void wake_by_busy_no_more() noexcept;
    /// For libraries that do not signal all work by a descriptor. Limits each sleep to one
    /// millisecond if `soon`; otherwise the limit doubles up to 64 ms while nothing arrives. Call
    /// it in the constructor, as preparation, and in arm_paths().
    void sleep_briefly(bool soon);

    // ---- implemented for each library

    /// How the other end of the link reaches this one.
    virtual const_bytes own_name(const introduced_link&) const noexcept = 0;
    virtual std::string explain_paths() const = 0;
    virtual std::unique_ptr<introduced_link> make_link() = 0;
    /// The other end's name is known: packets may be sent. On failure the connection is lost.
    virtual status open_path(introduced_link&, const_bytes name) noexcept = 0;
    /// True: the accepting end opens its path only when the first packet arrives. For libraries
    /// where two ends that connect to each other at the same time can miss each other.
    virtual bool caller_goes_first() const noexcept { return false; }
    /// Nothing more will be sent. Packets already sent still leave, unless the other end is gone
    /// (`dead`). May run inside an upcall.
    virtual void close_path(introduced_link&, bool dead) noexcept = 0;
    /// The link is no longer referred to: destroy it once the library has released it.
    virtual void release_path(std::unique_ptr<introduced_link>) noexcept = 0;
    /// Moves packets; returns how many arrived. Calls arrived() and lost().
    virtual std::size_t move_packets(std::size_t budget) noexcept = 0;
    virtual bool arm_paths() noexcept = 0;

    // ---- called by each library, inside move_packets()

    /// nullptr: no connection with that id accepts packets.
    introduced_link* find(std::uint64_t own_id) noexcept;
    void arrived(introduced_link&, const_bytes packet) noexcept;
    void lost(introduced_link&, status why) noexcept;
    packet_events& events() noexcept { return *events_; }
    /// Where the other end was looked up or connected from: "tcp://10.0.0.5:7000".
    std::string met_at(const introduced_link& link) const { return tcp_->peer_address(link.peer_); }

private:
    friend class introduced_link;
    static constexpr std::uint64_t rounds_per_look = 64;
    static constexpr std::uint64_t long_awake = 1024;  ///< Rounds.

    void on_message(message& arrived) noexcept override;
    void on_peer_down(peer_id, status why) noexcept override;

    std::string to_tcp(std::string_view address) const;
    introduced_link& add(peer_id who);
    void greet(introduced_link&);
    void take_greeting(introduced_link&, const_bytes bytes) noexcept;
    status share_secrets(introduced_link&, std::uint8_t their_ciphers) noexcept;
    bool proves() const noexcept { return trust_.export_key != nullptr; }
    void open(introduced_link&, const_bytes name) noexcept;
    introduced_link* of(peer_id who) noexcept;
    void say_farewell(introduced_link&) noexcept;
    void drop(introduced_link&, status why) noexcept;
    void leave(introduced_link&, status why) noexcept;
    void let_go() noexcept;
    void refuse(introduced_link&) noexcept;
    std::unique_ptr<introduced_link> take(introduced_link&) noexcept;
    void release_parted() noexcept;

    std::unique_ptr<port> tcp_;
    std::string scheme_;
    const introduction_trust trust_;
    packet_events* events_ = nullptr;
    unique_fd both_;  ///< An epoll set: the descriptors of the tcp port and of the library.
    std::array<pollfd, 16> busy_{};  ///< In `both_`: see sleep_on_busy().
    std::size_t busy_count_ = 0;
    std::uint64_t awake_ = 0;  ///< Rounds since the last sleep.
    unique_fd timer_;          ///< See sleep_briefly().
    bool timer_is_set_ = false;
    long nap_ms_ = 1;
    bool ending_ = false;
    std::size_t upcalls_ = 0;
    std::uint64_t rounds_ = 0;
    bool slept_ = false;
    std::vector<std::unique_ptr<introduced_link>> links_;
    std::unordered_map<std::uint64_t, introduced_link*> by_id_;
    std::unordered_map<peer_id, introduced_link*> by_peer_;
    std::vector<introduced_link*> leaving_;
    std::vector<std::unique_ptr<introduced_link>>
        parted_;  ///< To release once their farewell is sent.
};

}  // namespace amalgam::detail

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>

/// The short way to a transport: whoever can carry packets between two ends, reliably and in
/// order, has a port. make_packet_port() adds all else: messages of any length, matching,
/// regions, put and get with checked keys, cancel, back-pressure, completions that run once.
namespace amalgam {

/// Bytes on their way out, in memory of the port's.
struct packet {
    /// This many bytes in front of `data` are the carrier's, for a header of its own.
    static constexpr std::size_t head_room = 16;

    std::byte* data = nullptr;
    std::uint32_t bytes = 0;
    /// The carrier's own while it holds the packet.
    std::uintptr_t carrier_words[2] = {};
    packet* next = nullptr;
};

/// One connection of a carrier, which derives from it.
///
/// Threads: the port's.
class packet_link {
public:
    /// Sends one packet. done: its bytes were copied or are gone. pending: the packet is the
    /// carrier's until packet_events::returned(). full: nothing was taken; packet_events::room()
    /// tells when to try again. A connection under way says full. Makes no upcalls.
    virtual posted send(packet& one) noexcept = 0;
    /// Ends the connection. What send() took still leaves, as far as that needs no waiting. No
    /// upcalls for this link from now on, but for the return of packets. It may be called inside
    /// of an upcall for this very link, which stays where it is until packet_carrier::release().
    virtual void close() noexcept = 0;

    void* user = nullptr;  ///< The port's.

protected:
    ~packet_link() = default;
};

/// What a carrier tells. Each only inside of packet_carrier::progress(), unless said otherwise.
class packet_events {
public:
    /// Somebody connected to us. False: there is no memory; release() the link then.
    virtual bool accepted(packet_link&, std::string address) noexcept = 0;
    /// A packet came; its bytes are not needed after the return.
    virtual void received(packet_link&, const_bytes) noexcept = 0;
    /// A link that said full takes packets again.
    virtual void room(packet_link&) noexcept = 0;
    /// The connection is gone, or was not to be had (`unreachable`): once, not after close(). What
    /// came before was received.
    virtual void down(packet_link&, status why) noexcept = 0;
    /// A pending packet is not needed any more, sent or not. Anywhere.
    virtual void returned(packet&) noexcept = 0;
    /// Instead of returned(): the library below may read this pending packet for ever, and so it
    /// is never freed. Anywhere.
    virtual void abandoned(packet&) noexcept = 0;
    /// A run of progress() has something to do that no wait handle shows. Anywhere.
    virtual void due() noexcept = 0;

protected:
    ~packet_events() = default;
};

/// Moves packets: what a transport brings along. Reliable, in order, between pairs of ends.
///
/// Owner:   owned by the port that stands on it; owns its links.
/// Threads: the port's.
class packet_carrier {
public:
    /// Ends all; returns, or abandons, all packets. No upcalls but that.
    virtual ~packet_carrier() = default;

    /// Called once, before anything else.
    virtual void start(packet_events& events) noexcept = 0;

    /// What others pass to lookup(); empty when it does not listen.
    virtual std::string address() const = 0;
    /// One sentence each: what was chosen at opening, and why.
    virtual std::string explain() const = 0;
    /// The form of an address under which two spellings of one peer are the same peer.
    /// Failure: `invalid` or `unsupported`, one sentence.
    virtual result<std::string> canonical(std::string_view address) const = 0;
    /// Begins to connect; does not wait. If that fails later: packet_events::down(unreachable).
    virtual result<packet_link*> connect(std::string_view address) = 0;
    /// The port does not name the link any more: free it. Not inside of progress().
    virtual void release(packet_link&) noexcept = 0;

    /// Moves on without blocking, in `budget` upcalls or little more; returns how many they were.
    virtual std::size_t progress(std::size_t budget) noexcept = 0;
    /// A descriptor that is readable when progress() has something to do, once arm() was true.
    virtual int wait_handle() const noexcept = 0;
    virtual bool arm() noexcept = 0;
};

/// What the port says of itself, and how it cuts.
struct packet_port_traits {
    std::string_view transport;          ///< As capabilities::transport; outlives the port.
    std::size_t packet_bytes = 65536;    ///< Longest packet the carrier takes; 512 at least.
    std::size_t eager_bytes = 64 << 10;  ///< As capabilities::eager_bytes.
    bool listens = false;
    bool between_processes = true;
    bool between_hosts = false;
    bool isolates_killed = true;  ///< As capabilities::isolates_killed.
};

/// A port on a carrier. Both ends must use the same packet_bytes.
/// Failure: throws std::bad_alloc.
/// Cost:    a message is copied into a packet and, on the other side, handed to the sink where the
///          carrier has it.
std::unique_ptr<port> make_packet_port(std::unique_ptr<packet_carrier> carrier,
                                       const packet_port_traits& traits,
                                       const port_options& options);

}  // namespace amalgam

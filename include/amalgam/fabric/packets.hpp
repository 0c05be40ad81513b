#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>

/// @file
/// The shortest way to write a transport: implement a carrier that moves packets between two ends,
/// reliably and in order. make_packet_port() adds the rest: messages of any length, matching,
/// regions, put and get with checked keys, cancel, back-pressure, completions that run once.
namespace amalgam {

class one_sided_carrier;

/// Outgoing bytes, in memory owned by the port.
struct packet {
    /// Bytes in front of `data` reserved for the carrier's own header.
    static constexpr std::size_t head_room = 16;

    std::byte* data = nullptr;  ///< Begins behind the head room.
    std::uint32_t bytes = 0;    ///< From `data` on.
    /// For the carrier's use while it holds the packet.
    std::uintptr_t carrier_words[2] = {};
    packet* next = nullptr;  ///< For lists of whoever holds the packet.
};

/// One connection of a carrier. Carriers derive from it.
///
/// Threads: the port's.
class packet_link {
public:
    /// Sends one packet. done: its bytes were copied or sent. pending: the carrier holds the packet
    /// until packet_events::returned(). full: nothing was taken; packet_events::room() says when to
    /// retry. Returns full while still connecting. Makes no upcalls.
    virtual posted send(packet& one) noexcept = 0;
    /// Ends the connection. Packets that send() took still leave if that needs no waiting. No more
    /// upcalls for this link, except for returned packets. May be called inside an upcall for this
    /// very link, which stays valid until packet_carrier::release().
    virtual void close() noexcept = 0;

    void* user = nullptr;  ///< For the port.

protected:
    ~packet_link() = default;
};

/// Upcalls from a carrier to its port. Only inside packet_carrier::progress(), unless marked "any
/// time".
class packet_events {
public:
    /// A peer connected. False: out of memory; release() the link.
    virtual bool accepted(packet_link&, std::string address) noexcept = 0;
    /// A packet arrived. Its bytes are not used after this returns.
    virtual void received(packet_link&, const_bytes) noexcept = 0;
    /// A link that returned full takes packets again.
    virtual void room(packet_link&) noexcept = 0;
    /// The connection is gone, or could not be made (`unreachable`). Called once, never after
    /// close(). Packets that arrived earlier have been delivered.
    virtual void down(packet_link&, status why) noexcept = 0;
    /// A pending packet is no longer in use, sent or not. Any time.
    virtual void returned(packet&) noexcept = 0;
    /// Instead of returned(): the underlying library may read this packet forever, so it is never
    /// freed. Any time.
    virtual void abandoned(packet&) noexcept = 0;
    /// progress() has work that no wait handle shows. Any time.
    virtual void due() noexcept = 0;

protected:
    ~packet_events() = default;
};

/// Moves packets, reliably and in order, between pairs of ends. A transport implements it.
///
/// Owner:   owned by the port built on it; owns its links.
/// Threads: the port's.
class packet_carrier {
public:
    /// Ends everything; returns or abandons all packets, with no other upcalls.
    virtual ~packet_carrier() = default;

    /// Called once, before anything else.
    virtual void start(packet_events& events) noexcept = 0;

    /// The URI that peers pass to lookup(). Empty if it does not listen.
    virtual std::string address() const = 0;
    /// What was chosen when it was opened and why, one sentence each.
    virtual std::string explain() const = 0;
    /// Canonical form of an address, so that two spellings of one peer compare equal.
    /// Failure: `invalid` or `unsupported`, with one sentence.
    virtual result<std::string> canonical(std::string_view address) const = 0;
    /// Starts connecting; does not wait. A later failure arrives as
    /// packet_events::down(unreachable).
    virtual result<packet_link*> connect(std::string_view address) = 0;
    /// The port no longer uses the link: free it. Not called inside progress().
    virtual void release(packet_link&) noexcept = 0;

    /// Makes progress without blocking, in `budget` upcalls or slightly more; returns their number.
    virtual std::size_t progress(std::size_t budget) noexcept = 0;
    /// A descriptor that is readable when progress() has work, once arm() has returned true.
    virtual int wait_handle() const noexcept = 0;
    virtual bool arm() noexcept = 0;

    /// The second interface, if library or device can read and write peers' memory: puts and gets
    /// then go by it, where it can, instead of in packets. nullptr: it cannot. The same answer
    /// every time; asked before start(). See one_sided.hpp.
    virtual one_sided_carrier* one_sided() noexcept { return nullptr; }
};

/// What the port reports as its capabilities, and the packet size.
struct packet_port_traits {
    std::string_view transport;          ///< As capabilities::transport; outlives the port.
    std::size_t packet_bytes = 65536;    ///< Longest packet the carrier takes; at least 512.
    std::size_t eager_bytes = 64 << 10;  ///< As capabilities::eager_bytes.
    bool listens = false;                ///< As capabilities::listens.
    bool between_processes = true;       ///< As capabilities::between_processes.
    bool between_hosts = false;          ///< As capabilities::between_hosts.
    bool isolates_killed = true;         ///< As capabilities::isolates_killed.
    /// As capabilities::rma of a carrier that is one_sided(); else it is `emulated`.
    rma_mode rma = rma_mode::one_sided;
};

/// Builds a port on a carrier. Both ends must use the same packet_bytes.
/// Failure: throws std::bad_alloc.
/// Cost:    a message is copied into a packet; on the receiving side the sink gets it in place.
std::unique_ptr<port> make_packet_port(std::unique_ptr<packet_carrier> carrier,
                                       const packet_port_traits& traits,
                                       const port_options& options);

}  // namespace amalgam

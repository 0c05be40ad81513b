#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/region.hpp>

/// @file
/// The optional second interface of a packet_carrier, for a library or device that reads and writes
/// a peer's memory without the peer's processor (RDMA read and write). The port does the rest: it
/// hands out the device's keys to peers that show a remote_key of ours, cuts transfers, registers
/// local memory, cancels, and falls back to packets where the device cannot serve.
namespace amalgam {

class packet_link;

/// One put or get of contiguous memory, lent to a carrier from start() until it is over.
struct one_sided_transfer {
    bool is_put = false;                 ///< Else it is a get.
    std::byte* here = nullptr;           ///< A put only reads it.
    std::size_t bytes = 0;               ///< Not 0.
    void* memory = nullptr;              ///< From register_memory(); null if that is not needed.
    void* key = nullptr;                 ///< From open_key().
    std::uint64_t offset = 0;            ///< In the segment that the key opens.
    const remote_key* region = nullptr;  ///< As the user showed it.
    status how;                          ///< Set by start() when it returns `done`.
    /// For the carrier's use while it holds the transfer.
    std::uintptr_t carrier_words[8] = {};

    // ---- the port's
    void* operation = nullptr;               ///< The put or get that this is a piece of.
    void* known_key = nullptr;               ///< What the port knows of the region at the peer.
    void* pinned = nullptr;                  ///< Its registration of `memory`.
    one_sided_transfer* next = nullptr;      ///< In a list of pieces.
    one_sided_transfer* previous = nullptr;  ///< In a list of pieces.
};

/// Upcalls from a carrier to its port.
class one_sided_events {
public:
    /// A transfer that start() left pending is over, once: neither carrier nor library uses its
    /// memory or its key any more. `denied` if the target's memory was refused. Inside
    /// packet_carrier::progress() or let_go(). Calls nothing of the carrier's but start().
    virtual void finished(one_sided_transfer&, status how) noexcept = 0;

protected:
    ~one_sided_events() = default;
};

/// What a one-sided carrier asks of the port. Constant.
struct one_sided_facts {
    rma_mode mode = rma_mode::one_sided;  ///< How transfers move bytes.
    bool registers_memory = true;         ///< Local memory needs register_memory().
    /// A region's segments each have a key. False: one key, of remote_key{} and asked for when a
    /// connection begins, opens all regions of a peer; `offset` is then in the region, and the
    /// carrier checks `region` itself.
    bool has_region_keys = true;
    /// start() always answers `done`.
    bool is_synchronous = false;
    std::size_t piece_bytes = std::size_t{1} << 20;  ///< Longest transfer.
    std::size_t window = 16;                         ///< Most transfers pending of one operation.
};

/// Reads and writes peers' memory under checked keys.
///
/// The promise that a carrier makes: nothing is reached but a segment that is exposed, within its
/// bounds and for what its region grants, by a peer that was told its key. Its library checks that,
/// or the carrier does. When hide() returns, no byte of the region is read or written any more,
/// whatever peers asked for before, and however they ended.
///
/// Threads: the port's.
class one_sided_carrier {
public:
    static constexpr std::size_t max_name_bytes = 128;  ///< Longest one_sided_name().
    static constexpr std::size_t max_key_bytes = 192;   ///< Longest key that expose() tells.

    /// Called once, before anything else.
    virtual void start_one_sided(one_sided_events&) noexcept = 0;
    virtual one_sided_facts one_sided_traits() const noexcept = 0;

    // ---- the target: its own memory
    /// A region opened. For carriers without region keys.
    virtual void show(const remote_key&, scatter /*segments*/) noexcept {}
    /// What targets must know of this end to serve it; at most max_name_bytes, may be empty.
    virtual const_bytes one_sided_name() const noexcept { return {}; }
    /// Makes segment `index` of an open region reachable for the peer at `to`, which gave `name`;
    /// registers it if it is not yet. Writes what the peer passes to open_key(); returns its
    /// length. May be called again, also for other peers. Failure: any; the peer then uses packets.
    virtual result<std::size_t> expose(packet_link& to, const_bytes name, const remote_key&,
                                       scatter segments, std::size_t index,
                                       std::span<std::byte, max_key_bytes> told) noexcept = 0;
    /// The region closes: ends every access to it, as promised above. Also called for regions of
    /// which no segment could be exposed.
    virtual void hide(const remote_key&) noexcept = 0;

    /// The link goes, and is not named again.
    virtual void left(packet_link&) noexcept {}

    // ---- the initiator: a peer's memory
    /// Takes what the peer told of segment `index` of its region. Trusts nothing in it.
    /// Failure: any; this end then uses packets.
    virtual result<void*> open_key(packet_link& of, const remote_key&, std::size_t index,
                                   std::uint64_t bytes, const_bytes told) noexcept = 0;
    /// Precondition: no transfer uses it.
    virtual void close_key(void*) noexcept = 0;

    /// Registers local memory for transfers of this end only. Failure: `no_memory` and others; what
    /// has not begun of the put or get then goes by packets, after what is under way.
    virtual result<void*> register_memory(mutable_bytes) noexcept { return nullptr; }
    /// Precondition: no transfer uses it.
    virtual void unregister_memory(void*) noexcept {}

    /// Begins a transfer. done: it is over, as its `how` tells; `unsupported` means that packets
    /// must carry this and what follows of the operation.
    /// pending: finished() follows. full: nothing was taken; the port tries again once a transfer
    /// to this peer has ended or the link has room(), and while it is awake also in between.
    virtual posted start(packet_link& to, one_sided_transfer&) noexcept = 0;
    /// Asks that a pending transfer ends early. It ends by finished(), here or later, once library
    /// and device have let go of its memory; no other transfer ends in this call. Also called for
    /// every transfer of a link that is closed or down. The link stays until they are over, or
    /// until the port gives up on them after the silence limit: then release() comes first.
    virtual void let_go(one_sided_transfer&) noexcept = 0;

    /// How many bytes of transfers went through memory of the carrier's own. Any thread.
    virtual std::uint64_t copied_bytes() const noexcept { return 0; }

    /// The port ends; called once, after it asked for every transfer and waited a moment, and after
    /// all links were closed. When this returns, neither library nor device uses memory or key of
    /// any transfer, also of those that are not over, and finished() is not called any more.
    /// Packets that links took may still leave first, as in the carrier's destructor. Of the other
    /// calls only hide() and show(), for regions of who closes and opens some in completions of the
    /// port's end, left(), close_key(), unregister_memory() and packet_carrier::release() follow.
    virtual void end_one_sided() noexcept = 0;

protected:
    ~one_sided_carrier() = default;
};

}  // namespace amalgam

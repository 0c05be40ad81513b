#pragma once

#include <cstdint>

#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

namespace amalgam::detail {

/// What a frame between two native ports means. Travels on the wire: never renumber.
enum class frame_kind : std::uint8_t {
    unexpected = 1,  ///< tag: the sender's. payload: the message.
    expected = 2,    ///< tag: matched with a posted receive. payload: the message.
    put = 3,         ///< tag: initiator's operation. payload: rma_request, then the bytes.
    get = 4,         ///< tag: initiator's operation. payload: rma_request.
    get_data = 5,    ///< tag: the operation. payload: u64 offset as in the request, bytes.
    rma_done = 6,    ///< tag: the operation. payload: status, how a put (or refused get) ended.
    first_of_transport = 16  ///< From here on each transport numbers its own (hello, bye, …).
};

/// Stands before every payload. 16 bytes, little-endian on every wire.
struct frame_header {
    std::uint32_t bytes = 0;  ///< Of the payload.
    frame_kind kind = frame_kind::unexpected;
    std::uint8_t flags = 0;
    std::uint16_t extra = 0;
    std::uint64_t tag = 0;
};
static_assert(sizeof(frame_header) == 16);

inline frame_header header_of(frame_kind kind, std::uint64_t tag, std::size_t bytes) noexcept {
    frame_header header;
    header.bytes = static_cast<std::uint32_t>(bytes);
    header.kind = kind;
    header.tag = tag;
    return header;
}

/// The start of a put or get payload.
struct rma_request {
    remote_key key;
    std::uint64_t offset = 0;  ///< Within the region.
    std::uint64_t bytes = 0;   ///< Of the whole transfer piece that this request asks for.
};
static_assert(sizeof(rma_request) == 56);

struct peer_record;  // framed_port's; see peer_table.hpp.

/// The byte mover to one peer. Each transport has its own; framed_port calls it.
class frame_link {
public:
    /// done: all taken (copied or sent). pending: header was copied; payload, array and bytes, is
    /// lent until framed_port::sent(*on_sent, status). full: nothing taken; call
    /// framed_port::writable() when it is worth trying again.
    /// `on_sent` null: a small frame of the port's own (at most 256 bytes, the array on the
    /// caller's stack): copied or refused, never pending.
    /// Calls neither sent() nor deliver(). A send that finds the connection broken calls
    /// link_down() and returns full. While lent, port_words[3] of `on_sent` is the transport's.
    virtual posted send(const frame_header&, gather payload, completion* on_sent) noexcept = 0;

    /// True: the pending send had not begun and is forgotten; the transport will not name it again.
    /// False: too late, it will be told by sent().
    virtual bool forget(completion& on_sent) noexcept = 0;

    /// The lent memory must be free now, though its frame has begun: the transport copies what it
    /// has not sent yet into memory of its own and forgets `on_sent`; the frame still goes out
    /// whole. Without memory for that it ends the connection: link_down(no_memory).
    virtual void detach(completion& on_sent) noexcept = 0;

    /// Ends the connection now, without waiting for lent sends, which are forgotten. The transport
    /// makes no more upcalls for this link. It may run inside an upcall of this very link
    /// (deliver() then returns `gone`); the link stays in memory until framed_port::release().
    virtual void shut() noexcept = 0;

    peer_id peer;                   ///< Set by framed_port.
    peer_record* record = nullptr;  ///< Set and used by framed_port.

protected:
    ~frame_link() = default;
};

/// What became of a frame, and so what the transport does with the link next.
enum class [[nodiscard]] verdict : std::uint8_t{
    taken,      ///< Go on.
    pause,      ///< Taken, but too much waits: deliver nothing more from this link until resume().
    malformed,  ///< The peer broke the protocol: end the connection and call link_down().
    gone        ///< The link ended inside this call (shut() or link_down() ran): leave it alone.
};

/// Where the rest of a large frame's payload goes, so that it lands without a second copy.
///
/// Owner: framed_port, from begin_landing() until end_landing(), link_down() or shut().
/// Look at it anew before each write: whenever the user has the word (between two calls of
/// move_frames(), inside other upcalls) the port may turn it into a discarding one, as the memory
/// was taken back by cancel or by closing a region.
struct landing {
    scatter into;          ///< In order; together as long as the rest of the payload.
    bool discard = false;  ///< Nobody wants it: read the bytes and drop them; `into` is empty.
};

}  // namespace amalgam::detail

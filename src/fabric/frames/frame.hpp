#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/extension/peer_traffic.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

namespace amalgam::detail {

/// Type of a frame between two native ports. Travels on the wire: never renumber.
enum class frame_kind : std::uint8_t {
    unexpected = 1,    ///< tag: the sender's. payload: the message.
    expected = 2,      ///< tag: matched with a posted receive. payload: the message.
    put = 3,           ///< tag: initiator's operation. payload: rma_request, then the bytes.
    get = 4,           ///< tag: initiator's operation. payload: rma_request.
    get_data = 5,      ///< tag: the operation. payload: u64 offset as in the request, then bytes.
    rma_done = 6,      ///< tag: the operation. payload: status of a put, or of a refused request.
    put_notify = 7,    ///< tag: initiator's operation. payload: request of all, notice, last bytes.
    fetch_add = 8,     ///< tag: initiator's operation. payload: key, offset, what to add.
    compare_swap = 9,  ///< tag: initiator's operation. payload: key, offset, expected, desired.
    fetched = 10,      ///< tag: the operation. payload: what the number was.
    last_of_port = fetched,
    first_of_transport = 16  ///< Transports number their own from here (hello, bye, …).
};

/// Precedes every payload. 16 bytes, little-endian on every wire.
struct frame_header {
    std::uint32_t bytes = 0;  ///< Payload size.
    frame_kind kind = frame_kind::unexpected;
    std::uint8_t flags = 0;
    std::uint16_t extra = 0;
    std::uint64_t tag = 0;
};
static_assert(sizeof(frame_header) == 16);

inline frame_header header_of(frame_kind kind, std::uint64_t tag, std::size_t bytes) noexcept {
    if constexpr (std::endian::native == std::endian::little) {
        // By words, so that who copies it by words at once need not wait for its fields.
        return std::bit_cast<frame_header>(std::array<std::uint64_t, 2>{
            static_cast<std::uint32_t>(bytes) | static_cast<std::uint64_t>(kind) << 32, tag});
    }
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
    std::uint64_t bytes = 0;   ///< Size of the whole piece that this request asks for.
};
static_assert(sizeof(rma_request) == 56);

struct peer_record;  // Belongs to framed_port; see peer_table.hpp.

/// Moves bytes to one peer. Each transport implements it; framed_port calls it.
class frame_link {
public:
    /// done: everything was copied or sent. pending: the header was copied; the payload (array and
    /// bytes) is borrowed until framed_port::sent(*on_sent, status). full: nothing was taken; call
    /// framed_port::writable() when a retry may succeed.
    /// `on_sent` null: a small frame of the port itself (at most 256 bytes, array on the caller's
    /// stack); copied or refused, never pending.
    /// Calls neither sent() nor deliver(). If the connection turns out to be broken, calls
    /// link_down() and returns full. While the payload is borrowed, the transport may use
    /// port_words[3] of `on_sent`.
    virtual posted send(const frame_header&, gather payload, completion* on_sent) noexcept = 0;

    /// True: the pending send had not begun and is dropped; the transport does not use `on_sent`
    /// again. False: too late, sent() will report it.
    virtual bool forget(completion& on_sent) noexcept = 0;

    /// The borrowed memory is needed back, although its frame has begun. The transport copies the
    /// unsent rest to its own memory and forgets `on_sent`; the frame is still sent whole. If out
    /// of memory, it ends the connection with link_down(no_memory).
    virtual void detach(completion& on_sent) noexcept = 0;

    /// Ends the connection now, without waiting for borrowed sends, which are forgotten. The
    /// transport makes no more upcalls for this link. May run inside an upcall for the same link
    /// (deliver() then returns `gone`); the link stays valid until framed_port::release().
    virtual void shut() noexcept = 0;

    /// Who is at the other end, once the connection is up: see port::who().
    virtual identity who() const { return {}; }
    /// The certificate's key that it proved; null where nobody proves any. Remote keys may be bound
    /// to it: see bound_key.hpp. Lives as long as the link.
    virtual const key_fingerprint* proven_key() const noexcept { return nullptr; }
    /// The user whose process it is, by the kernel's word; empty where no kernel tells. Remote keys
    /// may be bound to it, too.
    virtual std::optional<std::uint32_t> proven_user() const noexcept { return std::nullopt; }
    /// Adds messages that were sent without send().
    virtual void add_traffic(peer_traffic&) const noexcept {}

    peer_id peer;                   ///< Set by framed_port.
    peer_record* record = nullptr;  ///< Set and used by framed_port.

protected:
    ~frame_link() = default;
};

/// Result of delivering a frame: what the transport does next with the link.
enum class [[nodiscard]] delivery : std::uint8_t{
    taken,  ///< Continue.
    pause,  ///< Taken, but too much is queued: deliver nothing more from this link until resume().
    malformed,  ///< The peer violated the protocol: end the connection and call link_down().
    gone        ///< The link ended inside this call (shut() or link_down() ran): do not touch it.
};

/// Destination for the rest of a large frame's payload, which saves a second copy.
///
/// Owner: framed_port, from begin_placement() until end_placement(), link_down() or shut().
/// Read it again before each write. Whenever user code may have run (between two calls of
/// move_frames(), inside other upcalls), the port may have set `discard`, because cancel() or
/// closing a region took the memory back.
struct placement {
    scatter into;          ///< In order; total length is the rest of the payload.
    bool discard = false;  ///< Read the bytes and drop them; `into` is empty.
};

}  // namespace amalgam::detail

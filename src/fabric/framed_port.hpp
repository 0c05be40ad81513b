#pragma once

#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>

#include "fabric/frame.hpp"

namespace amalgam::detail {

/// What became of a frame, and so what the transport does with the link next.
enum class [[nodiscard]] verdict : std::uint8_t {
    taken,      ///< Go on.
    pause,      ///< Taken, but too much waits: deliver nothing more from this link until resume().
    malformed,  ///< The peer broke the protocol: end the connection and call link_down().
    gone        ///< A callback closed this link meanwhile: shut() has run, stop reading from it.
};

/// Where the rest of a large frame's payload goes, so that it lands without a second copy.
///
/// Owner: framed_port, from begin_landing() until end_landing(), link_down() or shut().
/// Look at it anew before each write: between two calls of move_frames() the port may turn it into
/// a discarding one (the memory was taken back by cancel or by closing a region).
struct landing {
    scatter into;          ///< In order; together as long as the rest of the payload.
    bool discard = false;  ///< Nobody wants it: read the bytes and drop them; `into` is empty.
};

/// What the native transports share: peers, matching of expected messages, the region table and
/// its checks, put and get carried by frames, exactly-once completion. A transport derives from
/// it and moves frames; it calls the functions marked "from the transport".
///
/// Threads: the port's. Upcalls happen only inside move_frames(), except where noted.
class framed_port : public port {
public:
    ~framed_port() override;

    std::uint64_t incarnation() const noexcept final;
    result<peer_id> lookup(std::string_view address) noexcept final;
    std::string peer_address(peer_id) const final;
    void close(peer_id) noexcept final;
    void set_sink(message_sink*) noexcept final;
    posted post_send(peer_id, std::uint64_t tag, gather, completion&) noexcept final;
    posted post_send_expected(peer_id, std::uint64_t tag, gather, completion&) noexcept final;
    posted post_receive(peer_id, std::uint64_t tag, mutable_bytes, completion&) noexcept final;
    using port::open_region;
    result<region> open_region(scatter, access) noexcept final;
    posted post_put(peer_id, gather, const remote_key&, std::uint64_t, completion&) noexcept final;
    posted post_get(peer_id, scatter, const remote_key&, std::uint64_t, completion&) noexcept final;
    void cancel(completion&) noexcept final;
    std::size_t progress(std::size_t budget) noexcept final;
    bool prepare_to_sleep() noexcept final;  ///< False while completions wait to run; else arm().
    std::size_t open_operations() const noexcept final;

protected:
    framed_port(const port_options& options, capabilities can);
    const capabilities& can() const noexcept final;

    // ---- what each transport provides

    /// A new link to this address, connecting or connected. Frames sent before it is up are
    /// taken as `pending` (or copied) up to some bound, then `full`. If reaching it fails:
    /// link_down(unreachable), but not inside this call.
    virtual result<frame_link*> connect(std::string_view address) noexcept = 0;
    /// The form of an address under which two spellings of one peer are the same peer.
    virtual result<std::string> canonical(std::string_view address) const noexcept = 0;
    /// Reads and writes what can be without blocking; delivers about `budget` frames at most.
    /// Returns how many frames or completions it brought about.
    virtual std::size_t move_frames(std::size_t budget) noexcept = 0;
    /// Arms the wait handle; false when there is something to read or write already.
    virtual bool arm() noexcept = 0;
    /// The link is no longer named by framed_port: free it. Called inside progress(), never inside
    /// move_frames(). Links that still live when the port is destroyed are the transport's to free.
    virtual void release(frame_link&) noexcept = 0;

    /// Memory to memory without the target's help (shm). Overridden by transports that can.
    /// nullopt: not possible for this key or peer, carry it by frames instead. Otherwise the
    /// transfer is over, with this status; the key was checked.
    virtual std::optional<status> direct_put(frame_link&, gather, const remote_key&,
                                             std::uint64_t offset) noexcept;
    virtual std::optional<status> direct_get(frame_link&, scatter, const remote_key&,
                                             std::uint64_t offset) noexcept;
    /// For transports with direct transfers: publish, or withdraw, a region for peers to check.
    virtual void region_opened(const remote_key&, scatter) noexcept {}
    virtual void region_closed(const remote_key&) noexcept {}

    // ---- from the transport

    /// A peer connected to us: gives it an id. `address` is for logs and peer_address().
    peer_id accepted(frame_link&, std::string address);
    /// A whole frame has arrived. `payload` may be in the transport's own memory; it is not
    /// needed after the return. Runs callbacks of the user, who may post, close and cancel.
    verdict deliver(frame_link&, const frame_header&, const_bytes payload) noexcept;
    /// A frame too large to hold whole: `prefix` is its first bytes, at least
    /// min(64, header.bytes) of them. The transport then fills the landing with the rest, and
    /// calls end_landing() before it delivers anything else from this link. One at a time per link.
    /// nullptr: malformed, as the verdict. Runs no callbacks.
    landing* begin_landing(frame_link&, const frame_header&, const_bytes prefix) noexcept;
    /// All the payload was read. Runs callbacks, as deliver() does.
    verdict end_landing(frame_link&) noexcept;
    /// A lent payload is no longer needed. Runs callbacks.
    void sent(completion&, status) noexcept;
    /// A link that said `full` has room again. Frames of our own that waited are sent now.
    void writable(frame_link&) noexcept;
    /// The link is gone, once per link, and not after shut(). Everything on it completes with `why`
    /// from the next progress() on; then release() is called. Open landings and lent sends are
    /// forgotten: no sent() for them any more. May be called anywhere, also inside send().
    void link_down(frame_link&, status why) noexcept;
    /// Called when the verdict was `pause` and there is room again, from any function of the port:
    /// only note it; deliver in the next move_frames(), and see that prepare_to_sleep() knows.
    virtual void resume(frame_link&) noexcept = 0;

    const port_options& options() const noexcept;
    buffer_pool& buffers() noexcept;

    // The implementer adds private state below (a pointer to an implementation, or members).
};

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/fabric/shared_block.hpp>

namespace amalgam {

/// How puts and gets move bytes.
enum class rma_mode : std::uint8_t {
    emulated,     ///< As messages, carried out by the target's progress().
    cross_memory  ///< Copied between processes by the kernel; needs no progress() at the target.
};

/// What this port can do on this machine. Constant for the life of the port.
struct capabilities {
    std::string_view transport;    ///< "tcp"
    std::size_t inline_bytes = 0;  ///< Sends up to this are copied: never `pending` once connected.
    std::size_t max_message_bytes = 0;  ///< Longer sends complete with `too_large`.
    std::size_t eager_bytes = 0;        ///< Above this size a put or get beats a message.
    rma_mode rma = rma_mode::emulated;
    /// Peers on this host can copy to and from allocate()d memory without the kernel.
    bool shares_blocks = false;
    bool listens = false;  ///< Peers can look up address().
    bool between_processes = true;
    bool between_hosts = false;
    /// A process killed while it sends breaks only its own connections.
    bool isolates_killed = true;
    bool driven = false;  ///< Runs in virtual time, see attach_driver(): no thread may poll it.
};

/// What a port holds now, and how often it enforced a bound. See port_options for the bounds.
struct port_usage {
    std::uint64_t queued_bytes = 0;  ///< Messages not taken yet, and large ones still arriving.
    std::uint64_t pooled_bytes = 0;  ///< Free memory kept for reuse.
    std::uint64_t evicted = 0;       ///< Connections ended because a bound was exceeded.
};

/// The code on top of a driven port, run in virtual time. See port::attach_driver().
class port_driver {
public:
    /// Runs everything that is ready; returns how much ran. Never blocks.
    virtual std::size_t run_ready() noexcept = 0;
    /// When run_ready() next has work if nothing arrives first.
    virtual std::optional<clock::time_point> next_timer() const noexcept = 0;

protected:
    ~port_driver() = default;
};

/// One local end of a transport: posts messages, puts and gets to peers.
///
/// Threads: one thread at a time; no locks needed.
/// Failure: no function throws. A posted operation fails only through its completion, so callers
///          have one error path. An unknown or dead peer gives `disconnected` (`unreachable` if it
///          never answered), an oversized message `too_large`, a key refused by the target
///          `denied`. When a peer dies, everything pending completes within the silence limit (5 s
///          by default), or at once if the OS reports the death. A process that is alive and
///          only does not answer is waited for.
/// Cost:    a small message takes no allocation, lock or system call of ours, except those a socket
///          needs.
class port {
public:
    /// Ends every connection. Each pending operation completes with `closed`, inside the
    /// destructor; anything those completions post returns `full`. The sink is no longer called.
    /// In a child of fork(), destroying an inherited port is the only call allowed; it leaves the
    /// parent's port untouched.
    /// Precondition: its regions are gone; not called from one of its own callbacks.
    virtual ~port() = default;
    port() = default;
    port(const port&) = delete;
    port& operator=(const port&) = delete;

    virtual const capabilities& can() const noexcept = 0;

    /// The URI that peers pass to lookup(). Empty if the port does not listen.
    virtual std::string address() const = 0;
    /// 64 random bits that identify this run of this port. Never 0.
    virtual std::uint64_t incarnation() const noexcept = 0;
    /// What was chosen when the port was opened and why, one sentence each. For `amalgam info
    /// --explain`.
    virtual std::string explain() const = 0;

    /// Names a peer by address and starts connecting. Does not wait: posted operations show whether
    /// the peer answers. The same address returns the same peer until that peer goes down, then a
    /// new one.
    /// Failure: `invalid` or `unsupported` if the address makes no sense for this transport.
    virtual result<peer_id> lookup(std::string_view address) noexcept = 0;
    /// The address the peer was looked up by or connected from. Empty for an unknown id.
    virtual std::string peer_address(peer_id) const = 0;
    /// Ends the connection; its operations complete with `closed`.
    virtual void close(peer_id) noexcept = 0;

    /// Sets the receiver of unexpected messages. Without one (the default) they queue in order and
    /// none is lost. Peer-down notices queue too, up to max_queued_bytes of them, for peers that
    /// were looked up or that existed when the last sink was removed.
    virtual void set_sink(message_sink*) noexcept = 0;

    /// Sends an unexpected message: the peer need not post a receive.
    virtual posted post_send(peer_id, std::uint64_t tag, gather, completion& on_done) noexcept = 0;
    /// Sends a message that matches a receive posted by the peer, before or after, for us and
    /// `tag`.
    virtual posted post_send_expected(peer_id, std::uint64_t tag, gather,
                                      completion& on_done) noexcept = 0;
    /// Receives one expected message. A message longer than `into` completes with `too_large` and
    /// is dropped. Receives with the same tag match in posting order.
    virtual posted post_receive(peer_id, std::uint64_t tag, mutable_bytes into,
                                completion& on_done) noexcept = 0;

    /// Registers memory for put and get by peers that hold its key.
    /// Failure: `no_memory` at a limit.
    virtual result<region> open_region(scatter segments, access rights) noexcept = 0;
    result<region> open_region(mutable_bytes bytes, access rights) noexcept {
        return open_region(scatter(&bytes, 1), rights);
    }

    /// Allocates memory that peers reach as fast as this port allows; for regions or anything else.
    /// If it cannot be shared, for example because descriptors ran out, the block is private.
    /// Any thread may call it while the port lives. Failure: `invalid` for zero bytes; `no_memory`.
    virtual result<shared_block> allocate(std::size_t bytes) noexcept;

    /// Writes to the peer's region, starting at `offset`. `ok` means the data is visible at the
    /// target. However it completes, `from` is yours again. Nothing more of this put is written at
    /// the target after completion, so it cannot overwrite a later put on another path. Exception:
    /// if the connection ended (`disconnected`, `unreachable`, `closed`), the target may still
    /// write data it had received until it notices.
    virtual posted post_put(peer_id, gather from, const remote_key&, std::uint64_t offset,
                            completion& on_done) noexcept = 0;
    /// Reads from the peer's region, starting at `offset`. However it completes, nothing more is
    /// written to `into` afterwards.
    virtual posted post_get(peer_id, scatter into, const remote_key&, std::uint64_t offset,
                            completion& on_done) noexcept = 0;

    /// Asks a pending operation to end early. It completes, in this call or a later progress(),
    /// with `canceled` or with its actual outcome. Does nothing if `op` has completed
    /// or is unknown. Precondition: `op` is pending, or has not been reused since.
    /// Data of a put that has not left is not sent. The put completes once the target has carried
    /// out or refused the data that did leave: one round trip behind what is in flight. If the
    /// target is stalled, this waits; close() the peer to end the wait. Sends already begun are
    /// finished; everything else completes at once.
    virtual void cancel(completion& op) noexcept = 0;

    /// Makes progress: runs at most `budget` completions and messages; returns how many ran. Never
    /// blocks.
    virtual std::size_t progress(std::size_t budget = 64) noexcept = 0;

    /// A descriptor that becomes readable when progress() has work, provided prepare_to_sleep()
    /// returned true. If a post returned `full`, it also becomes readable once there is room. Wait
    /// on it with poll or epoll; do not read it.
    virtual int wait_handle() const noexcept = 0;
    /// Arms the wait handle. False: work is pending, call progress() instead. The next progress()
    /// disarms it.
    virtual bool prepare_to_sleep() noexcept = 0;

    /// The clock that deadlines on this port use.
    virtual const clock& time() const noexcept { return clock::steady(); }
    /// For ports with can().driven: the network calls the driver when this port has work and when
    /// the driver's next timer is due. nullptr detaches. No effect on other ports.
    virtual void attach_driver(port_driver*) noexcept {}
    /// Tells a driven port that run_ready() has work that did not come from a port event, such as
    /// work handed over by another driver. No effect on other ports.
    virtual void driver_ready() noexcept {}
    /// Number of pending operations; for tests and shutdown.
    virtual std::size_t open_operations() const noexcept = 0;
    /// Any thread may call it while the port lives.
    virtual port_usage usage() const noexcept { return {}; }

private:
    friend class region;
    virtual void close_region(std::uint64_t id) noexcept = 0;
};

inline region::~region() {
    if (owner_ != nullptr) owner_->close_region(id_);
}

}  // namespace amalgam

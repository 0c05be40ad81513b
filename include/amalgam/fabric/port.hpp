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

struct identity;  // See identity.hpp.

/// How puts and gets move bytes.
enum class rma_mode : std::uint8_t {
    emulated,      ///< As messages, carried out by the target's progress().
    cross_memory,  ///< Copied between processes by the kernel; needs no progress() at the target.
    /// By a network device, which checks keys. The first transfers to a region go as messages,
    /// until the target's progress() has told the device's key; the others need none.
    one_sided
};

/// Who carries out fetch-and-add and compare-and-swap.
enum class atomic_mode : std::uint8_t {
    none,      ///< Nobody, nor notified puts: an older plug-in. They end with `unsupported`.
    emulated,  ///< The target's progress(), asked by a message.
    native     ///< On memory from allocate() the initiator, without the target; else as `emulated`.
};

/// What this port can do on this machine. Constant for the life of the port.
struct capabilities {
    std::string_view transport;    ///< "tcp"
    std::size_t inline_bytes = 0;  ///< Sends up to this are copied: never `pending` once connected.
    std::size_t max_message_bytes = 0;  ///< Longer sends complete with `too_large`.
    std::size_t eager_bytes = 0;        ///< Above this size a put or get beats a message.
    rma_mode rma = rma_mode::emulated;  ///< How puts and gets move bytes.
    /// Peers on this host can copy to and from allocate()d memory without the kernel.
    bool shares_blocks = false;
    bool listens = false;           ///< Peers can look up address().
    bool between_processes = true;  ///< Peers may be other processes.
    bool between_hosts = false;     ///< Peers may be on other hosts.
    /// A process killed while it sends breaks only its own connections.
    bool isolates_killed = true;
    bool driven = false;  ///< Runs in virtual time, see attach_driver(): no thread may poll it.
    // In what used to be padding, so that the size is as in version 2 of the plug-in interface.
    atomic_mode atomics = atomic_mode::none;  ///< Who carries out atomic operations.
};

/// What a port holds now, and how often it enforced a bound. See port_options for the bounds.
struct port_usage {
    std::uint64_t queued_bytes = 0;  ///< Messages not taken yet, and large ones still arriving.
    std::uint64_t pooled_bytes = 0;  ///< Free memory kept for reuse.
    std::uint64_t evicted = 0;       ///< Connections ended because a bound was exceeded.
};

/// Who carried out puts and gets, since the port was opened. shm:// does not count those that the
/// kernel or the initiator copies, which are nearly all.
struct transfer_counts {
    /// Of this port, by the library, the device or the kernel instead of in frames. A device needs
    /// neither the target's processor nor a copy; a library whose target is software (can().rma is
    /// `emulated`) may need both.
    std::uint64_t direct = 0;
    std::uint64_t direct_bytes = 0;  ///< What they moved.
    std::uint64_t served = 0;  ///< Of peers: frames of theirs that this port's progress() answered.
    /// Of direct_bytes: what went through memory of the port's own, and was copied. None over a
    /// device. 0 from plug-ins before version 5.
    std::uint64_t copied_bytes = 0;
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

/// One local end of a transport: posts messages, puts, gets and atomic operations to peers.
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
    /// In a child of fork(), an inherited port, its regions and blocks can only be destroyed, which
    /// leaves the parent's untouched.
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

    /// Sets the receiver of unexpected messages and of notices of puts. Without one (the default)
    /// they queue in order and none is lost. Peer-down notices queue too, up to max_queued_bytes of
    /// them, for peers that were looked up or that existed when the last sink was removed.
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
    /// write data it had received until it notices; and with rma_mode::one_sided, a device that has
    /// not let go of `from` by the silence limit may still read it.
    virtual posted post_put(peer_id, gather from, const remote_key&, std::uint64_t offset,
                            completion& on_done) noexcept = 0;
    /// Reads from the peer's region, starting at `offset`. However it completes, nothing more is
    /// written to `into` afterwards; with that same exception of a device.
    virtual posted post_get(peer_id, scatter into, const remote_key&, std::uint64_t offset,
                            completion& on_done) noexcept = 0;

    /// Asks a pending operation to end early. It completes, in this call or a later progress(),
    /// with `canceled` or with its actual outcome. Does nothing if `op` has completed
    /// or is unknown. Precondition: `op` is pending, or has not been reused since.
    /// Data of a put that has not left is not sent. The put completes once the target has carried
    /// out or refused the data that did leave: one round trip behind what is in flight. If the
    /// target is stalled, this waits; close() the peer to end the wait. Sends already begun are
    /// finished; everything else completes at once. An atomic operation that was canceled may have
    /// happened.
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

    // What follows came with version 3 of the plug-in interface. It stays behind close_region(), so
    // that all before it keeps its place in the table of virtual functions.
public:
    /// A put that tells the target. When all bytes are in the region, the target's sink hears of
    /// them, with `notice` (any 64 bits), by message_sink::on_put(): once, and in the order of
    /// posting. No message of the target's is needed. Elsewhere: RDMA write with immediate, remote
    /// CQ data, gaspi_write_notify.
    ///
    /// As post_put(), and more is known of its end: with `ok` the target was told or is about to
    /// be, in the progress() that took the last bytes. With `denied`, `canceled` or any other
    /// failure it never is, except if the connection ended, which leaves that open. One that was
    /// canceled too late ends with its actual outcome. An empty `from` tells of 0 bytes.
    /// Failure: as post_put(); `unsupported` if can().atomics is `none`.
    /// Cost:    that of the put, and 8 bytes more. Where peers copy directly (`cross_memory`,
    ///          shares_blocks), a message of 64 bytes and its answer: then the target must make
    ///          progress.
    virtual posted post_put_notify(peer_id, gather from, const remote_key&, std::uint64_t offset,
                                   std::uint64_t notice, completion& on_done) noexcept = 0;

    /// Adds `add` to the 64-bit number at `offset` in the peer's region, modulo 2^64, and writes
    /// what it was before to `*old` (null: not wanted). The completion's `bytes` is 8.
    ///
    /// The number is in the byte order of the target's machine. It needs a key with `read_write`.
    /// Atomic towards every other fetch_add and compare_swap on that number, from any peer by any
    /// port, and towards std::atomic_ref<std::uint64_t> of the process that owns the memory, all
    /// sequentially consistent. Not towards puts, gets and plain accesses. Not ordered with other
    /// operations that are pending.
    ///
    /// `old` is borrowed until the end; it is written before the completion runs, or before `done`
    /// is returned, and only on success.
    /// Failure: as post_get(). `denied` without read_write or where the 8 bytes are not all in the
    ///          region; `invalid` where their address at the target is not a multiple of 8, or two
    ///          segments share them. Then nothing has changed. With `canceled`, and if the
    ///          connection ended (`disconnected`, `unreachable`, `closed`), the operation may have
    ///          happened, or may yet: whoever must know reads the number.
    /// Cost:    `native` on memory from allocate(): no message and no system call, `done` at once.
    ///          Else a message of 56 bytes, answered by one of 8.
    virtual posted post_fetch_add(peer_id, const remote_key&, std::uint64_t offset,
                                  std::uint64_t add, std::uint64_t* old,
                                  completion& on_done) noexcept = 0;
    /// Replaces the number by `desired` if it is `expected`. `*old` is what it was before: equal to
    /// `expected` exactly if it was replaced. Otherwise as post_fetch_add(); 8 bytes more on the
    /// wire.
    virtual posted post_compare_swap(peer_id, const remote_key&, std::uint64_t offset,
                                     std::uint64_t expected, std::uint64_t desired,
                                     std::uint64_t* old, completion& on_done) noexcept = 0;

    /// Any thread may call it while the port lives.
    virtual transfer_counts transfers() const noexcept { return {}; }

    // With version 4:
    /// Who the peer is, as far as the transport knows: over shm:// the kernel's word, over tcp+tls
    /// the certificate. It stays the same while the connection is up. identity_kind::none if there
    /// is none yet or no more, for an unknown id, and where nobody proves anything.
    virtual identity who(peer_id) const;

    // With version 6:
    /// Who this port's credentials say that it is: what peers that connect from now on know by
    /// who(). identity_kind::none without credentials. Any thread may call it while the port lives.
    virtual identity self() const;
};

inline region::~region() {
    if (owner_ != nullptr) owner_->close_region(id_);
}

}  // namespace amalgam

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/fabric/shared_block.hpp>

namespace amalgam {

/// How put and get move bytes.
enum class rma_mode : std::uint8_t {
    emulated,     ///< As messages that the target's progress() carries out.
    cross_memory  ///< By the kernel from memory to memory; the target need not progress.
};

/// What a port can do here and now; constant while the port lives.
struct capabilities {
    std::string_view transport;    ///< "tcp"
    std::size_t inline_bytes = 0;  ///< A send up to this is copied: never `pending` once connected.
    std::size_t max_message_bytes = 0;  ///< Longer sends complete with `too_large`.
    std::size_t eager_bytes = 0;        ///< Above this, one-sided transfer beats a message.
    rma_mode rma = rma_mode::emulated;
    /// allocate() gives memory that peers on this host copy from and to without the kernel.
    bool shares_blocks = false;
    bool listens = false;  ///< Others can look address() up.
    bool between_processes = true;
    bool between_hosts = false;
    /// A process killed in the midst of sending harms no connection but its own.
    bool isolates_killed = true;
    bool driven = false;  ///< Runs in virtual time, by attach_driver(): no thread may poll it.
};

/// What a port holds now, and what it had to do to hold no more. See port_options for the bounds.
struct port_usage {
    std::uint64_t queued_bytes = 0;  ///< Messages nobody has taken, and large ones arriving.
    std::uint64_t pooled_bytes = 0;  ///< Free memory kept for the next ones.
    std::uint64_t evicted = 0;       ///< Connections ended since a bound was passed.
};

/// Runs whatever stands on a driven port, in virtual time. See port::attach_driver().
class port_driver {
public:
    /// Runs all that is ready now; returns how much that was. Never blocks.
    virtual std::size_t run_ready() noexcept = 0;
    /// When run_ready() has more to do if nothing arrives before.
    virtual std::optional<clock::time_point> next_timer() const noexcept = 0;

protected:
    ~port_driver() = default;
};

/// One local end of one way of moving bytes.
///
/// Threads: called by one thread at a time; needs no locks.
/// Failure: no function throws. Posted operations fail through their completion only, so
///          callers have one error path: an unknown or dead peer completes with `disconnected`
///          (`unreachable` if it never answered), a message too long with `too_large`, a key the
///          target refuses with `denied`. A dead peer completes everything within the silence
///          limit (5 s unless set), at once where the OS tells.
/// Cost:    no allocation, lock or system call of ours on the way of a small message, but for
///          those a socket needs.
class port {
public:
    /// Ends every connection. Each pending operation completes with `closed`, in here; what those
    /// completions post comes back `full`. The sink is not called any more.
    /// In a child of fork() the ports of its parent can be destroyed, and nothing else; that leaves
    /// the parent's as they are.
    /// Precondition: its regions are gone; not inside one of its own callbacks.
    virtual ~port() = default;
    port() = default;
    port(const port&) = delete;
    port& operator=(const port&) = delete;

    virtual const capabilities& can() const noexcept = 0;

    /// What others pass to lookup(); empty when the port does not listen.
    virtual std::string address() const = 0;
    /// 64 random bits that name this run of this port; never 0.
    virtual std::uint64_t incarnation() const noexcept = 0;
    /// One sentence each: what was chosen at opening, and why. For `amalgam info --explain`.
    virtual std::string explain() const = 0;

    /// Names a peer by its address and starts to reach it. Does not wait: whether anybody
    /// answers shows in the operations. The same address gives the same peer while it lives; after
    /// it went down, a new one.
    /// Failure: `invalid` or `unsupported` for an address this transport cannot mean.
    virtual result<peer_id> lookup(std::string_view address) noexcept = 0;
    /// The address a peer was looked up by, or came from. Empty for an unknown id.
    virtual std::string peer_address(peer_id) const = 0;
    /// Ends the connection; its operations complete with `closed`.
    virtual void close(peer_id) noexcept = 0;

    /// Where unexpected messages go. With none (the default) they wait, in order, unlost. So do
    /// notices that a peer is down, of peers that were looked up or were there when the last sink
    /// left, up to max_queued_bytes of them.
    virtual void set_sink(message_sink*) noexcept = 0;

    /// Sends an unexpected message: the peer needs nothing posted.
    virtual posted post_send(peer_id, std::uint64_t tag, gather, completion& on_done) noexcept = 0;
    /// Sends a message for a receive that the peer posts, before or after, for us and `tag`.
    virtual posted post_send_expected(peer_id, std::uint64_t tag, gather,
                                      completion& on_done) noexcept = 0;
    /// Receives one expected message. One that is longer than `into` completes with `too_large`
    /// and is gone. Receives of one tag match in the order of posting.
    virtual posted post_receive(peer_id, std::uint64_t tag, mutable_bytes into,
                                completion& on_done) noexcept = 0;

    /// Registers memory for put and get by peers who are told the key.
    /// Failure: `no_memory` at a limit.
    virtual result<region> open_region(scatter segments, access rights) noexcept = 0;
    result<region> open_region(mutable_bytes bytes, access rights) noexcept {
        return open_region(scatter(&bytes, 1), rights);
    }

    /// Memory for regions (or for anything) that peers reach as fast as this port can let them.
    /// A block that cannot be shared, as for want of descriptors, is private memory instead.
    /// Any thread may call it while the port lives. Failure: `invalid` for no bytes; `no_memory`.
    virtual result<shared_block> allocate(std::size_t bytes) noexcept;

    /// Writes into the peer's region, from `offset`. Completed with `ok` means visible at the
    /// target. However it completes, `from` is the caller's again; and unless the connection has
    /// ended (`disconnected`, `unreachable`, `closed`) nothing more of it is written there, so a
    /// later put by any other way is not overwritten. Of one whose connection has ended the target
    /// may still write what it had received, until it has noticed the end.
    virtual posted post_put(peer_id, gather from, const remote_key&, std::uint64_t offset,
                            completion& on_done) noexcept = 0;
    /// Reads out of the peer's region, from `offset`. However it completes, nothing more is written
    /// to `into` afterwards.
    virtual posted post_get(peer_id, scatter into, const remote_key&, std::uint64_t offset,
                            completion& on_done) noexcept = 0;

    /// Asks a pending operation to end early; it completes, here or in a later progress(), with
    /// `canceled` or with what had already happened. A completed or unknown one is left alone:
    /// precondition: `op` is pending or was never reused since.
    /// A put completes only when the target has carried out, or refused, what had left: one round
    /// trip behind what is on its way. A target that stands still is waited for; close() the peer
    /// to end the wait. What had not left is not sent. Everything else completes at once, but for
    /// sends that had begun, which are finished.
    virtual void cancel(completion& op) noexcept = 0;

    /// Moves things on; runs at most `budget` completions and messages; returns how many ran.
    /// Never blocks.
    virtual std::size_t progress(std::size_t budget = 64) noexcept = 0;

    /// A descriptor that becomes readable when progress() has something to do, provided
    /// prepare_to_sleep() returned true; after a post came back `full`, also when there is room
    /// again. Sleep on it with poll or epoll; do not read it.
    virtual int wait_handle() const noexcept = 0;
    /// Arms the wait handle. False: there is work already, call progress() instead.
    /// The next progress() disarms it.
    virtual bool prepare_to_sleep() noexcept = 0;

    /// The clock deadlines over this port go by.
    virtual const clock& time() const noexcept { return clock::steady(); }
    /// For ports with can().driven: the network calls the driver whenever this port has
    /// something to do and when its next timer is due. nullptr detaches. Others: does nothing.
    virtual void attach_driver(port_driver*) noexcept {}
    /// For drivers of such ports: run_ready() has something to do that no event of the port
    /// brought about, such as work that another driver's run handed over. Others: does nothing.
    virtual void driver_ready() noexcept {}
    /// Operations that were pending and have not completed; for tests and shut-down.
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

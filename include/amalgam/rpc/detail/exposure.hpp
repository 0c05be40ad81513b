#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/work_unit.hpp>

namespace amalgam::detail {

class engine_core;

/// Local memory that peers of an engine may read or write, by whichever port they are reached
/// through, and that the engine itself finds by a key, too.
///
/// The segments form one logical range, in order. The end of the engine ends every exposure:
/// nobody touches the bytes any more, and the object is an empty shell.
/// Owner:   the caller owns the bytes. The engine's inside must outlive it: see core_reference.
/// Threads: any; made, and destroyed, by who can wait: off the engine's stream both take a hop
///          to it. After the destructor no peer touches the bytes.
/// Failure: throws error{no_memory} at a limit of a port, error{closed} after the engine's end.
/// Cost:    a registration per port, and some five allocations: do it at set-up.
class exposure {
public:
    /// For all peers.
    exposure(engine_core& core, scatter segments, access rights);
    /// For this peer only, and so on its port only.
    exposure(engine_core& core, scatter segments, access rights, const peer& only);
    exposure(const exposure&) = delete;
    exposure& operator=(const exposure&) = delete;
    ~exposure() { close(); }

    std::uint64_t bytes() const noexcept { return own_key_.bytes; }
    access rights() const noexcept { return own_key_.rights; }
    const std::vector<mutable_bytes>& segments() const noexcept { return segments_; }
    /// What a peer that is reached through this port (or peer::self_port) may be told. One
    /// that was not asked for names nothing.
    const remote_key& key(std::size_t port) const noexcept;

    /// False once it was closed, or its engine has ended. Any thread.
    bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
    /// Ends it, as the destructor does: when it returns no peer touches the bytes. Again: nothing.
    void close() noexcept;
    /// Ends it without waiting: `then` runs once peers cannot touch the bytes, here or on the
    /// engine's stream, and may destroy it. From anywhere.
    void close(void (*then)(exposure&) noexcept) noexcept;

private:
    friend class exposure_table;
    struct errand : work_unit {
        errand(run_function what, exposure& mine) noexcept : work_unit(what), whose(mine) {}
        exposure& whose;
    };
    static void run_close(work_unit& self) noexcept;

    engine_core& core_;
    std::vector<mutable_bytes> segments_;
    std::vector<remote_key> keys_;  // By port.
    remote_key own_key_;
    errand close_;
    void (*then_)(exposure&) noexcept = nullptr;
    void* then_context_ = nullptr;

    // The stream's:
    std::vector<region> regions_;
    std::atomic<bool> open_{false};
};

}  // namespace amalgam::detail

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
class exposure_table;

/// Local memory that an engine's peers may read or write, over any port. The engine itself finds it
/// by key as well.
///
/// The segments form one logical range, in order. When the engine ends, so does every exposure: no
/// peer accesses the bytes any more, and the object is inert.
/// Owner:   the caller owns the bytes. The engine's core must outlive it: see core_reference.
/// Threads: any that can wait; off the engine's stream, construction and destruction take one hop
///          to it. After the destructor no peer accesses the bytes.
/// Failure: throws error{no_memory} at a limit of a port, error{closed} after the engine has ended.
/// Cost:    a registration per port, and about five allocations: do it at set-up.
class exposure {
public:
    /// For all peers.
    exposure(engine_core& core, scatter segments, access rights);
    /// For this peer only, hence only on its port.
    exposure(engine_core& core, scatter segments, access rights, const peer& only);
    exposure(const exposure&) = delete;
    exposure& operator=(const exposure&) = delete;
    ~exposure() { close(); }

    std::uint64_t bytes() const noexcept { return own_key_.bytes; }
    access rights() const noexcept { return own_key_.rights; }
    const std::vector<mutable_bytes>& segments() const noexcept { return segments_; }
    /// The remote key for peers reached through this port (or peer::self_port). Empty for a port
    /// the exposure does not cover.
    const remote_key& key(std::size_t port) const noexcept;

    /// Whether who is given a key may give it to others. Set before a key is given to anybody.
    bool shareable = false;

    /// False once closed, or once its engine has ended. Any thread.
    bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
    /// Like the destructor: on return no peer accesses the bytes. Idempotent.
    void close() noexcept;
    /// Closes without waiting: `then` runs once peers cannot access the bytes, here or on the
    /// engine's stream, and may destroy this. Any thread.
    void close(void (*then)(exposure&) noexcept) noexcept;

private:
    friend class exposure_table;
    struct posted_task : work_unit {
        posted_task(run_function what, exposure& mine) noexcept : work_unit(what), whose(mine) {}
        exposure& whose;
    };
    static void run_close(work_unit& self) noexcept;

    exposure_table& table_;
    std::vector<mutable_bytes> segments_;
    std::vector<remote_key> keys_;  // Indexed by port.
    remote_key own_key_;
    posted_task close_;
    void (*then_)(exposure&) noexcept = nullptr;
    void* then_context_ = nullptr;

    // The stream's:
    std::vector<region> regions_;
    std::atomic<bool> open_{false};
};

}  // namespace amalgam::detail

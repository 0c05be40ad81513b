#pragma once

#include <atomic>
#include <vector>

#include <amalgam/core/random.hpp>

#include "scheduling/pool.hpp"

/// A scheduler: a user's functions, or a predefined kind.
///
/// Owner: the user; if automatic, the stream or ULT that runs it.
struct ABT_sched_opaque {
    ABT_sched_def functions{};  ///< run null: predefined
    ABT_sched_predef kind = ABT_SCHED_BASIC;
    std::vector<ABT_pool> pools;
    std::vector<ABT_pool> order;  ///< The same, as a predefined one looks at them.
    void* data = nullptr;
    bool automatic = false;
    std::atomic<bool> finish_asked{false};  ///< Ends once its pools are done.
    std::atomic<bool> exit_asked{false};    ///< Ends as soon as it looks.
    /// Ends once its pools are done that this one does not have.
    std::atomic<const ABT_sched_opaque*> replaced_by{nullptr};
    ABT_xstream main_of = nullptr;
    bool in_pool = false;
    std::atomic<ABT_thread> thread{nullptr};  ///< Its ULT, while there is one.
    std::atomic<int> holders{0};              ///< See runtime::hold().
    amalgam::seeded_random random{1};

    bool predefined() const noexcept { return functions.run == nullptr; }
    bool used() const noexcept { return main_of != nullptr || in_pool; }
    bool has(ABT_pool pool) const noexcept;
    bool pools_done() const noexcept;
    bool has_to_exit() const noexcept;  ///< Whatever is in its pools.
    bool has_to_stop() const noexcept;
    /// For a predefined one: what it would run next, or null.
    ABT_thread_opaque* choose();
    /// The same, but only what goes before a ULT that yields into `last`. Not of ABT_SCHED_RANDWS.
    ABT_thread_opaque* choose_before(const ABT_pool_opaque* last);
};

namespace amalgam::argobots {

/// Throws std::bad_alloc or failure. Null pools: made here.
ABT_sched_opaque& create_sched(ABT_sched_predef kind, std::size_t pools, const ABT_pool* given,
                               ABT_sched_config config);
/// Waits until nobody holds it.
void free_sched(ABT_sched_opaque& which) noexcept;
/// The function of a scheduler's ULT.
void run_sched(void* which);

}  // namespace amalgam::argobots

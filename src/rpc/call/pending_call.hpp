#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/work_unit.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/call/extras.hpp"
#include "rpc/peers/outgoing.hpp"

namespace amalgam::detail {

struct pending_call;

/// In words that fit a call: of some 2^20 cycles, for 2^32 of them.
inline std::uint32_t coarse_cycles() noexcept {
    return static_cast<std::uint32_t>(cycles() >> 20);
}

struct call_timer : timer {
    using timer::timer;
    pending_call* call = nullptr;
};

/// A call as the engine handles it: the request while it is being sent, and the lists and timers
/// by which the call ends. Lives inside its call_record.
///
/// Threads: as call_record.
struct pending_call final : outgoing {
    pending_call(call_record& whose, const call_target& target) noexcept;

    /// Adds what only few calls have. Throws what an interceptor throws; error{no_memory}.
    void dress(const call_context* serving);
    /// Exposes rendezvous arguments again, through the port of the current path.
    void show_arguments();
    /// Ends a call that the engine's stream has not seen yet.
    void refuse(const failure& wrong) noexcept;

    /// Posted task: hands this call from another thread to the engine's stream.
    struct posted_task : work_unit {
        posted_task(run_function then, pending_call& whose) noexcept
            : work_unit(then), call(whose) {}
        pending_call& call;
    };
    static void on_sent(completion& self, status how, std::size_t bytes) noexcept;
    static void run_submit(work_unit& self) noexcept;
    static void run_cancel(work_unit& self) noexcept;
    /// To the peer, through the port of the current path.
    const remote_key& expose_arguments();

    call_record& record;
    const remote_procedure* what;
    peer_state* callee;  // While id is set.
    clock::time_point deadline = clock::time_point::max();
    std::unique_ptr<call_extras> extras;
    pending_call* previous_pausing;  // List of calls between two attempts, while `pausing`.
    pending_call* next_pausing;
    std::uint64_t id = 0;  // Slot and generation while a reply may come; else 0.
    std::uint16_t provider;
    bool naming = false;          // The request includes name and signature.
    bool xdr;                     // The arguments' encoding.
    bool checked = false;         // The request includes a checksum.
    bool canceled_early = false;  // Before submit().
    bool ended = false;           // The outcome is known; over() waits for the port to finish.
    bool pausing = false;         // Between two attempts.
    std::optional<posted_task> submit;  // Only if called from another thread,
    std::optional<posted_task> cancel;  // or canceled from one.
    std::optional<call_timer> timer;
    std::array<std::byte, 4> checksum;
    std::uint32_t began = 0;  // Of calls other than ordinary ones; see coarse_cycles().
};

template <typename Function>
void caller::for_each_pending(Function visit) const {
    for (const slot& each : slots_)
        if (each.call != nullptr) visit(std::as_const(*each.call));
    for (const pending_call* each = pausing_; each != nullptr; each = each->next_pausing)
        visit(*each);
}

inline pending_call& call_record::pending() noexcept {
    return *std::launder(reinterpret_cast<pending_call*>(pending_));
}
inline const pending_call& call_record::pending() const noexcept {
    return *std::launder(reinterpret_cast<const pending_call*>(pending_));
}

}  // namespace amalgam::detail

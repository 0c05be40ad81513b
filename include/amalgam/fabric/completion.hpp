#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/core/status.hpp>

namespace amalgam {

/// Result of posting an operation. Back-pressure is not a failure.
enum class [[nodiscard]] posted : std::uint8_t{
    done,     ///< Finished; the bytes are yours again; `on_done` will not run.
    pending,  ///< `on_done` will run exactly once, from progress() or cancel().
    full      ///< Nothing was taken. Call progress(), then post again.
};

/// The caller's record of one pending operation, borrowed by the port until it runs.
///
/// Derive from it, or make it the first member, to get back to your own state.
/// Owner:   the caller. Must not move while the operation is pending.
/// Threads: the port's; `run` is called inside progress() or cancel().
/// Failure: a pending completion runs exactly once, even if canceled or the peer dies.
/// Cost:    none of its own; the port keeps its state in `port_words`.
class completion {
public:
    /// `bytes` counts bytes received (receive, get) or sent (send, put), 8 for an atomic operation;
    /// 0 on failure.
    /// The function may post new operations and destroy the completion.
    using function = void (*)(completion& self, status what, std::size_t bytes) noexcept;

    explicit constexpr completion(function run) noexcept : run_(run) {}
    completion(const completion&) = delete;
    completion& operator=(const completion&) = delete;

    /// For ports: ends the operation. The completion may be destroyed by the time this returns.
    void finish(status what, std::size_t bytes) noexcept { run_(*this, what, bytes); }

    /// Used by the port while pending; meaningless otherwise.
    completion* port_next = nullptr;
    completion* port_previous = nullptr;  ///< As port_next.
    std::uintptr_t port_words[4] = {};    ///< What the port notes of the operation.

private:
    function run_;
};

}  // namespace amalgam

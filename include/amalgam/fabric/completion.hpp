#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/core/status.hpp>

namespace amalgam {

/// What posting an operation came to. Back-pressure is not failure.
enum class [[nodiscard]] posted : std::uint8_t{
    done,     ///< Finished; the bytes are yours again; `on_done` will not run.
    pending,  ///< `on_done` will run exactly once, from progress() or cancel().
    full      ///< Nothing was taken. Call progress(), then post again.
};

/// The caller's record of one pending operation, lent to the port until it ran.
///
/// Derive from it (or hold it as the first member) to find your own state again.
/// Owner:   the caller; must stay where it is while the operation is pending.
/// Threads: the port's; `run` is called inside progress() or cancel().
/// Failure: a pending completion runs exactly once, also when canceled and when the peer dies.
/// Cost:    none of its own; the port keeps what it needs in `port_words`.
class completion {
public:
    /// `bytes` is how many arrived (receive, get) or left (send, put); 0 on failure.
    /// May post new operations and destroy the completion.
    using function = void (*)(completion& self, status what, std::size_t bytes) noexcept;

    explicit constexpr completion(function run) noexcept : run_(run) {}
    completion(const completion&) = delete;
    completion& operator=(const completion&) = delete;

    /// For ports: ends the operation. The completion may be gone when this returns.
    void finish(status what, std::size_t bytes) noexcept { run_(*this, what, bytes); }

    /// The port's while pending; meaningless otherwise.
    completion* port_next = nullptr;
    completion* port_previous = nullptr;
    std::uintptr_t port_words[4] = {};

private:
    function run_;
};

}  // namespace amalgam

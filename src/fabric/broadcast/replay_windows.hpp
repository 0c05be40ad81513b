#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/fabric/identity.hpp>

namespace amalgam::detail {

/// Which packets of each sender have been received. A sender is a key, and a number of the run:
/// each process that uses the key counts its packets for itself.
///
/// What it forgets is too old to be taken again: nothing is forgotten before it was silent for
/// twice the window in which packets are fresh.
///
/// Threads: one at a time.
/// Failure: throws std::bad_alloc.
class replay_windows {
public:
    using time_point = std::chrono::system_clock::time_point;
    enum class outcome : std::uint8_t { fresh, repeated, crowded };

    explicit replay_windows(std::chrono::nanoseconds fresh, std::size_t most_keys = 4096,
                            std::size_t most_runs = 256) noexcept
        : forget_after_(2 * fresh), most_keys_(most_keys), most_runs_(most_runs) {}

    /// Notes that packet; `fresh` once for each. Numbers may arrive out of order within 64.
    outcome note(const key_fingerprint& key, std::uint64_t run, std::uint64_t number,
                 time_point now);
    std::size_t runs() const noexcept;

private:
    struct window {
        std::uint64_t highest = 0;
        std::uint64_t seen = 0;  // Bit i: highest - i.
        time_point heard{};
    };
    using runs_of_key = std::map<std::uint64_t, window>;

    void forget_silent(runs_of_key& of, time_point now);
    void forget_silent(time_point now);

    const std::chrono::nanoseconds forget_after_;
    const std::size_t most_keys_;
    const std::size_t most_runs_;
    std::map<key_fingerprint, runs_of_key> all_;
};

}  // namespace amalgam::detail

#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include <amalgam/tasks/event.hpp>

namespace amalgam::detail {

/// When a user's function runs while its engine stops.
enum class stop_phase : std::uint8_t {
    stopping,  ///< Before anything ends.
    stopped    ///< After the last call, before stop() returns.
};

/// Functions that run once when an engine stops: the last added first.
///
/// Threads: any.
class stop_callbacks {
public:
    /// Its number, for remove(). Failure: throws error{closed} if that phase is over.
    std::uint64_t add(stop_phase when, std::function<void()> function);
    /// False: it has run, runs, or never was there.
    bool remove(std::uint64_t number) noexcept;

    /// Runs those of `stopping`. False: another caller does so now.
    bool run_stopping() noexcept;
    /// Waits for that caller.
    void wait_until_told();
    /// Runs those of `stopped`. Called once.
    void run_stopped() noexcept;
    /// Whether the caller is inside one of them.
    bool running_here() const noexcept;

private:
    struct entry {
        std::uint64_t number;
        stop_phase when;
        std::function<void()> run;
    };
    void run_all(stop_phase when, std::string_view what) noexcept;
    /// The next to run; empty: there is none, and the phase is over.
    std::function<void()> take(stop_phase when) noexcept;

    mutable std::mutex lock_;
    std::vector<entry> all_;
    std::uint64_t last_ = 0;
    bool over_[2] = {false, false};
    bool begun_ = false;
    const void* runner_ = nullptr;  // The ULT or thread that runs them.
    event told_;
};

}  // namespace amalgam::detail

#pragma once

#include <amalgam/core/log.hpp>

namespace amalgam {

/// Logs to default_logger(), but of the lines of one component and message only a few a second: for
/// whatever a stranger can bring about. The first line after a pause says how many were left out,
/// by the field "and_more".
///     limited_log(log_level::warn, "tcp", "a stranger was turned away", {{"from", uri}});
///
/// `message` must be a literal: lines are counted by its address.
/// Threads: any.
/// Cost:    below the level as log(); else a lock, and a table that never grows past a fixed size.
void limited_log(log_level level, std::string_view component, std::string_view message,
                 log_fields fields = {}) noexcept;

namespace detail {

/// Decides which lines of a kind are written: `burst` at once, then one for each `interval`.
class log_limit {
public:
    static constexpr std::uint64_t burst = 10;
    static constexpr std::chrono::seconds interval{1};

    /// Whether a line may be written at `now`; if so, `more` says how many were not since the last.
    bool admits(std::chrono::steady_clock::time_point now, std::uint64_t& more) noexcept;

private:
    std::chrono::steady_clock::time_point last_{};
    std::uint64_t left_ = burst;
    std::uint64_t held_back_ = 0;
};

}  // namespace detail
}  // namespace amalgam

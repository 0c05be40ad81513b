#pragma once

#include <amalgam/core/log.hpp>

namespace amalgam {

/// Logs to default_logger(), but only a few lines per second and message. Use it for anything an
/// unknown peer can trigger. The first line after a gap gives the number of suppressed lines in the
/// field "and_more".
///     limited_log(log_level::warn, "tcp", "a stranger was turned away", {{"from", uri}});
///
/// `message` must be a literal: lines are counted by its address.
/// Threads: any.
/// Cost:    below the log level, as log(); otherwise a lock and a table of fixed size.
void limited_log(log_level level, std::string_view component, std::string_view message,
                 log_fields fields = {}) noexcept;

namespace detail {

/// Rate limit for one message: `burst` lines at once, then one per `interval`.
class log_limit {
public:
    static constexpr std::uint64_t burst = 10;
    static constexpr std::chrono::seconds interval{1};

    /// Whether a line may be written at `now`. If so, `more` is the number suppressed since the
    /// last.
    bool admits(std::chrono::steady_clock::time_point now, std::uint64_t& more) noexcept;

private:
    std::chrono::steady_clock::time_point last_{};
    std::uint64_t left_ = burst;
    std::uint64_t held_back_ = 0;
};

}  // namespace detail
}  // namespace amalgam

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <type_traits>
#include <utility>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/limited_log.hpp>

namespace amalgam {
namespace detail {

bool log_limit::admits(std::chrono::steady_clock::time_point now, std::uint64_t& more) noexcept {
    const auto earned = static_cast<std::uint64_t>((now - last_) / interval);
    if (earned > 0) {
        left_ = std::min(burst, left_ + earned);
        last_ = now;
    }
    if (left_ == 0) {
        ++held_back_;
        return false;
    }
    --left_;
    more = std::exchange(held_back_, 0);
    return true;
}

namespace {

/// One limit per message while there is room; further messages share the last.
struct limits {
    struct entry {
        const char* message = nullptr;
        log_limit limit;
    };
    std::mutex lock;
    std::array<entry, 64> all;

    log_limit& of(const char* message) noexcept {
        for (entry& one : all) {
            if (one.message == nullptr) one.message = message;
            if (one.message == message) return one.limit;
        }
        return all.back().limit;
    }
};

// Needs no memory, and is never destroyed. No local static: see default_logger().
constinit limits process_limits;
static_assert(std::is_trivially_destructible_v<limits>);

constinit fork_handlers limit_handlers([] { process_limits.lock.lock(); },
                                       [] { process_limits.lock.unlock(); },
                                       [] { process_limits.lock.unlock(); });
[[maybe_unused]] const bool limits_are_watched = limit_handlers.watch();  // As the logger is.

}  // namespace
}  // namespace detail

void limited_log(log_level level, std::string_view component, std::string_view message,
                 log_fields fields) noexcept try {
    if (!default_logger().enabled(level, component)) return;
    std::uint64_t more = 0;
    {
        detail::limits& all = detail::process_limits;
        std::lock_guard hold(all.lock);
        if (!all.of(message.data()).admits(std::chrono::steady_clock::now(), more)) return;
    }
    if (more == 0) return log(level, component, message, fields);
    default_logger().log_with(level, component, message, fields, {"and_more", more});
} catch (...) {
    // As in the logger: a line that cannot be written is dropped.
}

}  // namespace amalgam

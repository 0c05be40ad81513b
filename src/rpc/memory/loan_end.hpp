#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/tasks/event.hpp>

namespace amalgam::detail {

/// How the loan of a value ended that its sender waits for. The first end counts.
///
/// Threads: any.
class loan_end {
public:
    enum class how : std::uint8_t {
        open,
        released,  ///< The receiver is done with it.
        dropped,   ///< It was not sent, or the receiver is gone.
        stopped    ///< The sender shall not wait.
    };
    void set(how what) noexcept {
        how none = how::open;
        how_.compare_exchange_strong(none, what, std::memory_order_relaxed);
        set_.set();
    }
    void wait() { set_.wait(); }
    bool is_release() const noexcept {
        return how_.load(std::memory_order_relaxed) == how::released;
    }

private:
    std::atomic<how> how_{how::open};
    event set_;
};

}  // namespace amalgam::detail

#include <algorithm>
#include <atomic>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/wait_any.hpp>

namespace amalgam {

namespace detail {

namespace {

/// One wait for several futures. What is attached to them is in `nodes`.
class any_wait {
public:
    struct node : continuation {
        node() : continuation{&on_complete} {}
        static void on_complete(continuation& self) noexcept {
            static_cast<node&>(self).whole->one_is_ready();
        }
        any_wait* whole = nullptr;
    };

    explicit any_wait(std::span<node> nodes) : nodes_(nodes) {
        first_.allow_cancel();
        first_.waits_for("one of several futures");
    }
    any_wait(const any_wait&) = delete;
    any_wait& operator=(const any_wait&) = delete;

    /// False: one is ready already.
    bool attach(std::span<const any_future> futures) {
        for (const any_future& each : futures) {
            node& mine = nodes_[attached_];
            mine.whole = this;
            if (!each.state().attach(mine)) return false;
            ++attached_;
        }
        return true;
    }
    bool park_until(std::chrono::steady_clock::time_point deadline) noexcept {
        return first_.park_until(deadline);
    }
    /// Afterwards no future refers to this.
    void detach(std::span<const any_future> futures) noexcept {
        int taken = 0;
        for (std::size_t i = 0; i < attached_; ++i)
            taken += futures[i].state().detach(nodes_[i]) ? 0 : 1;
        // Those were taken by complete(), on other threads, which may not be through with them.
        if (taken != 0 && balance_.fetch_add(taken, std::memory_order_acq_rel) + taken != 0) {
            last_.park();
        }
    }

private:
    void one_is_ready() noexcept {
        if (!any_ready_.exchange(true, std::memory_order_relaxed)) first_.unpark();
        // The last access, unless detach() already waits for this one.
        if (balance_.fetch_sub(1, std::memory_order_acq_rel) == 1) last_.unpark();
    }

    std::span<node> nodes_;
    std::size_t attached_ = 0;
    waiter first_;
    waiter last_;
    std::atomic<bool> any_ready_{false};
    std::atomic<int> balance_{0};  // Taken, as detach() counts, minus those that are through.
};

/// False: the deadline passed, or the ULT is canceled.
bool wait_with(std::span<any_wait::node> nodes, std::span<const any_future> futures,
               std::chrono::steady_clock::time_point deadline) {
    any_wait wait(nodes);
    bool ready = true;
    try {
        if (wait.attach(futures)) ready = wait.park_until(deadline);
    } catch (...) {
        wait.detach(futures);
        throw;
    }
    wait.detach(futures);
    return ready;
}

}  // namespace

}  // namespace detail

std::optional<std::size_t> test_any(std::span<const any_future> futures) noexcept {
    const auto ready = std::find_if(futures.begin(), futures.end(),
                                    [](const any_future& each) { return each.ready(); });
    if (ready == futures.end()) return std::nullopt;
    return static_cast<std::size_t>(ready - futures.begin());
}

bool test_all(std::span<const any_future> futures) noexcept {
    return std::all_of(futures.begin(), futures.end(),
                       [](const any_future& each) { return each.ready(); });
}

std::optional<std::size_t> wait_any_until(std::span<const any_future> futures,
                                          std::chrono::steady_clock::time_point deadline) {
    if (futures.empty()) {
        throw error(errc::invalid, "wait_any() was given no future, so it would wait forever");
    }
    if (const auto ready = test_any(futures)) return ready;
    constexpr std::size_t few = 16;
    bool in_time = false;
    if (futures.size() <= few) {
        detail::any_wait::node nodes[few];
        in_time = detail::wait_with(nodes, futures, deadline);
    } else {
        std::vector<detail::any_wait::node> nodes(futures.size());
        in_time = detail::wait_with(nodes, futures, deadline);
    }
    const auto ready = test_any(futures);
    if (!ready && !in_time) detail::throw_if_canceled();
    return ready;
}

std::size_t wait_any(std::span<const any_future> futures) {
    return wait_any_until(futures, std::chrono::steady_clock::time_point::max()).value();
}

bool wait_all_until(std::span<const any_future> futures,
                    std::chrono::steady_clock::time_point deadline) {
    // One after the other takes as long as the slowest.
    return std::all_of(futures.begin(), futures.end(), [deadline](const any_future& each) {
        return each.state().wait_until(deadline);
    });
}

void wait_all(std::span<const any_future> futures) {
    wait_all_until(futures, std::chrono::steady_clock::time_point::max());
}

}  // namespace amalgam

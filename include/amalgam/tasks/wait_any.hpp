#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/extension/deadline.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam {

/// Refers to a future of any type, for the functions below.
///
///     future<int> a = …;  future<std::string> b = …;
///     if (wait_any(a, b) == 0) use(a.get());
///
/// Owner:   the future must outlive it, and stay where its state is: neither moved nor got.
/// Threads: as the future: one at a time.
/// Failure: throws error{invalid} for an empty future.
class any_future {
public:
    template <typename T>
    any_future(const future<T>& what) : state_(&what.checked()) {}

    /// Whether the future has its value or failure.
    bool ready() const noexcept { return state_->ready(); }

    // For the library.
    detail::future_core& state() const noexcept { return *state_; }

private:
    detail::future_core* state_;
};

/// Index of the first that is ready; none if none is. Never waits.
std::optional<std::size_t> test_any(std::span<const any_future> futures) noexcept;
/// Whether all are ready. Never waits.
bool test_all(std::span<const any_future> futures) noexcept;

/// Waits until one is ready, with a value or a failure, and returns its index: the lowest, if there
/// are several. Parks the ULT or thread; the futures can be waited for again afterwards.
///
/// Failure: throws error{invalid} for an empty list, if somebody else waits for one of them (or it
///          is listed twice), and where waiting is impossible; error{canceled} as other waits.
/// Cost:    two atomic exchanges per future that is not ready; no allocation up to 16 futures, one
///          beyond. Nothing is polled.
std::size_t wait_any(std::span<const any_future> futures);
/// The same until `deadline`, on the clock of the caller's stream. None: it passed first.
std::optional<std::size_t> wait_any_until(std::span<const any_future> futures,
                                          std::chrono::steady_clock::time_point deadline);

/// Waits until all are ready. Failures among them are not thrown: get() does that.
/// Failure: as wait_any(), but an empty list is ready, and a future may be listed twice.
void wait_all(std::span<const any_future> futures);
/// The same until `deadline`. False: it passed first.
bool wait_all_until(std::span<const any_future> futures,
                    std::chrono::steady_clock::time_point deadline);

/// References to all futures of a range, such as std::vector<future<T>>.
template <typename Range>
std::vector<any_future> any_futures(const Range& futures) {
    return {futures.begin(), futures.end()};
}

namespace detail {
template <typename... T>
using future_list = std::array<any_future, sizeof...(T)>;
}

// The same for futures one by one, of any types.
template <typename... T>
requires(sizeof...(T) != 0) std::optional<std::size_t> test_any(const future<T>&... each) {
    return test_any(std::span<const any_future>(detail::future_list<T...>{each...}));
}
template <typename... T>
requires(sizeof...(T) != 0) bool test_all(const future<T>&... each) {
    return test_all(std::span<const any_future>(detail::future_list<T...>{each...}));
}
template <typename... T>
requires(sizeof...(T) != 0) std::size_t wait_any(const future<T>&... each) {
    return wait_any(std::span<const any_future>(detail::future_list<T...>{each...}));
}
template <typename... T>
requires(sizeof...(T) != 0) void wait_all(const future<T>&... each) {
    wait_all(std::span<const any_future>(detail::future_list<T...>{each...}));
}

/// Within a time instead of until a deadline.
template <typename Rep, typename Period>
std::optional<std::size_t> wait_any_for(std::span<const any_future> futures,
                                        std::chrono::duration<Rep, Period> time) {
    return wait_any_until(futures, detail::deadline_after(time));
}
template <typename Rep, typename Period>
bool wait_all_for(std::span<const any_future> futures, std::chrono::duration<Rep, Period> time) {
    return wait_all_until(futures, detail::deadline_after(time));
}

}  // namespace amalgam

#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>

namespace amalgam {

/// A number that many threads add to, on its own cache line.
///
/// Threads: any. Only the number itself is atomic; it orders no other memory.
/// Cost:    one relaxed atomic add.
class alignas(64) counter {
public:
    void add(std::uint64_t by = 1) noexcept { value_.fetch_add(by, std::memory_order_relaxed); }
    void subtract(std::uint64_t by = 1) noexcept {
        value_.fetch_sub(by, std::memory_order_relaxed);
    }
    std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

/// A number that one thread at a time changes while any thread reads it. Cost: a plain load, add
/// and store. Embed it in the object that counts.
class owned_counter {
public:
    void add(std::uint64_t by = 1) noexcept { set(value() + by); }
    void subtract(std::uint64_t by = 1) noexcept { set(value() - by); }
    void set(std::uint64_t to) noexcept { value_.store(to, std::memory_order_relaxed); }
    std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

/// A named number in a snapshot.
struct counter_value {
    std::string name;         ///< "rpc.calls"
    std::uint64_t value = 0;  ///< When the snapshot was taken.
    friend bool operator==(const counter_value&, const counter_value&) = default;
};

/// The counters of one engine, port or program, by name ("rpc.calls"). Passed to whatever
/// counts; there is no global set.
///
/// Owner:   owns its counters; a reference from get() is valid while the set lives.
/// Threads: all members may run concurrently.
/// Cost:    get() and snapshot() lock: look up a counter once, then add to it.
class counter_set {
public:
    counter_set();
    counter_set(const counter_set&) = delete;
    counter_set& operator=(const counter_set&) = delete;
    ~counter_set();

    /// The counter with that name; created at 0 if new.
    counter& get(std::string_view name);

    class watch;
    /// Adds a number that `read` computes on demand, until the returned watch ends. `read` runs
    /// under the set's lock, on the thread that takes the snapshot, so it must not call the set.
    /// Numbers with the same name are summed.
    [[nodiscard]] watch expose(std::string name, std::function<std::uint64_t()> read);

    /// All numbers, sorted by name.
    std::vector<counter_value> snapshot() const;

private:
    struct state;
    std::shared_ptr<state> state_;  // Shared with watches, which may outlive the set.
};

/// Keeps an exposed number in its set. May outlive the set.
class counter_set::watch {
public:
    watch() noexcept = default;
    watch(watch&&) noexcept = default;
    watch& operator=(watch&& other) noexcept;
    ~watch() { reset(); }

    /// Removes the number from the set. Once this returns, `read` is not running and will not run
    /// again.
    void reset() noexcept;

private:
    friend class counter_set;
    watch(std::weak_ptr<state> set, std::uint64_t id) : set_(std::move(set)), id_(id) {}

    std::weak_ptr<state> set_;
    std::uint64_t id_ = 0;
};

/// One "name value" per line.
std::string to_text(const std::vector<counter_value>& values);

/// {"name": value, …} on one line.
std::string to_json(const std::vector<counter_value>& values);

}  // namespace amalgam

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace amalgam {

/// A number that many threads add to. On its own cache line.
///
/// Threads: any. Orders nothing: only the number itself is atomic.
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

/// A number that one thread at a time adds to while any thread reads.
/// Cost: a plain load, add and store. Lives inside the object that counts.
class owned_counter {
public:
    void add(std::uint64_t by = 1) noexcept { set(value() + by); }
    void subtract(std::uint64_t by = 1) noexcept { set(value() - by); }
    void set(std::uint64_t to) noexcept { value_.store(to, std::memory_order_relaxed); }
    std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

/// One named number at the time of a snapshot.
struct counter_value {
    std::string name;
    std::uint64_t value = 0;
    friend bool operator==(const counter_value&, const counter_value&) = default;
};

/// The counters of one engine, port or program, by name ("shm.messages_sent").
/// Handed to whoever counts; there is no global one.
///
/// Owner:   owns its counters; a reference from get() is valid as long as the set.
/// Threads: all members may run concurrently.
/// Cost:    get() and snapshot() take a lock: look a counter up once, then add to it.
class counter_set {
public:
    counter_set();
    counter_set(const counter_set&) = delete;
    counter_set& operator=(const counter_set&) = delete;
    ~counter_set();

    /// The counter of that name, created at 0 when new.
    counter& get(std::string_view name);

    class watch;
    /// Adds a number that is read on demand, until the returned watch ends. `read` runs under
    /// the set's lock, from whichever thread takes a snapshot: it must not call the set.
    /// Two of one name are added up.
    [[nodiscard]] watch expose(std::string name, std::function<std::uint64_t()> read);

    /// All numbers, sorted by name.
    std::vector<counter_value> snapshot() const;

private:
    struct state;
    std::shared_ptr<state> state_;  // Shared with watches, which may outlive the set.
};

/// Keeps an exposed number in its set; may outlive the set.
class counter_set::watch {
public:
    watch() noexcept = default;
    watch(watch&&) noexcept = default;
    watch& operator=(watch&& other) noexcept;
    ~watch() { reset(); }

    /// Takes the number out of the set. When it returns, `read` is not running and never will.
    void reset() noexcept;

private:
    friend class counter_set;
    watch(std::weak_ptr<state> set, std::uint64_t id) : set_(std::move(set)), id_(id) {}

    std::weak_ptr<state> set_;
    std::uint64_t id_ = 0;
};

/// One "name value" a line.
std::string to_text(const std::vector<counter_value>& values);

/// {"name": value, …} on one line.
std::string to_json(const std::vector<counter_value>& values);

}  // namespace amalgam

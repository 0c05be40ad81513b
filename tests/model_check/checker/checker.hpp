#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// An exhaustive check of small programs of 2 to 4 threads under the memory model of C++20. See the
/// README.md of tests/model_check for what it covers and what not.
namespace amalgam::model {

/// What a thread does to an atomic. `change` reads and writes: an exchange, an addition, a
/// compare-exchange.
enum class act : unsigned char { load, store, change };

/// One execution of a program, while it is set up.
class execution {
public:
    execution() = default;
    execution(const execution&) = delete;

    /// Constructs what the threads share. It lives until the execution has ended, and is destroyed
    /// only if all threads came to their end.
    template <typename T, typename... Args>
    T& make(Args&&... args) {
        T* const made = new T(std::forward<Args>(args)...);
        ends_.push_back([made] { delete made; });
        return *made;
    }
    void thread(std::function<void()> body) { threads_.push_back(std::move(body)); }
    /// Runs once all threads have ended, and sees all that they did.
    void afterwards(std::function<void()> check) { checks_.push_back(std::move(check)); }
    /// A fault to be found: at the atomic at `at`, that act has only the order `to`.
    template <typename T>
    void weaken(const std::atomic<T>& at, act what, std::memory_order to) {
        weaken_at(&at, what, to);
    }
    void weaken_at(const void* at, act what, std::memory_order to) {
        weaker_.push_back({at, what, to});
    }
    /// What that atomic is called in a trace.
    void name(const void* at, const char* what) { names_.emplace_back(at, what); }

private:
    friend class explorer;
    struct weaker {
        const void* at;
        act what;
        std::memory_order to;
    };
    std::vector<std::function<void()>> threads_, checks_, ends_;
    std::vector<weaker> weaker_;
    std::vector<std::pair<const void*, const char*>> names_;
};

struct options {
    std::size_t most = 300'000;  ///< Executions; more than that is not a complete check.
    bool reduce = true;          ///< Leave out executions that equal others.
};

struct result {
    std::size_t executions = 0;  ///< To their end.
    std::size_t cut = 0;         ///< Left halfway, as they would have repeated others.
    bool complete = false;       ///< Every execution was seen, and none failed.
    std::string failure;         ///< What went wrong in one of them; empty: nothing.
    std::string trace;           ///< What each thread did in that one, in order.
};

/// Runs the program that `build` sets up in every way that the model allows, until one fails.
/// `build` is called for each execution, and must do the same each time.
///
/// Threads: one at a time; the threads of the program are fibers of the caller.
/// Failure: an execution fails if require() does, if two threads race for plain memory, if memory
///          is used after it was freed, or if all threads wait for ever.
result explore(const std::function<void(execution&)>& build, options how = {});

/// Fails the execution unless `holds`.
void require(bool holds, const char* otherwise);
/// Called in a loop that waits for what other threads store: goes on once they stored to something
/// that this thread read since it last called this, or if nobody else can go on.
void yield();
/// As membarrier(2): a full barrier in every thread.
void barrier_in_all();

/// A descriptor that wakes one sleeper. Orders nothing, though the kernel would.
class wake_up {
public:
    void strike();
    /// Waits for a strike() that no wait() has consumed.
    void wait();

private:
    friend class explorer;
    int count_ = 0;
};

}  // namespace amalgam::model

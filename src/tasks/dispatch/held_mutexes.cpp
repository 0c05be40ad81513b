// Only in builds with AMALGAM_CHECK_HELD_MUTEXES. Interposes the C library's lock and unlock
// functions to count what each thread holds.

#include "tasks/dispatch/held_mutexes.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unwind.h>

#include <amalgam/core/log.hpp>

#include "tasks/dispatch/ult_core.hpp"

namespace amalgam::detail {

namespace {

// initial-exec: locks are taken before anything can be allocated.
[[gnu::tls_model("initial-exec")]] constinit thread_local int held = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local bool searching = false;

// Not inlined, see dispatcher.cpp.
[[gnu::noinline]] int& held_here() noexcept {
    asm volatile("");
    return held;
}

/// The C library's function that ours replaces.
template <typename... Arguments>
class real_function {
public:
    constexpr explicit real_function(const char* name) noexcept : name_(name) {}

    int operator()(Arguments... arguments) noexcept {
        auto* function = found_.load(std::memory_order_relaxed);
        if (function == nullptr) {
            // dlsym() itself locks: then the process has just begun and has no second thread.
            if (std::exchange(searching, true)) return 0;
            function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(RTLD_NEXT, name_));
            searching = false;
            if (function == nullptr) return ENOSYS;
            found_.store(function, std::memory_order_relaxed);
        }
        return function(arguments...);
    }

private:
    const char* const name_;
    std::atomic<int (*)(Arguments...)> found_{nullptr};
};

int after_lock(int result) noexcept {
    if (result == 0 || result == EOWNERDEAD) ++held_here();
    return result;
}

// Not below zero: locks taken by another ULT or thread are not counted here.
int after_unlock(int result) noexcept {
    if (int& count = held_here(); result == 0 && count > 0) --count;
    return result;
}

/// The innermost return addresses of the caller.
struct call_path {
    std::array<std::uintptr_t, 16> addresses{};
    std::size_t count = 0;
    std::size_t to_skip = 0;

    [[gnu::noinline]] void fill(std::size_t skip) noexcept {
        to_skip = skip + 1;  // fill() itself
        ::_Unwind_Backtrace(
            [](::_Unwind_Context* frame, void* self) {
                auto& path = *static_cast<call_path*>(self);
                const std::uintptr_t at = ::_Unwind_GetIP(frame);
                if (at == 0 || path.count == path.addresses.size()) return _URC_END_OF_STACK;
                if (path.to_skip == 0) {
                    path.addresses[path.count++] = at;
                } else {
                    --path.to_skip;
                }
                return _URC_NO_REASON;
            },
            this);
    }

    std::uint64_t hash() const noexcept {
        std::uint64_t mixed = 1469598103934665603u;  // FNV-1a, a word at a time
        for (const std::uintptr_t each : addresses)
            mixed = (mixed ^ each) * 1099511628211u;
        return mixed == 0 ? 1 : mixed;
    }

    /// "function (file+0x12) < caller (file+0x34) < …", usable with addr2line.
    std::string text() const {
        std::string all;
        for (const std::uintptr_t each : std::span(addresses).first(count)) {
            if (!all.empty()) all += " < ";
            Dl_info found{};
            if (::dladdr(reinterpret_cast<void*>(each), &found) == 0 ||
                found.dli_fname == nullptr) {
                all += fmt::format("{:#x}", each);
                continue;
            }
            const std::string file = found.dli_fname;
            const auto offset = each - reinterpret_cast<std::uintptr_t>(found.dli_fbase);
            const auto at = fmt::format("{}+{:#x}", file.substr(file.rfind('/') + 1), offset);
            if (found.dli_sname == nullptr) {
                all += at;
                continue;
            }
            int failed = 0;
            const std::unique_ptr<char, void (*)(void*)> readable(
                abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &failed), std::free);
            all += fmt::format("{} ({})", readable ? readable.get() : found.dli_sname, at);
        }
        return all;
    }
};

/// Places already reported. Once full, nothing more is reported.
constinit std::array<std::atomic<std::uint64_t>, 256> told{};

bool first_time(std::uint64_t hash) noexcept {
    for (std::size_t i = 0; i < told.size(); ++i) {
        std::atomic<std::uint64_t>& slot = told[(hash + i) % told.size()];
        std::uint64_t found = 0;
        if (slot.compare_exchange_strong(found, hash, std::memory_order_relaxed)) return true;
        if (found == hash) return false;
    }
    return false;
}

[[gnu::noinline]] void report(const ult_core& who, const char* how, int count) noexcept try {
    call_path path;
    path.fill(2);  // report() and its caller
    if (!first_time(path.hash())) return;
    log(log_level::error, "tasks",
        "a ULT leaves its stream while it holds a system mutex, so the next ULT to lock it blocks "
        "a whole stream: unlock it first, or use an amalgam::mutex",
        {{"ult", who.name[0] != '\0' ? who.name.data() : "unnamed"},
         {"to", how},
         {"held", count},
         {"where", path.text()}});
} catch (const std::exception&) {
    // Out of memory for the report.
}

}  // namespace

held_mutexes_aside::held_mutexes_aside() noexcept : count_(std::exchange(held_here(), 0)) {}

held_mutexes_aside::held_mutexes_aside(const ult_core& who, const char* how) noexcept
    : held_mutexes_aside() {
    if (count_ != 0) report(who, how, count_);
}

held_mutexes_aside::~held_mutexes_aside() {
    held_here() = count_;
}

void check_held_mutexes_at_end(const ult_core& who) noexcept {
    if (const int count = std::exchange(held_here(), 0); count != 0) report(who, "end", count);
}

namespace {
using mutex_type = pthread_mutex_t*;
using rwlock_type = pthread_rwlock_t*;
using time_type = const timespec*;

constinit real_function<mutex_type> real_mutex_lock("pthread_mutex_lock");
constinit real_function<mutex_type> real_mutex_trylock("pthread_mutex_trylock");
constinit real_function<mutex_type, time_type> real_mutex_timedlock("pthread_mutex_timedlock");
constinit real_function<mutex_type, clockid_t, time_type> real_mutex_clocklock(
    "pthread_mutex_clocklock");
constinit real_function<mutex_type> real_mutex_unlock("pthread_mutex_unlock");

constinit real_function<rwlock_type> real_rdlock("pthread_rwlock_rdlock");
constinit real_function<rwlock_type> real_tryrdlock("pthread_rwlock_tryrdlock");
constinit real_function<rwlock_type, time_type> real_timedrdlock("pthread_rwlock_timedrdlock");
constinit real_function<rwlock_type, clockid_t, time_type> real_clockrdlock(
    "pthread_rwlock_clockrdlock");
constinit real_function<rwlock_type> real_wrlock("pthread_rwlock_wrlock");
constinit real_function<rwlock_type> real_trywrlock("pthread_rwlock_trywrlock");
constinit real_function<rwlock_type, time_type> real_timedwrlock("pthread_rwlock_timedwrlock");
constinit real_function<rwlock_type, clockid_t, time_type> real_clockwrlock(
    "pthread_rwlock_clockwrlock");
constinit real_function<rwlock_type> real_rwunlock("pthread_rwlock_unlock");
}  // namespace

// Without pthread_cond_wait(): inside the C library it unlocks and relocks without these functions,
// so the count is correct again when it returns.
extern "C" {

int pthread_mutex_lock(mutex_type which) noexcept {
    return after_lock(real_mutex_lock(which));
}
int pthread_mutex_trylock(mutex_type which) noexcept {
    return after_lock(real_mutex_trylock(which));
}
int pthread_mutex_timedlock(mutex_type which, time_type until) noexcept {
    return after_lock(real_mutex_timedlock(which, until));
}
int pthread_mutex_clocklock(mutex_type which, clockid_t clock, time_type until) noexcept {
    return after_lock(real_mutex_clocklock(which, clock, until));
}
int pthread_mutex_unlock(mutex_type which) noexcept {
    return after_unlock(real_mutex_unlock(which));
}

int pthread_rwlock_rdlock(rwlock_type which) noexcept {
    return after_lock(real_rdlock(which));
}
int pthread_rwlock_tryrdlock(rwlock_type which) noexcept {
    return after_lock(real_tryrdlock(which));
}
int pthread_rwlock_timedrdlock(rwlock_type which, time_type until) noexcept {
    return after_lock(real_timedrdlock(which, until));
}
int pthread_rwlock_clockrdlock(rwlock_type which, clockid_t clock, time_type until) noexcept {
    return after_lock(real_clockrdlock(which, clock, until));
}
int pthread_rwlock_wrlock(rwlock_type which) noexcept {
    return after_lock(real_wrlock(which));
}
int pthread_rwlock_trywrlock(rwlock_type which) noexcept {
    return after_lock(real_trywrlock(which));
}
int pthread_rwlock_timedwrlock(rwlock_type which, time_type until) noexcept {
    return after_lock(real_timedwrlock(which, until));
}
int pthread_rwlock_clockwrlock(rwlock_type which, clockid_t clock, time_type until) noexcept {
    return after_lock(real_clockwrlock(which, clock, until));
}
int pthread_rwlock_unlock(rwlock_type which) noexcept {
    return after_unlock(real_rwunlock(which));
}

}  // extern "C"

}  // namespace amalgam::detail

// What the compiler calls in code that is compiled with -fsanitize=thread: this is its run-time
// library here, in place of ThreadSanitizer's. So the library's own sources are checked, as they
// are.
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include <pthread.h>
#include <sys/syscall.h>

#include "model_check/checker/checker.hpp"
#include "model_check/checker/explorer.hpp"

namespace amalgam::model {
namespace {

// The numbers that the compiler passes are those of std::memory_order.
static_assert(static_cast<int>(std::memory_order_acquire) == 2 &&
              static_cast<int>(std::memory_order_seq_cst) == 5);

/// Whether it is thread_local, which threads of a program share: they are one thread.
bool is_of_thread(std::uintptr_t at) noexcept {
    constexpr std::uintptr_t range = 4096;
    return at - reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer()) + range < 2 * range;
}

void plain(const void* at, std::size_t bytes, bool writes) {
    explorer* const here = explorer::current();
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (here != nullptr && !is_of_thread(address)) here->plain(address, bytes, writes);
}

template <typename T>
step of(kind what, const volatile T* at, int order) noexcept {
    step made;
    made.what = what;
    made.address = reinterpret_cast<std::uintptr_t>(at);
    made.bytes = sizeof(T);
    made.order = static_cast<std::memory_order>(order);
    return made;
}

template <typename T>
T load(const volatile T* at, int order) {
    explorer* const here = explorer::current();
    if (here == nullptr) return *at;
    return static_cast<T>(here->take(of(kind::load, at, order)));
}

template <typename T>
void store(volatile T* at, T value, int order) {
    explorer* const here = explorer::current();
    if (here == nullptr) {
        *at = value;
        return;
    }
    step what = of(kind::store, at, order);
    what.operand = value;
    here->take(what);
}

template <typename T>
T change(volatile T* at, T operand, int order,
         std::uint64_t (*combine)(std::uint64_t, std::uint64_t)) {
    explorer* const here = explorer::current();
    if (here == nullptr) {
        const T was = *at;
        *at = static_cast<T>(combine(was, operand));
        return was;
    }
    step what = of(kind::change, at, order);
    what.operand = operand;
    what.combine = combine;
    return static_cast<T>(here->take(what));
}

template <typename T>
bool compare(volatile T* at, T& expected, T desired, int order, int on_failure) {
    explorer* const here = explorer::current();
    T was;
    if (here == nullptr) {
        was = *at;
        if (was == expected) *at = desired;
    } else {
        step what = of(kind::compare, at, order);
        what.on_failure = static_cast<std::memory_order>(on_failure);
        what.operand = desired;
        what.expected = expected;
        was = static_cast<T>(here->take(what));
    }
    if (was == expected) return true;
    expected = was;
    return false;
}

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (explorer* const here = explorer::allocating()) return here->allocate(bytes, alignment);
    bytes = (bytes + alignment - 1) / alignment * alignment;
    return alignment <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                                  : std::aligned_alloc(alignment, bytes);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    void* const got = allocate(bytes, alignment);
    if (got == nullptr) throw std::bad_alloc();
    return got;
}

void give_back(void* at) noexcept {
    explorer::is_own(at) ? explorer::free(at) : std::free(at);
}

}  // namespace
}  // namespace amalgam::model

namespace model = amalgam::model;

extern "C" {

void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
int __real_memcmp(const void* one, const void* other, std::size_t bytes);
int __real_pthread_mutex_lock(pthread_mutex_t* at);
int __real_pthread_mutex_unlock(pthread_mutex_t* at);
int __real_sched_yield();

// In place of the C library's, by the linker's option --wrap: so in all code of the program,
// compiled with -fsanitize=thread or not.
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
    model::plain(from, bytes, false);
    model::plain(to, bytes, true);
    return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
    model::plain(from, bytes, false);
    model::plain(to, bytes, true);
    return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
    model::plain(to, bytes, true);
    return __real_memset(to, value, bytes);
}
int __wrap_memcmp(const void* one, const void* other, std::size_t bytes) {
    model::plain(one, bytes, false);
    model::plain(other, bytes, false);
    return __real_memcmp(one, other, bytes);
}
int __wrap_pthread_mutex_lock(pthread_mutex_t* at) {
    model::explorer* const here = model::explorer::current();
    if (here == nullptr) return __real_pthread_mutex_lock(at);
    here->take(model::of(model::kind::lock, reinterpret_cast<int*>(at), 0));
    return 0;
}
int __wrap_pthread_mutex_unlock(pthread_mutex_t* at) {
    model::explorer* const here = model::explorer::current();
    if (here == nullptr) return __real_pthread_mutex_unlock(at);
    here->take(model::of(model::kind::unlock, reinterpret_cast<int*>(at), 0));
    return 0;
}
int __wrap_sched_yield() {
    if (model::explorer::current() == nullptr) return __real_sched_yield();
    model::yield();
    return 0;
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
// Hints of ours to ThreadSanitizer: what they would order is what is to be checked.
void __tsan_acquire(void*) {}
void __tsan_release(void*) {}

#define AMALGAM_PLAIN(bytes)                       \
    void __tsan_read##bytes(void* at) {            \
        model::plain(at, bytes, false);            \
    }                                              \
    void __tsan_write##bytes(void* at) {           \
        model::plain(at, bytes, true);             \
    }                                              \
    void __tsan_unaligned_read##bytes(void* at) {  \
        model::plain(at, bytes, false);            \
    }                                              \
    void __tsan_unaligned_write##bytes(void* at) { \
        model::plain(at, bytes, true);             \
    }                                              \
    void __tsan_volatile_read##bytes(void* at) {   \
        model::plain(at, bytes, false);            \
    }                                              \
    void __tsan_volatile_write##bytes(void* at) {  \
        model::plain(at, bytes, true);             \
    }
AMALGAM_PLAIN(1)
AMALGAM_PLAIN(2)
AMALGAM_PLAIN(4)
AMALGAM_PLAIN(8)
AMALGAM_PLAIN(16)
#undef AMALGAM_PLAIN

void __tsan_read_range(void* at, unsigned long bytes) {
    model::plain(at, bytes, false);
}
void __tsan_write_range(void* at, unsigned long bytes) {
    model::plain(at, bytes, true);
}
void __tsan_vptr_read(void** at) {
    model::plain(at, sizeof(void*), false);
}
void __tsan_vptr_update(void** at, void* to) {
    if (*at != to) model::plain(at, sizeof(void*), true);
}

// Some compilers call these in instrumented code, others those of the C library, which are wrapped:
// see below.
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
    return __wrap_memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, unsigned long bytes) {
    return __wrap_memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, unsigned long bytes) {
    return __wrap_memset(to, value, bytes);
}

#define AMALGAM_CHANGE(bits, name, made)                                                  \
    std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* at,    \
                                                     std::uint##bits##_t by, int order) { \
        return model::change(at, by, order, [](std::uint64_t was, std::uint64_t with) {   \
            static_cast<void>(was);                                                       \
            return static_cast<std::uint64_t>(made);                                      \
        });                                                                               \
    }
#define AMALGAM_ATOMIC(bits)                                                                     \
    std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* at,       \
                                                   int order) {                                  \
        return model::load(at, order);                                                           \
    }                                                                                            \
    void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* at, std::uint##bits##_t to,   \
                                     int order) {                                                \
        model::store(at, to, order);                                                             \
    }                                                                                            \
    AMALGAM_CHANGE(bits, exchange, with)                                                         \
    AMALGAM_CHANGE(bits, fetch_add, was + with)                                                  \
    AMALGAM_CHANGE(bits, fetch_sub, was - with)                                                  \
    AMALGAM_CHANGE(bits, fetch_and, was& with)                                                   \
    AMALGAM_CHANGE(bits, fetch_or, was | with)                                                   \
    AMALGAM_CHANGE(bits, fetch_xor, was ^ with)                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(                                           \
        volatile std::uint##bits##_t* at, std::uint##bits##_t* expected, std::uint##bits##_t to, \
        int order, int on_failure) {                                                             \
        return model::compare(at, *expected, to, order, on_failure);                             \
    }                                                                                            \
    int __tsan_atomic##bits##_compare_exchange_weak(                                             \
        volatile std::uint##bits##_t* at, std::uint##bits##_t* expected, std::uint##bits##_t to, \
        int order, int on_failure) {                                                             \
        return model::compare(at, *expected, to, order, on_failure);                             \
    }                                                                                            \
    std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                              \
        volatile std::uint##bits##_t* at, std::uint##bits##_t expected, std::uint##bits##_t to,  \
        int order, int on_failure) {                                                             \
        model::compare(at, expected, to, order, on_failure);                                     \
        return expected;                                                                         \
    }
AMALGAM_ATOMIC(8)
AMALGAM_ATOMIC(16)
AMALGAM_ATOMIC(32)
AMALGAM_ATOMIC(64)
#undef AMALGAM_ATOMIC
#undef AMALGAM_CHANGE

void __tsan_atomic_thread_fence(int order) {
    model::step what;
    what.what = model::kind::fence;
    what.order = static_cast<std::memory_order>(order);
    if (model::explorer* const here = model::explorer::current()) here->take(what);
}
void __tsan_atomic_signal_fence(int) {}

/// In place of the kernel's futex, for sources compiled with -Dsyscall=amalgam_model_syscall:
/// word, act, value, deadline. Other calls do nothing.
long amalgam_model_syscall(long number, ...) noexcept {
    model::explorer* const here = model::explorer::current();
    if (here == nullptr || number != SYS_futex) return 0;
    std::va_list rest;
    va_start(rest, number);
    auto* const at = va_arg(rest, std::uint32_t*);
    const int act = va_arg(rest, int);
    const auto value = va_arg(rest, std::uint32_t);
    const bool has_deadline = va_arg(rest, const void*) != nullptr;
    va_end(rest);
    constexpr int wakes = 1, command = 127;  // FUTEX_WAKE, and what flags leave.
    if ((act & command) == wakes) {
        model::step wake = model::of(model::kind::strike, at, 0);
        wake.operand = 1;
        here->take(wake);
        return 0;
    }
    if (here->take(model::of(model::kind::futex_look, at, 0)) != value) return -1;
    if (!has_deadline) here->take(model::of(model::kind::futex_sleep, at, 0));
    return 0;
}

}  // extern "C"

void* operator new(std::size_t bytes) {
    return model::allocate_or_throw(bytes, alignof(std::max_align_t));
}
void* operator new[](std::size_t bytes) {
    return model::allocate_or_throw(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return model::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return model::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return model::allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return model::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* at) noexcept {
    model::give_back(at);
}
void operator delete[](void* at) noexcept {
    model::give_back(at);
}
void operator delete(void* at, std::size_t) noexcept {
    model::give_back(at);
}
void operator delete[](void* at, std::size_t) noexcept {
    model::give_back(at);
}
void operator delete(void* at, std::align_val_t) noexcept {
    model::give_back(at);
}
void operator delete[](void* at, std::align_val_t) noexcept {
    model::give_back(at);
}
void operator delete(void* at, std::size_t, std::align_val_t) noexcept {
    model::give_back(at);
}
void operator delete[](void* at, std::size_t, std::align_val_t) noexcept {
    model::give_back(at);
}

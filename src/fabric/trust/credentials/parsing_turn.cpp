#include "fabric/trust/credentials/parsing_turn.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#include <amalgam/core/detail/forks.hpp>

#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {
namespace {

constinit std::mutex parsing_lock, members_lock;
constinit bool process_is_ending = false;  // Under it.

void note_end_of_process() {
    const std::lock_guard hold(parsing_lock);
    process_is_ending = true;
}

void hold_all() {
    parsing_lock.lock();
    members_lock.lock();
    secure_heap_lock().lock();
}

void release_all() {
    secure_heap_lock().unlock();
    members_lock.unlock();
    parsing_lock.unlock();
}

constinit fork_handlers parsing_handlers(hold_all, release_all, release_all);

}  // namespace

void parsing_turn::prepare() {
    static constinit std::atomic<bool> ends_are_noted{false};  // Twice harms nobody.
    if (!ends_are_noted.load(std::memory_order_relaxed)) {
        if (std::atexit(&note_end_of_process) != 0) throw std::bad_alloc();
        ends_are_noted.store(true, std::memory_order_relaxed);
    }
    if (!parsing_handlers.watch()) throw std::bad_alloc();
}

parsing_turn::parsing_turn() : hold_(parsing_lock) {}

bool parsing_turn::process_ends() const noexcept {
    return process_is_ending;
}

std::mutex& stores_lock() noexcept {
    return members_lock;
}

}  // namespace amalgam::detail

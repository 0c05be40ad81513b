#include "rpc/streaming/value_streams.hpp"

#include <algorithm>
#include <utility>

#include <amalgam/rpc/engine.hpp>

#include "rpc/serve/late_answer.hpp"

namespace amalgam::detail {

void value_streams::add(values_reference values) {
    const std::uint64_t id = values->id();
    const std::lock_guard hold(lock_);
    open_.emplace(id, std::move(values));
}

void value_streams::remove(std::uint64_t id) noexcept {
    values_reference last;  // Dropped without the lock.
    const std::lock_guard hold(lock_);
    const auto at = open_.find(id);
    if (at == open_.end()) return;
    last = std::move(at->second);
    open_.erase(at);
}

values_reference value_streams::find(std::uint64_t id) noexcept {
    const std::lock_guard hold(lock_);
    const auto at = open_.find(id);
    return at == open_.end() ? values_reference() : at->second.another();
}

std::size_t value_streams::open() noexcept {
    const std::lock_guard hold(lock_);
    return open_.size();
}

std::uint32_t value_streams::reserve(std::uint32_t wanted, std::size_t each) noexcept {
    std::size_t taken = reserved_.load(std::memory_order_relaxed);
    for (;;) {
        const std::size_t left = most_ - std::min(most_, taken);
        const auto granted = static_cast<std::uint32_t>(
            std::clamp<std::size_t>(left / each, 1, std::max<std::uint32_t>(wanted, 1)));
        if (reserved_.compare_exchange_weak(taken, taken + granted * each,
                                            std::memory_order_relaxed)) {
            return granted;
        }
    }
}

bool value_streams::try_take(std::size_t bytes) noexcept {
    std::size_t taken = reserved_.load(std::memory_order_relaxed);
    do {
        if (bytes > most_ - std::min(most_, taken)) return false;
    } while (!reserved_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    return true;
}

void value_streams::give_back(std::size_t bytes) noexcept {
    reserved_.fetch_sub(bytes, std::memory_order_relaxed);
}

void define_value_streams(engine& here) {
    engine_core& core = here.core();
    here.define(library_name{"amalgam.stream"},
                [&core](values_opener opener, std::uint64_t id) {
                    const values_reference values = value_streams_of(core).find(id);
                    auto& answer = static_cast<late_answer&>(opener.answer);
                    if (values && values->attach(answer, opener.items)) return;
                    throw error(errc::not_found,
                                "the caller has no such stream of values: its call is over, or the "
                                "values are being read already");
                },
                {.run = handler::inline_});
}

}  // namespace amalgam::detail

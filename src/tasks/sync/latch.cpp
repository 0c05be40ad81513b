#include <amalgam/core/status.hpp>
#include <amalgam/tasks/latch.hpp>

namespace amalgam {

latch::latch(std::size_t count) noexcept : left_(count) {
    if (count == 0) open_.set();
}

void latch::count_down(std::size_t by) {
    if (by == 0) return;
    std::size_t left = left_.load(std::memory_order_relaxed);
    do {
        if (by > left) {
            throw error(errc::invalid,
                        "this latch was counted down below zero: create it with the total that "
                        "will be counted down");
        }
        // Release and acquire: the last count publishes what all others did before.
    } while (!left_.compare_exchange_weak(left, left - by, std::memory_order_acq_rel,
                                          std::memory_order_relaxed));
    if (left == by) open_.set();
}

}  // namespace amalgam

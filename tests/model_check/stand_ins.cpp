// In place of the library's functions of these names.
#include "model_check/stand_ins.hpp"

#include <new>

#include <amalgam/tasks/extension/small_block.hpp>
#include <amalgam/tasks/extension/thread_barrier.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {

// Steps of the model.
bool detail::barrier_on_all_threads() noexcept {
    if (!model::no_barriers::are_left_out()) model::barrier_in_all();
    return true;
}

void this_task::yield() {
    model::yield();
}

// The library's writes to the descriptor.
void detail::bell::strike() noexcept {
    static_cast<model::model_bell*>(this)->wakes.strike();
}

// The library's keep what is freed, for other executions.
void* detail::allocate_block(std::size_t bytes) {
    return ::operator new(bytes);
}

void detail::free_block(void* memory, std::size_t) noexcept {
    ::operator delete(memory);
}

}  // namespace amalgam

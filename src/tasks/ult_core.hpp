#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include <amalgam/tasks/detail/closure.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/work_unit.hpp>

#include "tasks/context.hpp"
#include "tasks/recycler.hpp"
#include "tasks/stack_memory.hpp"

namespace amalgam::detail {

/// The usable stack of a ULT that asks for no other. Address space only: pages are
/// committed as they are touched.
inline constexpr std::size_t default_stack_bytes = sanitized ? 1024 * 1024 : 256 * 1024;
inline constexpr std::size_t smallest_stack_bytes = 16 * 1024;

/// A ULT, at the top of its own stack. It outlives what it runs: finished ones wait in a
/// pool with their context suspended in the loop of entry(), ready for the next body.
///
/// From high to low: this object, the closure, the stack, the guard.
class ult_core final : public work_unit, public free_node {
public:
    /// Maps a stack. Throws error{no_memory}.
    static ult_core& map(std::size_t stack_bytes);
    /// Gives it back to the system.
    static void unmap(ult_core& core) noexcept;
    /// From and to the calling thread's pool.
    static ult_core& take(std::size_t stack_bytes);
    static void give_back(ult_core& core) noexcept;

    static void run_unit(work_unit& self) noexcept;  // from the stream's loop

    const stack_memory& memory() const noexcept { return memory_; }
    std::size_t stack_bytes() const noexcept { return stack_bytes_; }
    void* closure() noexcept;
    void run_body() noexcept;
    /// The stack is not in use any more. Whoever was told may free this.
    void finished() noexcept;
    void log_lost_exception() noexcept;

    // joiner: nobody yet, or a waiter's address, or one of the two marks.
    static constexpr std::uintptr_t nobody = 0;
    static constexpr std::uintptr_t detached_mark = 1;
    static constexpr std::uintptr_t finished_mark = 2;

    context saved;
    pool* home = nullptr;  ///< Where it goes when it is ready again.
    std::atomic<std::uintptr_t> joiner{nobody};
    const closure_type* type = nullptr;
    std::exception_ptr failed;
    void* local = nullptr;  ///< task_local()
    std::array<char, 24> name{};

private:
    ult_core(stack_memory memory, std::size_t stack_bytes) noexcept;
    static void entry(boost::context::detail::transfer_t from);

    stack_memory memory_;
    std::size_t stack_bytes_;
};

/// "text of the exception", for logs and failures.
std::string describe(const std::exception_ptr& what);

}  // namespace amalgam::detail

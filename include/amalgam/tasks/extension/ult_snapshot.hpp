#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/detail/stack_page.hpp>
#include <amalgam/tasks/inspect.hpp>

/// For layers that explain what their waits wait for: some ULTs, and what is on whose stack.
namespace amalgam::detail {

/// A ULT, and whose stack holds what it waits for.
struct ult_snapshot {
    ult_info info;
    /// If parked for a mutex, or a shared one, that no ULT holds: see stack_page(); 0: unknown.
    std::uint32_t holder_page = 0;
};

/// As list_ults(), of those of these that exist, and of those that they wait for, and so on:
/// `most` at most. Cost: a walk over all ULTs per step; holds up only those that it lists.
std::vector<ult_snapshot> snapshot_ults(std::span<const void* const> ids, std::size_t most);

/// How long ago the time was this, in cycles().
std::chrono::nanoseconds time_since(std::uint64_t ticks) noexcept;

/// The ids of the ULTs whose stacks these addresses are on; null: on none.
std::vector<const void*> ults_at(std::span<const void* const> addresses);

/// The threads of this process that sleep in the kernel, by their stacks.
///
/// Cost: reads some files of the kernel's for each thread.
class sleeping_threads {
public:
    struct thread {
        int id = 0;  ///< 0: unknown.
        std::string name;
    };
    sleeping_threads();
    /// Whose stack that is: see stack_page().
    thread at(std::uint32_t page) const;

private:
    struct stack {
        std::uint64_t first_page, end_page;
        thread whose;
    };
    std::vector<stack> stacks_;
};

}  // namespace amalgam::detail

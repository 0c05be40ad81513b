#pragma once

#include <cstdint>
#include <vector>

#include <amalgam/tasks/ult_ref.hpp>

namespace amalgam::detail {

/// The ult_local values of one ULT or thread.
///
/// Threads: only that ULT or thread.
class local_values {
public:
    local_values() = default;
    ~local_values();
    local_values(const local_values&) = delete;
    local_values& operator=(const local_values&) = delete;

    void* find(std::uint64_t key) const noexcept;
    void add(std::uint64_t key, void* value, void (*destroy)(void*) noexcept);

    ult_ref then;  ///< See this_task::exit_to().

private:
    struct entry {
        std::uint64_t key;
        void* value;
        void (*destroy)(void*) noexcept;
    };
    std::vector<entry> entries_;
};

}  // namespace amalgam::detail

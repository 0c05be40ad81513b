#pragma once

#include <cstdint>
#include <vector>

namespace amalgam::detail {

/// What one ULT or thread keeps in ult_local variables.
///
/// Threads: its ULT or thread only.
class local_values {
public:
    local_values() = default;
    ~local_values();
    local_values(const local_values&) = delete;
    local_values& operator=(const local_values&) = delete;

    void* find(std::uint64_t key) const noexcept;
    void add(std::uint64_t key, void* value, void (*destroy)(void*) noexcept);

private:
    struct entry {
        std::uint64_t key;
        void* value;
        void (*destroy)(void*) noexcept;
    };
    std::vector<entry> entries_;
};

}  // namespace amalgam::detail

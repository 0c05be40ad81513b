#pragma once

#include <string_view>

#include <amalgam/tasks/cpu_set.hpp>

namespace amalgam::detail {

/// Sockets, NUMA nodes, cores and hardware threads of this machine, as hwloc sees them.
///
/// Failure: without hwloc, here or when it was built, the constructor throws error{unsupported}.
class machine {
public:
    machine();
    ~machine();
    machine(const machine&) = delete;
    machine& operator=(const machine&) = delete;

    static bool has_kind(std::string_view kind) noexcept;
    /// `kind`: one of those. Throws error{invalid} if there is none of that number.
    void add(std::string_view kind, unsigned number, cpu_set& to) const;

private:
    [[maybe_unused]] void* topology_ = nullptr;  // hwloc's, where it is there
};

}  // namespace amalgam::detail

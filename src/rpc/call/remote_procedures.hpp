#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include <amalgam/rpc/detail/call.hpp>

namespace amalgam::detail {

/// The procedures that this engine's users have named to call them. They are never removed.
///
/// Threads: any.
class remote_procedures {
public:
    /// Failure: throws error{invalid} for a name or signature of invalid length, or if two share an
    ///          id by chance.
    const remote_procedure& intern(std::string_view name, std::string signature);
    /// By wire id; null: nobody here calls it.
    const remote_procedure* find(std::uint64_t id);
    /// By index; empty: there is none.
    std::string name_of(std::uint32_t index);

private:
    std::mutex lock_;
    std::deque<remote_procedure> all_;  // Never move.
    std::unordered_map<std::uint64_t, remote_procedure*> by_id_;
};

}  // namespace amalgam::detail

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "rpc/call/counted_procedure.hpp"

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
    /// As intern(), of what the handler of `reader` reads from its callers: one for each such name,
    /// so that they are counted by it.
    const counted_procedure& intern_for(std::string_view reader, std::string_view name,
                                        std::string signature);
    /// Calls `visit(counted_procedure)` for each. It must not use this.
    template <typename Function>
    void for_each(Function visit) {
        const std::lock_guard hold(lock_);
        for (const counted_procedure& each : all_)
            visit(each);
        for (const auto& [name, each] : by_reader_)
            visit(*each);
    }

private:
    std::mutex lock_;
    std::deque<counted_procedure> all_;  // Never move.
    std::unordered_map<std::uint64_t, remote_procedure*> by_id_;
    std::map<std::string, std::unique_ptr<counted_procedure>, std::less<>> by_reader_;
};

remote_procedures& procedures_of(engine_core& core) noexcept;

}  // namespace amalgam::detail

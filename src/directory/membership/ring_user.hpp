#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "directory/membership/procedures.hpp"

namespace amalgam::detail {

/// What a ring needs from its server. Any thread.
class ring_user {
public:
    /// The first match here.
    virtual found_values find_here(const attribute_view& query) = 0;
    /// The same for all matches: empty, or the first, with a number for next_here() to get the
    /// others.
    virtual std::optional<first_answer> search_here(const attribute_view& query) = 0;
    virtual next_answer next_here(std::uint64_t search) = 0;
    virtual void stop_here(std::uint64_t search) = 0;
    /// This server owns this id range. Not `fresh`: it belonged to a server that is gone, so no new
    /// ids come from it.
    virtual void own_range(std::uint32_t range, bool fresh) = 0;
    /// Another server now allocates from this range.
    virtual void retire_range(std::uint32_t range) = 0;
    /// The servers known to be alive. Called repeatedly, and when a new one joins.
    virtual void see_servers(const std::vector<std::uint64_t>& keys) = 0;
    virtual void lose_server(std::uint64_t key) = 0;

protected:
    ~ring_user() = default;
};

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

#include <amalgam/rpc/describe.hpp>

namespace amalgam::detail {

/// What an engine says of its health. Any thread.
class health_state {
public:
    void set(bool serving, std::string_view sentence);
    engine_health now(std::size_t running) const;

private:
    mutable std::mutex lock_;
    bool serving_ = true;
    std::string sentence_;
};

}  // namespace amalgam::detail

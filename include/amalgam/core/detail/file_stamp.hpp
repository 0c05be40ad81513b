#pragma once

#include <cstdint>
#include <string>

namespace amalgam::detail {

/// What a file was when it was looked at: enough to see that it has been replaced or written.
struct file_stamp {
    std::uint64_t device = 0, number = 0, bytes = 0;
    std::int64_t changed_s = 0, changed_ns = 0;
    bool there = false;
    static file_stamp of(const std::string& path) noexcept;
    friend bool operator==(const file_stamp&, const file_stamp&) = default;
};

}  // namespace amalgam::detail

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace amalgam::detail {

/// What a file was when it was looked at: enough to see that it has been replaced or written.
struct file_stamp {
    std::uint64_t device = 0, number = 0, bytes = 0;
    std::int64_t changed_s = 0, changed_ns = 0;
    bool there = false;
    static file_stamp of(const std::string& path) noexcept;
    friend bool operator==(const file_stamp&, const file_stamp&) = default;
};

/// When files that are in use are read again: after a change, and as long as they could not be
/// read. That may be for lack of memory or descriptors, and else the change would be missed until
/// the next one.
class reread_files {
public:
    using stamps = std::vector<file_stamp>;

    /// `now`: before they are read, so that what changes meanwhile is seen next time.
    void begin(stamps now) noexcept {
        seen_ = std::move(now);
        were_read_ = false;
    }
    void were_read() noexcept { were_read_ = true; }

    bool have_changed(const stamps& now) const { return now != seen_; }
    bool must_be_read(const stamps& now) const { return !were_read_ || have_changed(now); }

private:
    stamps seen_;
    bool were_read_ = false;
};

}  // namespace amalgam::detail

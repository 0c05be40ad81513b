#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>

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
/// the next one. Also for a while after a change was seen, since a second one within a tick of the
/// file system's clock leaves the same stamp; by our clock alone, which the file system's may
/// differ from.
class reread_files {
public:
    using stamps = std::vector<file_stamp>;
    using steady = std::chrono::steady_clock;
    /// Longer than a tick of any file system: FAT's takes two seconds.
    static constexpr std::chrono::seconds settling{3};

    /// `now`: before they are read, so that what changes meanwhile is seen next time. `at`: after
    /// these stamps were got.
    void begin(stamps now, steady::time_point at) noexcept {
        if (have_changed(now)) changed_at_ = at;
        seen_ = std::move(now);
        are_settled_ = at - changed_at_ >= settling;
        were_read_ = false;
    }
    void begin(stamps now) noexcept { begin(std::move(now), steady::now()); }
    void were_read() noexcept { were_read_ = true; }

    bool have_changed(const stamps& now) const { return now != seen_; }
    /// What is read after begin() is the last that these stamps stand for.
    bool are_settled() const noexcept { return are_settled_; }
    bool must_be_read(const stamps& now) const {
        return !were_read_ || !are_settled_ || have_changed(now);
    }

private:
    stamps seen_;
    steady::time_point changed_at_{};
    bool are_settled_ = false;
    bool were_read_ = false;
};

}  // namespace amalgam::detail

#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace amalgam::detail {

/// The highest version accepted here of each image name: lower ones are refused. With a file they
/// outlive the process. Every rise adds the line "NAME VERSION" to it, so that several targets may
/// use one file, and a crash loses nothing; the highest line of a name counts.
///
/// Threads: any.
class version_floors {
public:
    /// `path`: of the file; empty: none. Failure: throws error{invalid} for a file that is none of
    /// these; error{denied} for one that cannot be read.
    explicit version_floors(std::string path);

    /// 0: nothing is refused.
    std::uint64_t of(std::string_view name) const;
    /// True if that is higher than what was. Failure: throws error{denied} if it cannot be written,
    /// or there are too many names; nothing has risen then.
    bool raise(std::string_view name, std::uint64_t version);

private:
    const std::string path_;
    mutable std::mutex lock_;
    std::unordered_map<std::string, std::uint64_t> all_;
};

}  // namespace amalgam::detail

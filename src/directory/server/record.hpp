#pragma once

#include <optional>
#include <string>
#include <vector>

namespace amalgam::detail {

/// How a directory was started, in a file only its user can read.
///
/// Threads: one at a time, also across processes: the file is replaced atomically.
class directory_record {
public:
    /// For the directory of this host (network namespace) and user.
    directory_record();
    explicit directory_record(std::string folder, std::string name = "directory");

    /// Failure: throws error{invalid} if an argument contains a line end, or all are too long,
    ///          error{denied} if the folder belongs to somebody else or no file can be created.
    ///          What was kept before is forgotten then, where that is possible.
    void keep(const std::vector<std::string>& words) const;
    /// Empty if there is none, or others could have written it.
    std::optional<std::vector<std::string>> read() const;
    void forget() const noexcept;

private:
    std::string path() const { return folder_ + "/" + name_; }

    std::string folder_, name_;
};

}  // namespace amalgam::detail

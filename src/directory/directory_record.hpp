#pragma once

#include <optional>
#include <string>
#include <vector>

namespace amalgam::detail {

/// How a directory was started, in a file that only its user can read: no secret is in it.
///
/// Threads: one at a time, also of several processes: what is kept is replaced as a whole.
class directory_record {
public:
    struct start {
        std::vector<std::string> words;
        bool has_secret = false;
    };
    /// Of the directory of this host (network namespace) and user.
    directory_record();
    explicit directory_record(std::string folder, std::string name = "directory");

    /// Failure: throws error{invalid} for words with line ends, error{denied} where the folder is
    ///          somebody else's, or no file can be made.
    void keep(const start& how) const;
    /// Nothing: there is none, or none that this user alone could write.
    std::optional<start> read() const;
    void forget() const noexcept;

private:
    std::string path() const { return folder_ + "/" + name_; }

    std::string folder_, name_;
};

}  // namespace amalgam::detail

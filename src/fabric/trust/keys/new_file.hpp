#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// Writes a file that appears whole or not at all, under its name: also after a crash. The folder
/// is locked, see lock_folder(). Failure: throws error{in_use} if there is one and it may not be
/// replaced; error{denied}.
void write_file(const std::string& path, std::string_view content, unsigned mode, bool overwrite);

/// Files of one folder that change together: all are written before the first takes its place, and
/// if one cannot, all stay as they were. The folder is locked, see lock_folder().
class file_changes {
public:
    file_changes();
    file_changes(const file_changes&) = delete;
    ~file_changes();

    /// As write_file(), but that nobody sees it yet.
    void write(const std::string& path, std::string_view content, unsigned mode, bool overwrite);
    /// A file that goes, if it is there.
    void remove(const std::string& path);
    /// All, in the order of the calls. Failure: as write_file(), and nothing has changed. A crash
    /// may come between two of them; what one has replaced is then still there as NAME.gone.
    void finish();

private:
    struct change;

    std::vector<std::unique_ptr<change>> all_;
};

/// Makes the folder, and those it is in, where they are not there, each with mode 0700.
/// Failure: throws error{denied}.
void make_folder(const std::string& path);

/// Keeps other processes that do the same out of the folder, while the result lives.
/// Failure: throws error{not_found}; error{in_use} after ten seconds.
unique_fd lock_folder(const std::string& path);

bool is_folder(const std::string& path) noexcept;
/// Also what cannot be looked at: whoever opens it learns why.
bool is_there(const std::string& path) noexcept;

}  // namespace amalgam::detail

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// The plug-in folder beside the shared library that contains `code`. Empty: the program contains
/// it.
std::string plugin_folder_beside(const void* code);

/// The folders that hold transports as shared objects, and the objects loaded from them.
///
/// Threads: any; a first load() blocks others.
class plugin_folders {
public:
    /// The folders that AMALGAM_PLUGIN_PATH names now, then those of the installation, which are
    /// looked for once somebody asks for a plug-in: few programs do.
    plugin_folders();
    explicit plugin_folders(std::vector<std::string> folders)
        : folders_(std::move(folders)), complete_(true) {}

    /// Names of all plug-ins found, loadable or not, in order.
    std::vector<std::string> names() const;
    /// The transport of that name, loaded on first use. It lives as long as this object.
    /// Failure: `not_found`; `unsupported` or `mismatch`, with one sentence about the file;
    /// `no_memory`, after which it may be tried again.
    result<const transport*> load(std::string_view name) noexcept;

private:
    // These with the lock.
    const std::vector<std::string>& folders() const;
    std::string file_of(std::string_view name) const;

    mutable std::mutex mutex_;
    mutable std::vector<std::string> folders_;
    mutable bool complete_ = false;
    std::map<std::string, result<std::unique_ptr<transport>>, std::less<>> loaded_;
};

}  // namespace amalgam::detail

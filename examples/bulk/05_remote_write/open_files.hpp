#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include <amalgam/core.hpp>
#include <amalgam/rpc.hpp>
#include <amalgam/tasks.hpp>

#include "local_file.hpp"
#include "protocol.hpp"

namespace remote_write {

/// The files of one directory that clients have open. Nobody can leave the directory: names contain
/// no slash, and symbolic links are not followed.
///
/// Threads: any ULT or thread; files are opened and closed outside the lock.
/// Failure: throws std::runtime_error with one sentence.
class open_files {
public:
    static constexpr std::size_t max_open = 1024;

    explicit open_files(const std::string& directory);

    opened_file open(const amalgam::peer& who, std::string_view name, open_mode mode);
    file_info stat(std::string_view name) const;
    /// Only the peer that opened it may use it.
    std::shared_ptr<const local_file> find(const amalgam::peer& who, std::uint64_t handle);
    /// Waits until the file and its directory entry are on the disk.
    void sync(const amalgam::peer& who, std::uint64_t handle);
    void close(const amalgam::peer& who, std::uint64_t handle);
    void close_all_of(const amalgam::peer& who);

private:
    struct entry {
        amalgam::peer owner;
        std::shared_ptr<const local_file> file;
    };
    amalgam::unique_fd open_in_directory(std::string_view name, int flags) const;
    std::unordered_map<std::uint64_t, entry>::iterator owned(const amalgam::peer& who,
                                                             std::uint64_t handle);

    amalgam::unique_fd directory_;
    amalgam::mutex lock_;
    std::unordered_map<std::uint64_t, entry> open_;
    std::uint64_t last_handle_ = 0;
};

}  // namespace remote_write

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/flow/detail/node_record.hpp>

namespace amalgam::detail {

// The files of checkpoints, in a folder that the user names:
//
//     checkpoint.7/G2.1    what that process has saved for checkpoint 7
//     complete             the last checkpoint that all processes have saved; by the launcher
//
// Each is written under another name, brought to the disk, and renamed: it is there whole or not at
// all. A checkpoint without the record `complete` does not count.

/// What one process has saved.
struct process_record {
    std::uint64_t number = 0;  ///< Of the checkpoint.
    std::string process;       ///< "G2.1"
    std::string graph;         ///< Its fingerprint.
    std::vector<node_record> nodes;

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(number, process, graph, nodes);
    }
};

/// Failure: `denied` with a sentence if the disk is full, or the folder cannot be written.
result<void> write_process_record(const std::filesystem::path& folder, const process_record& what);
/// Failure: `mismatch` with a sentence if there is none, or it is damaged or of something else.
result<process_record> read_process_record(const std::filesystem::path& folder,
                                           std::uint64_t number, std::string_view process,
                                           std::string_view graph);

/// The last complete checkpoint.
struct complete_record {
    std::uint64_t number = 0;
    std::vector<std::string> processes;  ///< Labels, in the order of the config.
};

/// Failure: as write_process_record().
result<void> write_complete_record(const std::filesystem::path& folder,
                                   const complete_record& what);
/// Empty if there is none. Failure: `mismatch` with a sentence if it is damaged, `denied` if it
/// cannot be read, or is no regular file.
result<std::optional<complete_record>> read_complete_record(const std::filesystem::path& folder);

/// Removes what these processes have written of checkpoints but that one (0: all), complete or not,
/// and what is left of writing them. Touches nothing else in the folder.
void remove_checkpoints_but(const std::filesystem::path& folder, std::uint64_t number,
                            const std::vector<std::string>& processes) noexcept;
/// The same for all, and the record.
void remove_checkpoints(const std::filesystem::path& folder,
                        const std::vector<std::string>& processes) noexcept;

}  // namespace amalgam::detail

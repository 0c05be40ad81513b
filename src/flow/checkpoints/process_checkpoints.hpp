#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "flow/checkpoints/checkpoint_files.hpp"
#include "flow/checkpoints/snapshot.hpp"

namespace amalgam::detail {

/// Writes the checkpoints of one process, on a thread of its own, so that no node waits for a disk.
///
/// Threads: nodes() as snapshot; the rest by one.
class process_checkpoints {
public:
    /// Told of each checkpoint of this process that is on the disk; or why it is not.
    using teller = std::function<void(std::uint64_t number, const result<void>& written)>;

    /// Of a process of that name, with so many nodes that run.
    /// Failure: throws error{no_memory} if no thread is left.
    process_checkpoints(std::string folder, std::string process, std::string graph,
                        std::size_t nodes, teller tell);
    process_checkpoints(const process_checkpoints&) = delete;
    process_checkpoints& operator=(const process_checkpoints&) = delete;
    /// Writes what is whole.
    ~process_checkpoints();

    snapshot& nodes() noexcept { return nodes_; }

private:
    void write_all();
    result<void> written(const process_record& what) const;

    const std::string folder_;
    const std::string process_;
    const std::string graph_;
    const teller tell_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<process_record> whole_;
    bool over_ = false;
    snapshot nodes_;
    std::thread thread_;
};

}  // namespace amalgam::detail

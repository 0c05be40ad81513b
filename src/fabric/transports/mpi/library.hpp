#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/packets.hpp>

#include "fabric/transports/mpi/mpi_h.hpp"

namespace amalgam::detail {

class mpi_inbox;

/// MPI in this process. The first port starts it and all ports share it. It ends with the process;
/// we finalize it only if we started it.
///
/// Threads: any, except for start().
class mpi_library {
public:
    /// Starts MPI unless it is running, and creates our own communicator. All ranks take part, so
    /// it returns when the slowest rank has opened its first port.
    /// Failure: throws error{unsupported} with a sentence.
    static mpi_library& start();

    int rank() const noexcept { return rank_; }
    int size() const noexcept { return size_; }
    MPI_Comm ours() const noexcept { return ours_; }
    /// For example "Open MPI v4.1.4". Does not require MPI to be started.
    static std::string version();

    /// Hold it around each call into MPI. Free if MPI itself is thread-safe.
    class turn {
    public:
        explicit turn(mpi_library& of) : lock_(of.one_by_one_, std::defer_lock) {
            if (of.takes_turns_) lock_.lock();
        }

    private:
        std::unique_lock<std::mutex> lock_;
    };

    // ---- port numbers

    /// Allocates the number of a new port, from 1: `wanted`, or if that is 0 or empty the next free
    /// number. nullopt: taken.
    std::optional<std::uint16_t> take_number(std::optional<std::uint16_t> wanted);
    void give_back_number(std::uint16_t number) noexcept;
    bool is_taken(std::uint16_t number) const noexcept;

    // ---- detection of ended ranks

    /// Becomes readable when that rank's process ends. Empty: not on this host, or cannot be known.
    unique_fd watch(int rank) const noexcept;

    // ---- leftovers of closed ports

    /// Continues to receive for a closed port until its peers have noticed.
    void linger(std::unique_ptr<mpi_inbox> inbox, std::vector<std::uint64_t> awaited) noexcept;
    /// MPI may access these bytes forever: they are never freed.
    void keep(MPI_Request request, void* bytes) noexcept;
    /// Makes progress on leftovers of closed ports.
    void tend() noexcept;
    bool has_leftovers() const noexcept { return has_leftovers_.load(std::memory_order_relaxed); }

private:
    struct identity;
    struct leftover;
    struct kept {
        MPI_Request request;
        void* bytes;
    };

    mpi_library();
    ~mpi_library() = delete;
    void learn_identities();
    static void on_exit(int code, void* self);
    bool some_rank_is_gone() const noexcept;
    void finish(int code) noexcept;

    const fork_check forked_;
    bool is_ours_to_end_ = false;
    bool takes_turns_ = false;
    int rank_ = 0;
    int size_ = 1;
    MPI_Comm ours_ = MPI_COMM_NULL;
    std::vector<identity> ranks_;
    std::mutex one_by_one_;

    mutable std::mutex guard_;  ///< Guards the members below.
    std::set<std::uint16_t> numbers_;
    std::uint16_t next_number_ = 1;
    std::vector<std::unique_ptr<leftover>> leftovers_;
    std::vector<kept> kept_;
    std::atomic<bool> has_leftovers_{false};
};

}  // namespace amalgam::detail

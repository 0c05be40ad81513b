#pragma once

#include <cstdint>

#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/transports/shm/memory/mapping.hpp"
#include "fabric/transports/shm/ring.hpp"

namespace amalgam::detail {

/// The memory of one connection as seen by one side.
///
/// Owner:   owns the mappings.
/// Threads: the port's thread.
class shm_pair {
public:
    enum class side : std::uint8_t { connector, acceptor };
    /// First positions of the two rings, named by their reader.
    struct origins {
        std::uint64_t to_acceptor = 0;
        std::uint64_t to_connector = 0;
    };

    /// Maps memory of the layout's size. The connector, which created it, also initializes it.
    /// Failure: `no_memory`.
    static result<shm_pair> map(int fd, side mine, const origins& from);

    shm_side& mine() const noexcept { return *mine_; }
    shm_side& theirs() const noexcept { return *theirs_; }  ///< Read only, never write.
    const shm_ring_place& sender() const noexcept { return sender_; }
    const shm_ring_place& receiver() const noexcept { return receiver_; }

private:
    shm_pair() = default;

    shm_mapping words_, to_acceptor_, to_connector_;
    shm_side* mine_ = nullptr;
    shm_side* theirs_ = nullptr;
    shm_ring_place sender_, receiver_;
};

}  // namespace amalgam::detail

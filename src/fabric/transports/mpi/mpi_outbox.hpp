#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <amalgam/fabric/packets.hpp>

#include "fabric/transports/mpi/mpi_library.hpp"
#include "fabric/transports/mpi/mpi_wire.hpp"

namespace amalgam::detail {

/// What one port sends.
///
/// Threads: one at a time.
class mpi_outbox {
public:
    explicit mpi_outbox(mpi_library& mpi);
    mpi_outbox(const mpi_outbox&) = delete;

    /// As packet_link::send(), once the header stands in the packet's head room.
    posted send(int rank, std::uint16_t port, packet& one) noexcept;
    /// Sends a word. False: there was no room; it is lost.
    bool say(int rank, std::uint16_t port, const mpi_word& word) noexcept;
    /// Gives back what has left; returns how many that were.
    std::size_t tell(packet_events& events) noexcept;
    /// Gives up what did not leave, to this rank or (-1) to any.
    void abandon(int rank, packet_events& events) noexcept;
    /// A rank to which a message was cut short, as MPI has no memory, or -1. Once.
    int take_failed() noexcept { return std::exchange(failed_rank_, -1); }
    bool has_room() const noexcept { return requests_.size() < max_packets; }
    bool is_empty() const noexcept { return requests_.empty(); }

private:
    // Words, of which each connection needs three and each long packet one, have room besides.
    static constexpr std::size_t max_packets = 256;

    struct sent {
        int to;
        packet* what;                        ///< nullptr: a word.
        std::unique_ptr<std::byte[]> bytes;  ///< The word.
    };

    bool begin(const void* bytes, std::size_t count, int rank, int tag, MPI_Request& request,
               bool& has_left) noexcept;
    void remove(std::size_t at) noexcept;

    mpi_library& mpi_;
    std::vector<MPI_Request> requests_;
    std::vector<sent> sent_;  ///< For each request.
    std::vector<std::unique_ptr<std::byte[]>> spare_words_;
    std::vector<int> ended_;
    int failed_rank_ = -1;
    std::size_t next_slice_ = 0;  ///< Where tell() goes on.
};

}  // namespace amalgam::detail

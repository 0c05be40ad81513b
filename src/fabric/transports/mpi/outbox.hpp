#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <amalgam/fabric/packets.hpp>

#include "fabric/transports/mpi/library.hpp"
#include "fabric/transports/mpi/wire.hpp"

namespace amalgam::detail {

/// Outgoing messages of one port.
///
/// Threads: one at a time.
class mpi_outbox {
public:
    explicit mpi_outbox(mpi_library& mpi);
    mpi_outbox(const mpi_outbox&) = delete;

    /// As packet_link::send(), with the header already in the packet's head room.
    posted send(int rank, std::uint16_t port, packet& one) noexcept;
    /// Sends a control message. False: no room or memory; it is lost.
    bool say(int rank, std::uint16_t port, const mpi_word& word) noexcept;
    /// Gives sent packets back to `events`; returns how many.
    std::size_t tell(packet_events& events) noexcept;
    /// Abandons what has not been sent to this rank, or to any rank if -1.
    void abandon(int rank, packet_events& events) noexcept;
    /// A rank to which a message was cut off because MPI is out of memory, or -1. Reported once.
    int take_failed() noexcept { return std::exchange(failed_rank_, -1); }
    bool has_room() const noexcept { return requests_.size() < max_packets; }
    bool is_empty() const noexcept { return requests_.empty(); }

private:
    // Control messages have extra room: three per connection and one per long packet.
    static constexpr std::size_t max_packets = 256;

    struct sent {
        int to;
        packet* what;                        ///< nullptr: a control message.
        std::unique_ptr<std::byte[]> bytes;  ///< The control message.
    };

    bool begin(const void* bytes, std::size_t count, int rank, int tag, MPI_Request& request,
               bool& has_left) noexcept;
    void remove(std::size_t at) noexcept;

    mpi_library& mpi_;
    std::vector<MPI_Request> requests_;
    std::vector<sent> sent_;  ///< Parallel to requests_.
    std::vector<std::unique_ptr<std::byte[]>> spare_words_;
    std::vector<int> ended_;
    int failed_rank_ = -1;
    std::size_t next_slice_ = 0;  ///< Where tell() continues.
};

}  // namespace amalgam::detail

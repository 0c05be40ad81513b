#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/packets.hpp>

#include "fabric/frames/slot_ids.hpp"
#include "fabric/transports/mpi/inbox.hpp"
#include "fabric/transports/mpi/library.hpp"
#include "fabric/transports/mpi/outbox.hpp"

namespace amalgam::detail {

class mpi_carrier;

/// Location of an mpi+static port.
struct mpi_place {
    /// A process's first port, unless opened with another number.
    static constexpr std::uint16_t first_port = 1;

    int rank = 0;
    std::uint16_t port = first_port;

    std::string to_string() const;
};

/// One connection between ports of two ranks, or of the same rank.
class mpi_link final : public packet_link {
public:
    posted send(packet& one) noexcept override;
    void close() noexcept override;

private:
    friend class mpi_carrier;
    enum class state : std::uint8_t { contacting, open, over };

    mpi_carrier* home_ = nullptr;
    mpi_place peer_;
    state state_ = state::contacting;
    bool waits_for_room_ = false;
    bool heard_farewell_ = false;
    std::uint64_t own_id_ = 0;
    std::uint64_t their_id_ = 0;
    clock::time_point gives_up_at_;  ///< While contacting.
};

/// Sends packets as MPI messages between the ranks of one mpirun.
///
/// Threads: the port's thread.
class mpi_carrier final : public packet_carrier {
public:
    static constexpr std::size_t packet_bytes = mpi_header::max_bytes - mpi_header::wire_bytes;

    /// Takes over `number`, which was allocated for it and is returned once nothing more can arrive
    /// for it.
    /// Failure: throws error{no_memory}.
    mpi_carrier(mpi_library& mpi, std::uint16_t number, std::chrono::milliseconds silence_limit);
    ~mpi_carrier() override;

    void start(packet_events& events) noexcept override { events_ = &events; }
    std::string address() const override;
    std::string explain() const override;
    result<std::string> canonical(std::string_view address) const override;
    result<packet_link*> connect(std::string_view address) override;
    void release(packet_link& link) noexcept override;
    std::size_t progress(std::size_t budget) noexcept override;
    int wait_handle() const noexcept override { return sleep_on_.get(); }
    bool arm() noexcept override;

private:
    friend class mpi_link;
    static constexpr std::uint64_t rounds_per_look = 256;

    struct watched {
        int rank;
        unique_fd process;
    };

    result<mpi_place> read(std::string_view address) const;
    mpi_link& add(const mpi_place& peer);
    mpi_link* find(std::uint64_t id) noexcept;
    void say(const mpi_place& to, mpi_kind kind, std::uint64_t to_id, std::uint64_t own) noexcept;
    void watch(int rank);

    void on_message(int rank, const_bytes bytes) noexcept;
    void on_contact(const mpi_place& from, std::uint64_t their_id) noexcept;
    void on_accept(const mpi_place& from, std::uint64_t to, std::uint64_t their_id) noexcept;
    void on_farewell(std::uint64_t to) noexcept;
    void end(mpi_link& link) noexcept;
    void lost(mpi_link& link, status why) noexcept;
    void tell_room() noexcept;
    void look_around() noexcept;
    void give_up_contacts() noexcept;
    void rank_is_gone(int rank) noexcept;

    mpi_library& mpi_;
    const std::uint16_t number_;
    const std::chrono::milliseconds silence_limit_;
    packet_events* events_ = nullptr;
    std::unique_ptr<mpi_inbox> inbox_;
    mpi_outbox outbox_;
    slot_ids ids_;
    std::vector<std::unique_ptr<mpi_link>> links_;  ///< Indexed by the slot of their ids.
    std::size_t contacting_ = 0;
    bool some_wait_for_room_ = false;
    bool ending_ = false;
    /// Connections that ended here, while the peer may still send on them.
    struct unfinished {
        std::uint64_t id;
        int rank;
    };
    std::vector<unfinished> unfinished_;

    unique_fd sleep_on_;  ///< An epoll set of the next two.
    unique_fd deaths_;    ///< An epoll set of the processes of connected peers.
    unique_fd timer_;     ///< MPI cannot wake a sleeper.
    std::vector<watched> watched_;
    std::chrono::nanoseconds nap_;
    std::size_t upcalls_ = 0;
    std::uint64_t rounds_ = 0;
    bool slept_ = false;
};

}  // namespace amalgam::detail

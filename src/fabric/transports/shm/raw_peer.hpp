#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <amalgam/core/random.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/transports/shm/hello.hpp"
#include "fabric/transports/shm/memory/cross_memory.hpp"
#include "fabric/transports/shm/memory/registrations.hpp"
#include "fabric/transports/shm/pair.hpp"

namespace amalgam::detail {

/// For tests: connects to a port without a port of its own, and so can do what no correct peer
/// would. Each step throws std::runtime_error if the kernel refuses it.
class shm_raw_peer {
public:
    /// Connects to "shm://NAME" and sends nothing.
    explicit shm_raw_peer(std::string_view address);

    int socket() const noexcept { return socket_.get(); }
    /// Completes a correct handshake.
    void greet();
    /// Sends the hello with these descriptors.
    void say(const shm_hello& hello, int pair, int registrations);
    void send_bytes(std::string_view bytes);

    /// A correct hello.
    shm_hello proper() const;
    int pair_memory() const noexcept { return pair_memory_.get(); }
    int registrations_memory() const noexcept { return registrations_memory_.get(); }

    /// Appends a record as given, waiting for room. Writes nothing if the far side has ended the
    /// connection, as there may never be room again. Precondition: greet().
    void write(frame_kind kind, std::uint32_t claimed_bytes, const_bytes payload,
               std::uint64_t tag = 0);
    /// As write(), but does not wait. False: no room now, or the port's state makes no sense.
    bool try_write(frame_kind kind, std::uint32_t claimed_bytes, const_bytes payload,
                   std::uint64_t tag = 0);
    /// Reads everything the port has written. `use` is given each record: its header, and its
    /// payload in place; of a large frame's first record, only what stands there.
    void take_all(const std::function<void(const frame_header&, const_bytes)>& use = [](auto&,
                                                                                        auto) {});
    /// Rings, so that a sleeping port polls.
    void ring();
    shm_side& words() noexcept { return pair_.mine(); }
    const shm_side& words_of_port() const noexcept { return pair_.theirs(); }
    /// Whether the port has written a record to us.
    bool has_record() const noexcept { return reader_.ready(); }
    /// The port's hello. Precondition: greet().
    const shm_hello& answer() const noexcept { return answer_; }
    /// The port's registrations. Precondition: greet().
    const shm_registrations_view& registrations() const noexcept { return registrations_; }

    /// Returns once the far side has ended the connection.
    void wait_until_dropped();

private:
    shm_own_probe probe_{random_nonzero_u64()};
    shm_hello answer_;
    shm_registrations_view registrations_;
    unique_fd socket_;
    unique_fd pair_memory_, registrations_memory_;
    shm_pair::origins origins_;
    shm_pair pair_;
    shm_ring_writer writer_;
    shm_ring_reader reader_;
};

/// Sends the `seed`-th kind of garbage to the port at `address`; returns once it has disconnected
/// us.
void send_garbage_over_shm(const std::string& address, std::uint64_t seed);

}  // namespace amalgam::detail

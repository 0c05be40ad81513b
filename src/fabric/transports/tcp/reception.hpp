#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/core/unique_fd.hpp>

#include "fabric/sockets/poller.hpp"
#include "fabric/transports/tcp/deadlines.hpp"

namespace amalgam::detail {

class tcp_port;

/// Accepts connections to a listening port.
///
/// An accepted connection is a stranger until its hello arrives; the number of strangers is
/// limited. At the limit a new connection evicts the oldest one. If the process is out of
/// descriptors, a new connection evicts the oldest stranger, else a connection that has sent
/// nothing since its hello, else one that was idle for the silence limit. If there is none of
/// these, new connections wait in the kernel's backlog, and a timer retries a moment later, without
/// spinning.
///
/// Threads: the port's thread.
class reception final : public event_source, public timed {
public:
    reception(tcp_port& home, unique_fd listener);
    ~reception();

    void ready(std::uint32_t events) noexcept override;
    void due(clock::time_point now) noexcept override;

    /// A stranger completed its handshake, or ended.
    void stranger_settled() noexcept;

private:
    bool somebody_waits() const noexcept;
    void hold(int why) noexcept;

    tcp_port& home_;
    unique_fd listener_;
    std::size_t strangers_ = 0;
    bool held_ = false;
};

}  // namespace amalgam::detail

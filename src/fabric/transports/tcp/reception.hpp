#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/core/unique_fd.hpp>

#include "fabric/transports/tcp/deadlines.hpp"
#include "fabric/transports/tcp/poller.hpp"

namespace amalgam::detail {

class tcp_port;

/// Takes in those who connect to a listening port.
///
/// Who has not said hello yet is a stranger; there may be only so many at a time. At that limit a
/// newcomer takes the place of the oldest. When the process has no descriptors left, it takes that
/// of the oldest stranger, else of who said hello and nothing since, else of who was idle for the
/// silence limit. When there is none of these, newcomers wait in the kernel's queue, and it looks
/// again a moment later, without spinning.
///
/// Threads: the port's.
class reception final : public event_source, public timed {
public:
    reception(tcp_port& home, unique_fd listener);

    void ready(std::uint32_t events) noexcept override;
    void due(clock::time_point now) noexcept override;

    /// A stranger said hello, or went.
    void stranger_settled() noexcept;
    void close() noexcept { listener_.reset(); }

private:
    bool somebody_waits() const noexcept;
    void hold(int why) noexcept;

    tcp_port& home_;
    unique_fd listener_;
    std::size_t strangers_ = 0;
    bool held_ = false;
};

}  // namespace amalgam::detail

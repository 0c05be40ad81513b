#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <poll.h>

#include "fabric/transports/ofi/library.hpp"

namespace amalgam::detail {

/// Descriptors to sleep on.
struct ofi_descriptors {
    std::array<pollfd, 16> all{};
    std::size_t count = 0;

    std::span<const pollfd> used() const noexcept { return std::span(all).first(count); }
};

/// A completion queue, and what to sleep on until it has something.
///
/// A provider that wakes by one descriptor (FI_WAIT_FD) keeps its sockets in an epoll set, which
/// costs 0.9 us for each transfer. One that tells all of its descriptors (FI_WAIT_POLLFD) asks
/// poll(), which is cheaper for few of them and dearer for many.
///
/// Threads: the port's thread.
class ofi_queue {
public:
    /// How many endpoints a queue for few may have.
    static constexpr std::size_t few = 8;

    /// 0, or libfabric's error. Precondition: not open.
    int open(fid_domain* domain, std::size_t entries) noexcept;
    /// The same for at most `few` endpoints. False: the provider tells no descriptors to sleep on.
    bool open_for_few(fid_fabric* fabric, fid_domain* domain, std::size_t entries) noexcept;

    explicit operator bool() const noexcept { return queue_ != nullptr; }
    fid_cq* get() const noexcept { return queue_.get(); }
    /// False: no descriptor tells when it has something.
    bool wakes() const noexcept { return for_few_ || descriptor_ >= 0; }
    /// Adds its descriptors. False: it has something.
    bool arm(fid_fabric* fabric, ofi_descriptors& into) noexcept;

private:
    bool arm_few(ofi_descriptors& into) noexcept;

    ofi_handle<fid_cq> queue_;
    int descriptor_ = -1;
    bool for_few_ = false;
};

}  // namespace amalgam::detail

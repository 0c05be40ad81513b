#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ucp/api/ucp.h>

#include <amalgam/core/result.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// One way UCX can move bytes here, as UCX names it: transport "tcp" by device "eth0".
struct ucx_resource {
    std::string transport;
    std::string device;
};

/// What this machine has. Cost: opens the devices, some milliseconds.
std::vector<ucx_resource> ucx_resources();
/// "posix, self, sysv, tcp": the transports of a list, each once.
std::string transports_of(const std::vector<ucx_resource>& all);
/// Whether one of them serves PROTO as a URI names it: all, shm, tcp, self, rc, ud, dc, or what UCX
/// itself calls it.
bool serves(const std::vector<ucx_resource>& all, std::string_view protocol);

/// Whether a PROTO moves bytes between processes by shared memory, and whether by nothing else.
bool uses_shared_memory(std::string_view protocol);
bool stays_on_host(std::string_view protocol);

/// Our code for one of UCX's, with that one kept for logs.
status from_ucx(ucs_status_t what, errc otherwise = errc::disconnected) noexcept;

/// A use of UCX in this process. The thread by which UCX connects runs while there is one, and does
/// not come along to a child of fork(): what was in use then connects nothing there, for good.
///
/// Threads: any.
class ucx_use {
public:
    /// Failure: throws error in such a child.
    ucx_use();
    ~ucx_use();
    ucx_use(const ucx_use&) = delete;
};

/// A context of UCX and a worker, which one port uses alone.
///
/// Threads: the port's.
class ucx_worker {
public:
    /// `device`: the only network device to use; empty: any. `ipv6`: prefer such addresses.
    /// Failure: throws error with what UCX says; in a child of fork() whose parent had a worker.
    ucx_worker(const std::string& protocol, const std::string& device, bool ipv6);
    ~ucx_worker();
    ucx_worker(const ucx_worker&) = delete;

    ucp_worker_h get() const noexcept { return worker_; }
    int event_fd() const noexcept { return event_fd_; }
    /// By which other workers reach it. Failure: throws as the constructor.
    std::vector<std::byte> name() const;

private:
    const ucx_use use_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    int event_fd_ = -1;
};

}  // namespace amalgam::detail

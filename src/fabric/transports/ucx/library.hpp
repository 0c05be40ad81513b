#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ucp/api/ucp.h>

#include <amalgam/core/result.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// One way UCX can move bytes here, in UCX's names: transport "tcp" on device "eth0".
struct ucx_resource {
    std::string transport;
    std::string device;
};

/// Why no port can be opened over a transport that UCX may have; empty if one can.
std::string_view why_not_usable(std::string_view protocol) noexcept;

/// Lists this machine's resources that ports can use. Cost: opens the devices, some milliseconds.
std::vector<ucx_resource> ucx_resources();
/// The transports of a list, each once: "posix, sysv, tcp".
std::string transports_of(const std::vector<ucx_resource>& all);
/// Whether any of them serves PROTO as a URI names it: all, shm, tcp, rc, ud, dc, or a UCX name.
bool serves(const std::vector<ucx_resource>& all, std::string_view protocol);

/// Whether a PROTO uses shared memory between processes, and whether it uses nothing else.
bool uses_shared_memory(std::string_view protocol);
bool stays_on_host(std::string_view protocol);

/// How many errors UCX has logged in this thread. Of some it tells nowhere else.
std::uint64_t ucx_errors() noexcept;

/// How long packets may be that UCX surely does not split over a PROTO.
std::size_t unsplit_bytes(std::string_view protocol);

/// Our code for a UCX status, which is kept for logs.
status from_ucx(ucs_status_t what, errc otherwise = errc::disconnected) noexcept;

/// A use of UCX in this process. UCX's connection thread runs while any exists. It does not survive
/// fork(): in a child, whatever was in use then can never connect again.
///
/// Threads: any.
class ucx_use {
public:
    /// Failure: throws error in such a child.
    ucx_use();
    ~ucx_use();
    ucx_use(const ucx_use&) = delete;
};

/// A UCX context and worker, used by one port only.
///
/// Threads: the port's thread.
class ucx_worker {
public:
    /// `device`: the only network device to use; empty: any. `ipv6`: prefer IPv6 addresses.
    /// Failure: throws error with UCX's message, or in a fork() child whose parent had a worker.
    ucx_worker(const std::string& protocol, const std::string& device, bool ipv6);
    ~ucx_worker();
    ucx_worker(const ucx_worker&) = delete;

    ucp_worker_h get() const noexcept { return worker_; }
    int event_fd() const noexcept { return event_fd_; }
    /// The address by which other workers reach it. Failure: throws as the constructor.
    std::vector<std::byte> name() const;

private:
    const ucx_use use_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    int event_fd_ = -1;
};

}  // namespace amalgam::detail

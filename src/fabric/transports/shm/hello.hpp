#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>

#include "fabric/transports/shm/memory/layout.hpp"

namespace amalgam::detail {

/// First message of each side, sent with descriptors. The connector's comes first, with the pair's
/// memory and its registrations; the acceptor answers with its registrations, or refuses.
struct shm_hello {
    static constexpr std::uint64_t magic_value = 0x316d68736d6c6141u;  ///< "Aalmshm1" in memory.
    static constexpr std::uint32_t joined_barriers = 1;                ///< See sleep_barrier.hpp.

    std::uint64_t magic = magic_value;
    std::uint32_t version = shm_version;
    std::uint32_t flags = 0;
    std::uint64_t incarnation = 0;
    std::uint64_t probe = 0;               ///< Address of the sender's shm_probe in its own memory.
    std::uint64_t origin_to_acceptor = 0;  ///< First position of that ring. From the connector.
    std::uint64_t origin_to_connector = 0;  ///< Likewise.
    std::uint32_t refused = 0;              ///< From the acceptor: an errc if it refuses.
    std::uint32_t name_bytes = 0;
    char name[uri::max_name_bytes] = {};  ///< Where the sender listens; may be empty.

    std::string_view listens_at() const noexcept { return {name, name_bytes}; }
    void set_name(std::string_view given) noexcept;
    bool has(std::uint32_t flag) const noexcept { return (flags & flag) != 0; }
};
static_assert(sizeof(shm_hello) == 120);

/// A received hello and its descriptors.
struct shm_received_hello {
    shm_hello said;
    unique_fd pair;  ///< Only from a connector.
    unique_fd registrations;
};

/// Sends a hello; `pair` < 0: without a pair. False: see errno.
bool send_hello(int socket, const shm_hello& say, int pair, int registrations) noexcept;

enum class shm_hearing : std::uint8_t {
    nothing_yet,
    heard,
    ended,    ///< The other side is gone.
    nonsense  ///< Not a hello.
};
/// Reads a hello. Checks that its descriptors are memory of the right size. A hello of
/// another version, or a refusal, is `heard` without descriptors.
shm_hearing receive_hello(int socket, bool with_pair, shm_received_hello& into) noexcept;

/// Identity of the other end, from the kernel.
struct shm_credentials {
    pid_t pid = 0;  ///< 0: in another PID namespace.
    bool same_user = false;
    uid_t uid = 0;
    gid_t gid = 0;
    bool known = false;  ///< The kernel has told.
};
shm_credentials who_is(int socket) noexcept;

/// Listens under a name in the kernel's abstract namespace, which vanishes with the process. The
/// user is part of the name. Failure: empty; see errno (EADDRINUSE: a live process has it).
unique_fd listen_at(std::string_view name) noexcept;
/// Connects to that name of a user without waiting. Whoever listens there may be another: see
/// who_is(). Failure: empty; see errno (ECONNREFUSED: no listener, EAGAIN: backlog full).
unique_fd connect_to(std::string_view name, uid_t user) noexcept;
/// As above, to a name of this process' user.
unique_fd connect_to(std::string_view name) noexcept;

/// Whether a connected socket's other end still exists. Cost: one system call.
bool still_there(int socket) noexcept;

}  // namespace amalgam::detail

#pragma once

#include <memory>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// `shm://[NAME]`: shared memory between processes of one host, of one user unless allowed.
///
/// Options: `listen=no` for a port that only calls; `rma=ring` to move all bytes through the rings,
/// even where the kernel would copy directly between processes; `users=1000,1001` or `users=any`
/// for processes of other users. An address names the user whose port it is by `uid=1000`.
std::unique_ptr<transport> make_shm_transport();

}  // namespace amalgam::detail

#pragma once

#include <memory>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// `shm://[NAME]`: shared memory between processes of one user on one host.
///
/// Options: `listen=no` for a port that only calls; `rma=ring` to move all bytes through the rings,
/// even where the kernel would copy directly between processes.
std::unique_ptr<transport> make_shm_transport();

}  // namespace amalgam::detail

#pragma once

#include <memory>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// `shm://[NAME]`: processes of one user on one host, through shared memory.
///
/// Options: `listen=no` for a port that only calls; `rma=ring` to move all bytes through the
/// rings, also where the kernel would copy from memory to memory.
std::unique_ptr<transport> make_shm_transport();

}  // namespace amalgam::detail

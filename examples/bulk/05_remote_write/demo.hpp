#pragma once

#include <cstdint>
#include <string>

namespace remote_write {

struct demo_options {
    std::uint64_t bytes = std::uint64_t{64} << 20;  ///< Per client.
    unsigned clients = 4;
    std::string uri = "shm://";  ///< Where the server listens.
};

/// A server and its clients, each a process: all send different files at once and read them back.
/// Prints a table. Returns whether all hashes matched in both directions. Precondition: the process
/// has no other threads.
bool demo(const demo_options& options);

}  // namespace remote_write

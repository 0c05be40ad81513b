#pragma once

#include <cstdint>
#include <string>

namespace remote_write {

struct demo_options {
    std::uint64_t bytes = std::uint64_t{64} << 20;  ///< Of each client's file.
    unsigned clients = 4;
    std::string uri = "shm://";  ///< Where the server listens.
};

/// A server and its clients, each a process: all ship different files at once and read them back.
/// Prints a table. Returns whether every hash was the same both ways.
/// Precondition: the process has no other threads.
bool demo(const demo_options& options);

}  // namespace remote_write

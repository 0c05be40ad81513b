#pragma once

#include <functional>
#include <string>

namespace remote_write {

struct server_options {
    std::string uri;            ///< Where to listen.
    std::string directory;      ///< Clients see the files in it, and nothing else.
    unsigned transfers = 4;     ///< At once; more wait. Each takes chunk_bytes * chunks_in_flight.
    unsigned disk_streams = 2;  ///< OS threads that may be busy with the disk at once.
};

/// Serves until the process gets SIGTERM or SIGINT. Calls `ready` once with the address.
/// Precondition: the process has no other threads, as these signals are blocked for all.
/// Failure: throws std::exception with one sentence.
void serve(const server_options& options, const std::function<void(const std::string&)>& ready);

}  // namespace remote_write

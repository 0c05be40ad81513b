#pragma once

#include <cstdint>
#include <string>

#include <amalgam/rpc.hpp>

#include "protocol.hpp"

namespace remote_write {

/// Result of a transfer.
struct transfer {
    std::uint64_t bytes = 0;
    double seconds = 0;  ///< From before the open until after the close; excludes hashing.
    std::string sha256;  ///< Of the local file.

    double mib_per_second() const noexcept;
};

/// Writes files to a server, and reads them back.
///
/// Threads: any ULT or thread.
/// Failure: throws std::exception with one sentence. The server closes what is open once this
///          object, its only user, is gone.
class client {
public:
    explicit client(const std::string& address);

    /// Sends a local file, from that many pieces of memory. `sync`: it is on the server's disk when
    /// this returns, and that time counts.
    transfer put(const std::string& file, const std::string& name, unsigned pieces = 1,
                 bool sync = false);
    transfer get(const std::string& name, const std::string& file);
    file_info stat(const std::string& name);

private:
    am::engine engine_;
    am::peer server_;
};

}  // namespace remote_write

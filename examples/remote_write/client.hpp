#pragma once

#include <cstdint>
#include <string>

#include <amalgam/amalgam.hpp>

#include "protocol.hpp"

namespace remote_write {

/// What a transfer came to.
struct transfer {
    std::uint64_t bytes = 0;
    double seconds = 0;  ///< From before the open until after the close; hashing is not in it.
    std::string sha256;  ///< Of the local file.

    double mib_per_second() const noexcept;
};

/// Puts files to a server, and gets them back.
///
/// Threads: any ULT or thread.
/// Failure: throws std::exception with one sentence. What is open at the server then is closed
///          when this object, its only user, is gone.
class client {
public:
    explicit client(const std::string& address);

    /// Ships a local file, out of so many pieces of memory. `sync`: it is on the server's disk when
    /// this returns, and the time for that is in the transfer's.
    transfer put(const std::string& file, const std::string& name, unsigned pieces = 1,
                 bool sync = false);
    transfer get(const std::string& name, const std::string& file);
    file_info stat(const std::string& name);

private:
    am::engine engine_;
    am::peer server_;
};

}  // namespace remote_write

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <amalgam/bulk.hpp>

/// Requests of a client to a server: the procedures of an I/O forwarder. The bytes of files do not
/// travel in the calls: a call carries a bulk of the client's memory, and the server pulls from it
/// or pushes to it, chunk by chunk.
namespace remote_write {

enum class open_mode : std::uint8_t {
    read = 0,    ///< The file must exist.
    replace = 1  ///< For writing: created if missing, emptied if present.
};

struct opened_file {
    std::uint64_t handle = 0;  ///< Valid only for the peer that opened it, while that is connected.
    std::uint64_t bytes = 0;

    template <typename Archive>
    void serialize(Archive& a) {
        a(handle, bytes);
    }
};

struct file_info {
    std::uint64_t bytes = 0;
    std::int64_t modified_seconds = 0;  ///< Since 1970.

    template <typename Archive>
    void serialize(Archive& a) {
        a(bytes, modified_seconds);
    }
};

/// Opens a file by its name in the server's directory.
inline constexpr const char* open_name = "remote_write.open";
using open_signature = opened_file(std::string name, open_mode);
/// Writes all of `from` to the file, from `offset`; returns the number of bytes.
inline constexpr const char* write_name = "remote_write.write";
using write_signature = std::uint64_t(std::uint64_t handle, std::uint64_t offset,
                                      amalgam::bulk from);
/// Fills `into` from the file, from `offset`; returns the number of bytes there were.
inline constexpr const char* read_name = "remote_write.read";
using read_signature = std::uint64_t(std::uint64_t handle, std::uint64_t offset,
                                     amalgam::bulk into);
/// On return, data written to the file and its name are on the disk.
inline constexpr const char* sync_name = "remote_write.sync";
using sync_signature = void(std::uint64_t handle);
inline constexpr const char* stat_name = "remote_write.stat";
using stat_signature = file_info(std::string name);
inline constexpr const char* close_name = "remote_write.close";
using close_signature = void(std::uint64_t handle);

/// Memory of a transfer at the server: that many chunks of that size, whatever the file's size.
inline constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
inline constexpr std::size_t chunks_in_flight = 4;

}  // namespace remote_write

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/frames/wire_header.hpp"
#include "fabric/trust/tls/tls_session.hpp"

namespace amalgam::detail {

/// The first frame on a connection in each direction; nothing else is accepted before it. The
/// format is in docs/wire/tcp.md.
struct hello {
    static constexpr std::uint64_t magic = 0x310a6d67'6c616d41u;  ///< "Amalgm\n1" on the wire.
    static constexpr std::uint16_t current_version = 2;
    static constexpr std::size_t fixed_bytes = 16;         ///< Fixed part of the payload.
    static constexpr std::size_t max_address_bytes = 256;  ///< A longer address is truncated.

    std::uint16_t version = current_version;
    std::uint64_t incarnation = 0;
    std::string address{};  ///< Where the sender listens, for logs only; may be empty.

    /// Whether a stream that begins with these 16 bytes begins with a hello, of any version.
    static bool begins(const_bytes first) noexcept;
};

/// A hello in wire format, including its header.
class encoded_hello {
public:
    explicit encoded_hello(const hello& from) noexcept;
    const_bytes bytes() const noexcept { return {wire_.data(), size_}; }

private:
    std::array<std::byte, sizeof(frame_header) + hello::fixed_bytes + hello::max_address_bytes>
        wire_{};
    std::size_t size_;
};

/// Reads one hello from a connection, and not a byte more.
///
/// Threads: the port's thread.
class hello_reader {
public:
    enum class state : std::uint8_t {
        starving,  ///< Incomplete.
        complete,  ///< See result(); its version may differ from ours.
        stranger,  ///< The data is not a hello.
        ended,     ///< The other side closed the connection.
        broken     ///< errno says why.
    };

    /// Reads available bytes, of `through` if it is not null. Failure: throws std::bad_alloc.
    state read(int fd, tls_session* through = nullptr);
    const hello& result() const noexcept { return result_; }
    /// The first bytes received, printable, for the log line about a stranger.
    std::string beginning() const;
    /// What arrived begins as TLS does.
    bool is_tls() const noexcept;

private:
    std::size_t wanted() const noexcept;
    bool decode();

    std::array<std::byte, sizeof(frame_header) + hello::fixed_bytes + hello::max_address_bytes>
        wire_;
    std::size_t size_ = 0;
    hello result_;
};

}  // namespace amalgam::detail

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace amalgam::detail {

/// An IP address and a port, as the kernel takes it.
struct listen_address {
    ::sockaddr_storage bytes{};
    ::socklen_t size = 0;

    const ::sockaddr* get() const noexcept { return reinterpret_cast<const ::sockaddr*>(&bytes); }
    ::sockaddr* get() noexcept { return reinterpret_cast<::sockaddr*>(&bytes); }
};

/// "127.0.0.1:9464".
std::string text_of(const listen_address& where);

/// Where HTTP is served, and to whom: "127.0.0.1:9464", or
/// "0.0.0.0:9464?credentials=node7&token=FILE".
struct http_place {
    listen_address where;
    bool is_loopback = false;
    std::string credentials;  ///< Name or folder of a key; empty: not encrypted.
    std::string token;        ///< What the file says; empty: none was named.
};

/// `has_own_token`: who answers has one, and refuses those who do not. Makes the file of a token
/// that is not there.
/// Failure: throws error{invalid} for what is no address; error{denied} for one that other hosts
///          reach, if it lacks credentials or a token, and for a file that others may read.
http_place parse_http_place(std::string_view text, bool has_own_token);

/// By which a client names that place: the host of `where` if it is among `hosts` or they are none,
/// else the first of them that other hosts may know.
std::string host_for_clients(const listen_address& where, const std::vector<std::string>& hosts);

}  // namespace amalgam::detail

#include "fabric/transports/tcp/hello.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

namespace amalgam::detail {
namespace {

constexpr std::size_t length_at = sizeof(frame_header) + 8;
constexpr std::size_t text_at = sizeof(frame_header) + hello::fixed_bytes;

}  // namespace

encoded_hello::encoded_hello(const hello& from) noexcept
    : size_(text_at + std::min(from.address.size(), hello::max_address_bytes)) {
    frame_header header;
    header.bytes = static_cast<std::uint32_t>(size_ - sizeof header);
    header.kind = frame_kind::first_of_transport;
    header.extra = from.version;
    header.tag = hello::magic;
    const wire_header head = to_wire(header);
    std::memcpy(wire_.data(), head.data(), head.size());
    store_le(wire_.data() + sizeof header, from.incarnation);
    store_le(wire_.data() + length_at, static_cast<std::uint16_t>(size_ - text_at));
    std::memcpy(wire_.data() + text_at, from.address.data(), size_ - text_at);
}

bool hello::begins(const_bytes first) noexcept {
    if (first.size() < sizeof(frame_header)) return false;
    const frame_header header = from_wire(first.data());
    return header.kind == frame_kind::first_of_transport && header.tag == hello::magic &&
           header.bytes >= hello::fixed_bytes &&
           header.bytes <= hello::fixed_bytes + hello::max_address_bytes;
}

std::size_t hello_reader::wanted() const noexcept {
    const std::size_t head = sizeof(frame_header);
    return size_ < head ? head : head + from_wire(wire_.data()).bytes;
}

bool hello_reader::decode() {
    const std::size_t length = load_le<std::uint16_t>(wire_.data() + length_at);
    if (length > size_ - text_at) return false;
    result_.version = from_wire(wire_.data()).extra;
    result_.incarnation = load_le<std::uint64_t>(wire_.data() + sizeof(frame_header));
    result_.address.assign(reinterpret_cast<const char*>(wire_.data()) + text_at, length);
    // The rest is for other versions to define.
    return result_.incarnation != 0 || result_.version != hello::current_version;
}

hello_reader::state hello_reader::read(int fd, tls_session* through) {
    while (size_ < wanted()) {
        const iovec next{wire_.data() + size_, wanted() - size_};
        const ssize_t got = through != nullptr
                                ? through->read({&next, 1}, false)
                                : ::recv(fd, next.iov_base, next.iov_len, MSG_DONTWAIT);
        if (got == 0) return state::ended;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN ? state::starving : state::broken;
        size_ += static_cast<std::size_t>(got);
        if (size_ >= sizeof(frame_header) && !hello::begins({wire_.data(), size_}))
            return state::stranger;
    }
    return decode() ? state::complete : state::stranger;
}

bool hello_reader::is_tls() const noexcept {
    // A record of an alert or a handshake, of any version: RFC 8446, 5.1.
    const std::byte alert{21}, handshake{22}, version{3};
    return size_ >= 2 && (wire_[0] == alert || wire_[0] == handshake) && wire_[1] == version;
}

std::string hello_reader::beginning() const {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(size_, sizeof(frame_header)); ++i) {
        const auto c = static_cast<unsigned char>(wire_[i]);
        text += c >= ' ' && c < 127 ? static_cast<char>(c) : '.';
    }
    return text;
}

}  // namespace amalgam::detail

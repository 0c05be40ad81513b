#include <amalgam/fabric/region.hpp>

namespace amalgam {

std::array<std::byte, remote_key::wire_bytes> remote_key::encode() const noexcept {
    std::array<std::byte, wire_bytes> wire{};
    store_le(&wire[0], secret);
    store_le(&wire[8], region);
    store_le(&wire[16], incarnation);
    store_le(&wire[24], bytes);
    store_le(&wire[32], rights);
    return wire;
}

remote_key remote_key::decode(std::span<const std::byte, wire_bytes> wire) noexcept {
    remote_key key;
    key.secret = load_le<std::uint64_t>(&wire[0]);
    key.region = load_le<std::uint64_t>(&wire[8]);
    key.incarnation = load_le<std::uint64_t>(&wire[16]);
    key.bytes = load_le<std::uint64_t>(&wire[24]);
    key.rights = load_le<access>(&wire[32]);
    return key;
}

}  // namespace amalgam

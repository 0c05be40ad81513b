#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/sealing/packet_keys.hpp"
#include "fuzz/fuzz.hpp"

// What arrives on a sealed connection: a first byte that says which cipher, and a packet. It is
// opened if it is what the other end sealed, byte by byte, in its turn; else refused.
namespace amalgam::fuzz {

namespace {

using namespace detail;

constexpr link_secrets::key secret{std::byte{1}, std::byte{2}};

packet_cipher cipher_of(std::byte first) noexcept {
    return (static_cast<unsigned>(first) & 1u) != 0 && (ciphers_here() & 1u) != 0
               ? packet_cipher::aes_256_gcm
               : packet_cipher::xchacha20_poly1305;
}

const std::vector<std::string>& genuine() {
    static const std::vector<std::string> all = [] {
        std::vector<std::string> made;
        for (const char first : {'\0', '\1'})
            for (const std::string& plain :
                 {std::string(), std::string("payload"), std::string(500, 'x')}) {
                packet_key by(cipher_of(static_cast<std::byte>(first)), secret);
                std::string sealed(1 + plain.size() + packet_key::tag_bytes, first);
                by.seal(as_bytes_of(plain), reinterpret_cast<std::byte*>(sealed.data()) + 1);
                made.push_back(std::move(sealed));
            }
        return made;
    }();
    return all;
}

bool is_genuine(const_bytes packet, packet_cipher cipher) {
    for (const std::string& each : genuine())
        if (cipher_of(static_cast<std::byte>(each[0])) == cipher &&
            packet.size() == each.size() - 1 &&
            std::memcmp(packet.data(), each.data() + 1, packet.size()) == 0)
            return true;
    return false;
}

}  // namespace

void run_one(const_bytes input) {
    if (input.empty()) return;
    const packet_cipher cipher = cipher_of(input[0]);
    // Memory of exactly that length, so that sanitizers see an access beyond it.
    const std::size_t bytes = input.size() - 1;
    const std::unique_ptr<std::byte[]> packet(new std::byte[bytes]);
    if (bytes != 0) std::memcpy(packet.get(), input.data() + 1, bytes);
    const std::size_t room = bytes < packet_key::tag_bytes ? 0 : bytes - packet_key::tag_bytes;
    const std::unique_ptr<std::byte[]> plain(new std::byte[room]);
    packet_key by(cipher, secret);
    const bool opened = by.open({packet.get(), bytes}, plain.get());
    require(opened == is_genuine({packet.get(), bytes}, cipher), "only what was sealed opens");
    require(!opened || !by.open({packet.get(), bytes}, plain.get()), "and opens once");
}

std::span<const std::string_view> seeds() {
    static const std::vector<std::string_view> views(genuine().begin(), genuine().end());
    return views;
}

}  // namespace amalgam::fuzz

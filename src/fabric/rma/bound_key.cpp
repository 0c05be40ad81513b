#include <array>
#include <bit>
#include <cstring>

#include <sys/auxv.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/fabric/extension/bound_key.hpp>

namespace amalgam::detail {

namespace {

/// Of all that a secret may be made for, so that none is taken for another.
enum class holder_kind : std::uint64_t { nobody, connection, certificate, user };

/// A random key of the process. A transport's plug-in has a copy of this code and checks what the
/// program's made, so it comes from what the kernel gave the process, not from either's own
/// numbers; and by a hash, as the C library uses the same bytes.
std::array<std::uint64_t, 2> key_of_process() noexcept {
    const auto* const given = reinterpret_cast<const std::byte*>(::getauxval(AT_RANDOM));
    if (given == nullptr) return {random_u64(), random_u64()};
    const auto low = load_le<std::uint64_t>(given), high = load_le<std::uint64_t>(given + 8);
    constexpr std::array<std::byte, 2> labels{std::byte{1}, std::byte{2}};
    return {sip_hash(low, high, const_bytes(labels).first(1)),
            sip_hash(low, high, const_bytes(labels).last(1))};
}

remote_key bound(const remote_key& key, holder_kind kind, const_bytes holder) noexcept {
    static const std::array<std::uint64_t, 2> own = key_of_process();
    std::array<std::byte, 3 * sizeof(std::uint64_t) + sizeof(key_fingerprint)> text{};
    store_le(text.data(), key.secret);
    store_le(text.data() + 8, key.region);
    store_le(text.data() + 16, static_cast<std::uint64_t>(kind));
    std::memcpy(text.data() + 24, holder.data(), holder.size());
    remote_key made = key;
    made.secret = sip_hash(own[0], own[1], text);
    return made;
}

}  // namespace

remote_key bound_to(const remote_key& key, const key_fingerprint& holder) noexcept {
    return bound(key, holder_kind::certificate, std::as_bytes(std::span(holder.bytes)));
}

remote_key bound_to(const remote_key& key, peer_id holder) noexcept {
    return bound(key, holder_kind::connection, std::as_bytes(std::span(&holder.value, 1)));
}

remote_key bound_to_user(const remote_key& key, std::uint32_t uid) noexcept {
    return bound(key, holder_kind::user, std::as_bytes(std::span(&uid, 1)));
}

remote_key bound_to_nobody(const remote_key& key) noexcept {
    const std::uint64_t once = random_u64();
    return bound(key, holder_kind::nobody, std::as_bytes(std::span(&once, 1)));
}

std::uint64_t sip_hash(std::uint64_t key_low, std::uint64_t key_high, const_bytes text) noexcept {
    std::uint64_t a = key_low ^ 0x736f6d6570736575u, b = key_high ^ 0x646f72616e646f6du,
                  c = key_low ^ 0x6c7967656e657261u, d = key_high ^ 0x7465646279746573u;
    const auto rounds = [&](int count) {
        for (; count > 0; --count) {
            a += b, c += d;
            b = std::rotl(b, 13) ^ a, d = std::rotl(d, 16) ^ c;
            a = std::rotl(a, 32);
            c += b, a += d;
            b = std::rotl(b, 17) ^ c, d = std::rotl(d, 21) ^ a;
            c = std::rotl(c, 32);
        }
    };
    const auto take = [&](std::uint64_t word) {
        d ^= word;
        rounds(2);
        a ^= word;
    };
    const std::uint64_t length = std::uint64_t{text.size()} << 56;
    for (; text.size() >= 8; text = text.subspan(8))
        take(load_le<std::uint64_t>(text.data()));
    std::array<std::byte, 8> last{};
    std::memcpy(last.data(), text.data(), text.size());
    take(load_le<std::uint64_t>(last.data()) | length);
    c ^= 0xff;
    rounds(4);
    return a ^ b ^ c ^ d;
}

}  // namespace amalgam::detail

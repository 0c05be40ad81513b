#include "fabric/trust/tls/secret_places.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <malloc.h>

namespace amalgam::detail {
namespace {

/// Where the secret begins; 0: nowhere, or in several places.
std::uint16_t only_place(const unsigned char* block, std::size_t bytes,
                         const traffic_secret& secret) noexcept {
    const unsigned char* const end = block + bytes;
    const auto next = [&](const unsigned char* from) {
        return std::search(from, end, secret.bytes.begin(), secret.bytes.begin() + secret.size);
    };
    const unsigned char* const at = next(block);
    const auto place = static_cast<std::size_t>(at - block);
    return at == end || next(at + 1) != end || place > UINT16_MAX
               ? std::uint16_t{0}
               : static_cast<std::uint16_t>(place);
}

void copy(const unsigned char* from, std::size_t bytes, traffic_secret& into) noexcept {
    std::memcpy(into.bytes.data(), from, bytes);
    into.size = static_cast<std::uint8_t>(bytes);
}

}  // namespace

secret_places& secret_places::of_process() noexcept {
    static secret_places one;
    return one;
}

secret_places::layout secret_places::found_in(SSL* of, const traffic_secret& client,
                                              const traffic_secret& server) noexcept {
    if (!openssl_allocates_by_malloc() || client.size == 0 || client.size != server.size) return {};
    const std::size_t bytes = ::malloc_usable_size(of);
    const auto* const block = reinterpret_cast<const unsigned char*>(of);
    const layout found{only_place(block, bytes, client), only_place(block, bytes, server)};
    return found.client_at == 0 || found.server_at == 0 ? layout{} : found;
}

void secret_places::learn(SSL* of, const traffic_secret& client,
                          const traffic_secret& server) noexcept {
    const std::lock_guard one(lock_);
    if (is_hopeless_ || are_known()) return;
    const layout found = found_in(of, client, server);
    const bool is_first = last_ == layout{};
    if (found == layout{} || (!is_first && found != last_))
        is_hopeless_ = true;
    else if (!is_first)
        known_.store(std::bit_cast<std::uint32_t>(found), std::memory_order_release);
    last_ = found;
}

bool secret_places::read(SSL* of, std::size_t bytes, traffic_secret& client,
                         traffic_secret& server) const noexcept {
    const auto where = std::bit_cast<layout>(known_.load(std::memory_order_acquire));
    const std::size_t last = std::max(where.client_at, where.server_at);
    if (bytes > client.bytes.size() || last + bytes > ::malloc_usable_size(of)) return false;
    const auto* const block = reinterpret_cast<const unsigned char*>(of);
    copy(block + where.client_at, bytes, client);
    copy(block + where.server_at, bytes, server);
    return true;
}

}  // namespace amalgam::detail

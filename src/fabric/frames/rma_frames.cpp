#include "fabric/frames/rma_frames.hpp"

#include <algorithm>
#include <new>

namespace amalgam::detail {

void write_request(std::byte* to, const rma_request& request) noexcept {
    const auto key = request.key.encode();
    std::copy(key.begin(), key.end(), to);
    store_le(to + 40, request.offset);
    store_le(to + 48, request.bytes);
}

rma_request read_request(const std::byte* from) noexcept {
    rma_request request;
    request.key = remote_key::decode(std::span<const std::byte, remote_key::wire_bytes>(from, 40));
    request.offset = load_le<std::uint64_t>(from + 40);
    request.bytes = load_le<std::uint64_t>(from + 48);
    return request;
}

void write_status(std::byte* to, status what) noexcept {
    std::fill_n(to, rma_status_bytes, std::byte{0});
    store_le(to, what.code);
    store_le(to + 4, what.native);
}

status read_status(const std::byte* from) noexcept {
    return {load_le<errc>(from), load_le<std::int32_t>(from + 4)};
}

piece_pool::~piece_pool() {
    while (free_ != nullptr)
        delete std::exchange(free_, free_->next_free);
}

lent_piece* piece_pool::take() noexcept {
    if (free_ == nullptr) return new (std::nothrow) lent_piece;
    return std::exchange(free_, free_->next_free);
}

void piece_pool::give_back(lent_piece& piece) noexcept {
    piece.port_words[0] = 0;
    piece.segments.clear();
    piece.operation = nullptr;
    piece.notifies = false;
    piece.region = 0;
    piece.next_free = free_;
    free_ = &piece;
}

}  // namespace amalgam::detail

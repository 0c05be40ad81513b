#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/frame.hpp"

namespace amalgam::detail {

/// A put or get longer than this travels as several frames.
inline constexpr std::size_t rma_piece_bytes = std::size_t{256} << 10;
/// Unanswered pieces to one peer. Both sides count on it: what a target owes to a peer that keeps
/// to it always fits in its queue, so two ports that serve each other never wait in a circle.
inline constexpr std::size_t rma_window = 64;

inline constexpr std::size_t rma_request_bytes = sizeof(rma_request);
inline constexpr std::size_t rma_data_prefix_bytes = 8;  ///< The offset before get_data's bytes.
inline constexpr std::size_t rma_status_bytes = 8;

/// Little-endian, whatever the machine. Precondition of reading: as many bytes as stated above.
void write_request(std::byte* to, const rma_request& request) noexcept;
rma_request read_request(const std::byte* from) noexcept;
void write_status(std::byte* to, status what) noexcept;
status read_status(const std::byte* from) noexcept;

struct rma_operation;

/// A frame of the port's own whose payload a link may hold on to: a piece of a put on its way out,
/// or the answer to a get. The completion is what the link names; it is never run.
struct lent_piece : completion {
    lent_piece() noexcept : completion([](completion&, status, std::size_t) noexcept {}) {}

    std::array<std::byte, rma_request_bytes> head;  ///< The first bytes of the payload.
    std::vector<const_bytes> segments;              ///< All the payload.
    rma_operation* operation = nullptr;             ///< Of a put; else null.
    std::uint64_t region = 0;                       ///< Whose memory a get reads; else 0.
    lent_piece* next_free = nullptr;
};

/// Pieces, recycled with the memory of their vectors.
/// Failure: take() gives nullptr when there is no memory.
class piece_pool {
public:
    piece_pool() = default;
    piece_pool(const piece_pool&) = delete;
    piece_pool& operator=(const piece_pool&) = delete;
    ~piece_pool();

    lent_piece* take() noexcept;
    void give_back(lent_piece& piece) noexcept;

private:
    lent_piece* free_ = nullptr;
};

}  // namespace amalgam::detail

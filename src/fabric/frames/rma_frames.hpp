#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/frames/frame.hpp"

namespace amalgam::detail {

inline constexpr std::size_t rma_request_bytes = sizeof(rma_request);
/// A request and the notice: the first bytes of a put_notify. Not more than what begin_placement()
/// is shown of every frame.
inline constexpr std::size_t rma_notify_bytes = rma_request_bytes + 8;
static_assert(rma_notify_bytes == 64);
/// Key and offset, then one number or two. Such frames must arrive whole, so they are not longer
/// than what every parser holds together.
inline constexpr std::size_t rma_place_bytes = remote_key::wire_bytes + 8;
inline constexpr std::size_t rma_fetch_add_bytes = rma_place_bytes + 8;
inline constexpr std::size_t rma_compare_swap_bytes = rma_place_bytes + 16;
static_assert(rma_compare_swap_bytes <= 64);
inline constexpr std::size_t rma_fetched_bytes = 8;
inline constexpr std::size_t rma_data_prefix_bytes = 8;  ///< Offset before get_data's bytes.
inline constexpr std::size_t rma_status_bytes = 8;

/// Always little-endian. Precondition for reading: the sizes above are available.
void write_request(std::byte* to, const rma_request& request) noexcept;
rma_request read_request(const std::byte* from) noexcept;
void write_status(std::byte* to, status what) noexcept;
status read_status(const std::byte* from) noexcept;

struct rma_operation;

/// A frame of the port itself whose payload a link may borrow: a piece of an outgoing put, or the
/// reply to a get. The link identifies it by this completion, which never runs.
struct lent_piece : completion {
    lent_piece() noexcept : completion([](completion&, status, std::size_t) noexcept {}) {}

    std::array<std::byte, rma_notify_bytes> head;  ///< The first bytes of the payload.
    std::vector<const_bytes> segments;             ///< The whole payload.
    rma_operation* operation = nullptr;            ///< For a put; else null.
    bool notifies = false;                         ///< The last piece of a notified put.
    std::uint64_t region = 0;                      ///< The region that a get reads; else 0.
    lent_piece* next_free = nullptr;
};

/// A pool of pieces, which keep the memory of their vectors.
/// Failure: take() returns nullptr if out of memory.
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

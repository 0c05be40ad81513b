#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/sanitizer_order.hpp>
#include <amalgam/fabric/message.hpp>

namespace amalgam::detail {

/// The sending end of one connection, for messages so short that their bytes can be written right
/// where the peer reads them: nothing is copied twice, and no function of the port is called.
///
///     if (std::byte* to = lane.room()) { /* write up to max_bytes */ lane.send(to, tag, bytes); }
///
/// It is in front of a ring of lines of 64 bytes. A line begins with its position in the stream,
/// which says that it is there and is stored last, then the kind and size of what it holds in one
/// word, then the tag, then the message.
///
/// Owner:   the port; see short_lanes.
/// Threads: the port's.
class short_lane {
public:
    static constexpr std::size_t max_bytes = 40;

    /// Where the next message is written; null: only port::post_send() can take it now. Valid until
    /// something else is sent to this peer.
    std::byte* room() noexcept {
        if (!is_open_ || free_ == 0) return nullptr;
        std::byte* const to = line_at(tail_) + header_bytes;
        if (to == nullptr) __builtin_unreachable();  // So that who asks looks once.
        return to;
    }
    /// Sends the first `bytes` of what was written to `room`.
    void send(std::byte* room, std::uint64_t tag, std::size_t bytes) noexcept {
        // One addition counts both: the upper half is 1.
        static_assert(message_kind == std::uint64_t{1} << 32);
        sent_ += message_kind | bytes;
        transmit(room, tag, bytes);
    }

    /// Copies up to max_bytes, inline, as a call would cost more. Word by word, not wider: recently
    /// written data is in such pieces, and a wider load would wait until all of them have reached
    /// the cache.
    static void copy(std::byte* to, const_bytes from) noexcept {
        static_assert(max_bytes < 48);
        const std::byte* const source = from.data();
        const std::size_t whole = from.size() & ~std::size_t{7};
        const auto word = [&](std::size_t at) { std::memcpy(to + at, source + at, 8); };
        switch (whole) {
            case 40:
                word(32);
                [[fallthrough]];
            case 32:
                word(24);
                [[fallthrough]];
            case 24:
                word(16);
                [[fallthrough]];
            case 16:
                word(8);
                [[fallthrough]];
            case 8:
                word(0);
                [[fallthrough]];
            default:
                break;
        }
        if (from.size() != whole) copy_rest(to + whole, source + whole, from.size() - whole);
    }

protected:
    static constexpr std::size_t line_bytes = 64;
    static constexpr std::size_t header_bytes = 24;  ///< Position, kind and size, tag.
    static constexpr std::uint64_t message_kind = std::uint64_t{1} << 32;
    /// Lowest bits of the reader's word that say what a writer has to do.
    static constexpr std::uint64_t state_mask = 3;

    /// `count` lines, a power of two. `shared`: see sanitizer_order.
    short_lane(std::byte* lines, std::uint64_t count, std::uint64_t origin,
               sanitizer_order written) noexcept
        : lines_(lines), mask_(count - 1), tail_(origin), written_(written) {}
    short_lane(const short_lane&) = default;
    short_lane& operator=(const short_lane&) = default;
    ~short_lane() = default;

    std::byte* line_at(std::uint64_t position) const noexcept {
        return lines_ + (position & mask_) * line_bytes;
    }
    /// As send(), of a message that is counted elsewhere.
    void transmit(std::byte* room, std::uint64_t tag, std::size_t bytes) noexcept {
        publish(room - header_bytes, message_kind | bytes, tag, 1);
        tell_reader();
    }
    /// Appends the record of that many lines at `line`, that of tail_, whose payload is written.
    void publish(std::byte* line, std::uint64_t kind_and_size, std::uint64_t tag,
                 std::uint64_t count) noexcept {
        const std::uint64_t position = tail_;  // Read once: what is stored might be this object.
        std::memcpy(line + 8, &kind_and_size, 8);
        std::memcpy(line + 16, &tag, 8);
        written_.before_store();
        std::atomic_ref<std::uint64_t> sequence(*reinterpret_cast<std::uint64_t*>(line));
        if (fenced_)
            sequence.exchange(position, std::memory_order_seq_cst);
        else
            sequence.store(position, std::memory_order_release);
        tail_ = position + count;
        free_ -= count;
    }
    /// The load must not pass the record's store. This fence orders them for the compiler; for the
    /// processor, sleep_barrier() does, or both are seq_cst: an exchange alone is a full barrier on
    /// x86 only. There the load costs the same in any order.
    void tell_reader() noexcept {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        const std::uint64_t now = reader_->load(std::memory_order_seq_cst);
        if ((now & state_mask) != reader_awake_) [[unlikely]]
            changed_(owner_, now);
    }

    std::byte* lines_;
    std::uint64_t mask_;
    std::uint64_t tail_;      // Position of the next record.
    std::uint64_t free_ = 0;  // Lines that may be written before checking again.
    /// By send() since `free_` was last set: messages in the upper half, bytes in the lower. Few
    /// enough, as `free_` is less than 2^26.
    std::uint64_t sent_ = 0;
    const std::atomic<std::uint64_t>* reader_ = nullptr;  // Whether it sleeps; once open.
    std::uint64_t reader_awake_ = 0;                      // Its lowest bits when nothing is to do.
    bool fenced_ = true;    // Whether that load must never pass the record's store.
    bool is_open_ = false;  // Connected, and nothing waits that must go first.
    void (*changed_)(void* owner, std::uint64_t now) noexcept = nullptr;
    void* owner_ = nullptr;
    [[no_unique_address]] sanitizer_order written_;

private:
    /// Less than 8 bytes.
    static void copy_rest(std::byte* to, const std::byte* source, std::size_t left) noexcept {
        if (left >= 4) {
            std::memcpy(to, source, 4);
            left -= 4, to += 4, source += 4;
        }
        for (; left > 0; --left)
            *to++ = *source++;
    }
};

/// For ports that have such lanes. A port derives from it.
///
/// Threads: the port's.
class short_lanes {
public:
    /// The lane to a peer from which a message came; null: it has none. Valid until the sink's
    /// on_peer_down() for it has returned, or the port ends.
    /// Precondition: the port has a sink.
    virtual short_lane* lane_to(peer_id) noexcept = 0;

protected:
    ~short_lanes() = default;
};

}  // namespace amalgam::detail

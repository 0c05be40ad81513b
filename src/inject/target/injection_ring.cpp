#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/inject/injection_ring.hpp>
#include <amalgam/tasks/ult.hpp>

#include "inject/limits.hpp"
#include "inject/source/core.hpp"
#include "inject/target/core.hpp"

namespace amalgam::detail {

namespace {

/// At the start of the ring: the target's progress.
constexpr std::uint64_t ring_head_bytes = 64;
/// Messages start at multiples of this.
constexpr std::uint64_t ring_unit = 64;

/// Precedes each message.
struct ring_message {
    std::uint64_t mark = 0;        ///< Its position + 1, written last. Until then 0.
    std::uint32_t code_bytes = 0;  ///< 0: the next message is at the start of the ring.
    std::uint32_t payload_at = 0;  ///< Relative to this header.
    std::uint32_t payload_bytes = 0;
    std::uint32_t bytes = 0;  ///< Distance to the next message.
};

constexpr std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t to) {
    return (bytes + to - 1) / to * to;
}

}  // namespace

/// The target's side.
class ring_memory {
public:
    ring_memory(std::shared_ptr<target_core> target, std::size_t bytes)
        : target_(std::move(target)), cache_(target_->where()), memory_(cache_.take(bytes)) {
        std::memset(memory_.data(), 0, memory_.size());
        shown_ = memory_.descriptor();
    }

    const amalgam::bulk& shown() const noexcept { return shown_; }
    /// Runs the next message; false if there is none.
    bool run_next() {
        for (;;) {
            const auto took = take_next();
            if (took != taken::skip) return took == taken::message;
        }
    }

private:
    enum class taken { nothing, skip, message };

    taken take_next() {
        const std::uint64_t room = memory_.size() - ring_head_bytes;
        std::byte* const at = memory_.data() + ring_head_bytes + taken_ % room;
        auto& mark = *reinterpret_cast<std::uint64_t*>(at);
        if (closed_ || std::atomic_ref(mark).load(std::memory_order_acquire) != taken_ + 1)
            return taken::nothing;
        ring_message what;
        std::memcpy(&what, at, sizeof(what));
        const std::uint64_t left = room - taken_ % room;
        const bool skips = what.code_bytes == 0;  // Skips to the start, never from it: see poll().
        if ((skips && (what.bytes != left || left == room)) || what.bytes == 0 ||
            what.bytes % ring_unit != 0 || what.bytes > left ||
            sizeof(what) + std::uint64_t{what.code_bytes} > what.payload_at ||
            std::uint64_t{what.payload_at} + what.payload_bytes > what.bytes) {
            log(log_level::warn, "inject", "closing a ring: its source wrote an invalid message",
                {{"at", taken_}});
            closed_ = true;
            return taken::nothing;
        }
        if (!skips)
            target_->run_polled({at + sizeof(what), what.code_bytes},
                                {at + what.payload_at, what.payload_bytes});
        forget(at, what.bytes);
        taken_ += what.bytes;
        auto& seen = *reinterpret_cast<std::uint64_t*>(memory_.data());
        std::atomic_ref(seen).store(taken_, std::memory_order_release);
        return skips ? taken::skip : taken::message;
    }

    /// A later message may begin within one that was taken, whose bytes must not be its mark.
    static void forget(std::byte* at, std::uint64_t bytes) noexcept {
        for (std::uint64_t i = 0; i < bytes; i += ring_unit)
            std::memset(at + i, 0, sizeof(ring_message::mark));
    }

    std::shared_ptr<target_core> target_;
    bulk_cache cache_;
    bulk_buffer memory_;
    amalgam::bulk shown_;
    std::uint64_t taken_ = 0;
    bool closed_ = false;
};

}  // namespace amalgam::detail

namespace amalgam {

injection_ring::injection_ring(const injection_target& runs, std::size_t bytes) {
    if (bytes < detail::limits::min_ring_bytes || bytes > detail::limits::max_ring_bytes)
        throw error(errc::invalid,
                    fmt::format("a ring has {} bytes, expected 4096 to 2^30", bytes));
    memory_ = std::make_unique<detail::ring_memory>(runs.core_,
                                                    detail::rounded_up(bytes, detail::ring_unit));
}

injection_ring::~injection_ring() = default;

const bulk& injection_ring::memory() const noexcept {
    return memory_->shown();
}

std::size_t injection_ring::poll(std::size_t most) {
    std::size_t count = 0;
    while (count < most && memory_->run_next())
        ++count;
    return count;
}

injection_ring_writer::injection_ring_writer(bulk ring) : ring_(std::move(ring)) {
    if (ring_.bytes() < detail::limits::min_ring_bytes || ring_.bytes() % detail::ring_unit != 0)
        throw error(
            errc::invalid,
            fmt::format(
                "memory of {} bytes is not a ring, expected injection_ring::memory() of the target",
                ring_.bytes()));
}

bool injection_ring_writer::has_room(std::uint64_t bytes) {
    const std::uint64_t room = ring_.bytes() - detail::ring_head_bytes;
    if (written_ + bytes - taken_ <= room) return true;
    std::array<std::uint64_t, 1> seen{};
    ring_.pull(0, seen);
    taken_ = seen[0];
    return written_ + bytes - taken_ <= room;
}

bool injection_ring_writer::try_post(const injection& message) {
    using detail::ring_message;
    detail::refuse_empty(message.image_ != nullptr, "message");
    if (!message.attached_.empty())
        throw error(errc::invalid, "memory cannot be attached to a message for a ring");
    const const_bytes code = message.image_->image.bytes(), payload = message.payload();
    const std::uint64_t room = ring_.bytes() - detail::ring_head_bytes;
    const std::uint64_t from = written_ % room;
    const std::uint64_t alignment = message.image_->image.payload_alignment();
    const std::uint64_t start = detail::ring_head_bytes + from;  // The ring is page-aligned.
    const std::uint64_t payload_at =
        detail::rounded_up(start + sizeof(ring_message) + code.size(), alignment) - start;
    const std::uint64_t bytes = detail::rounded_up(payload_at + payload.size(), detail::ring_unit);
    if (bytes > room / 2)
        throw error(
            errc::too_large,
            fmt::format("a message has {} bytes for a ring of {}, expected at most half of it",
                        bytes, room));
    const auto write = [&](ring_message head, std::span<const const_bytes> rest) {
        const std::array<std::uint64_t, 1> mark{written_ + 1};
        const const_bytes all(reinterpret_cast<const std::byte*>(&head), sizeof(head));
        std::vector<const_bytes> pieces{all.subspan(sizeof(mark))};
        pieces.insert(pieces.end(), rest.begin(), rest.end());
        ring_.push(start + sizeof(mark), pieces);
        ring_.push(start, mark);
        written_ += head.bytes;
    };
    if (bytes > room - from) {  // Wrap around.
        if (!has_room(room - from)) return false;
        ring_message skip;
        skip.bytes = static_cast<std::uint32_t>(room - from);
        skip.payload_at = sizeof(skip);
        write(skip, {});
        return try_post(message);
    }
    if (!has_room(bytes)) return false;
    ring_message head;
    head.code_bytes = static_cast<std::uint32_t>(code.size());
    head.payload_at = static_cast<std::uint32_t>(payload_at);
    head.payload_bytes = static_cast<std::uint32_t>(payload.size());
    head.bytes = static_cast<std::uint32_t>(bytes);
    const std::vector<std::byte> gap(payload_at - sizeof(head) - code.size());
    const const_bytes rest[] = {code, gap, payload};
    write(head, rest);
    return true;
}

void injection_ring_writer::post(const injection& message) {
    while (!try_post(message))
        this_task::yield();
}

}  // namespace amalgam

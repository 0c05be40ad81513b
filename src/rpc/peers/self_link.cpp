#include "rpc/peers/self_link.hpp"

#include <cstring>
#include <new>

#include "rpc/limits.hpp"

namespace amalgam::detail {

posted self_link::post(std::uint64_t tag, gather pieces) noexcept {
    if (waiting_.size() >= limits::max_self_waiting) return posted::full;
    std::size_t bytes = 0;
    for (const const_bytes& piece : pieces)
        bytes += piece.size();
    buffer copy = buffers_.try_take(bytes);
    if (copy.size() != bytes) return posted::full;
    std::byte* at = copy.data();
    for (const const_bytes& piece : pieces) {
        if (!piece.empty()) std::memcpy(at, piece.data(), piece.size());
        at += piece.size();
    }
    try {
        waiting_.push_back({tag, std::move(copy)});
        ++waiting_count_;
    } catch (const std::bad_alloc&) {
        return posted::full;
    }
    return posted::done;
}

std::size_t self_link::deliver(message_sink& to) noexcept {
    if (waiting_.empty() || !delivering_.empty()) return 0;
    delivering_.swap(waiting_);
    waiting_count_ = 0;
    const std::size_t count = delivering_.size();
    for (parcel& each : delivering_) {
        message arrived(id, each.tag, each.bytes.bytes(), &each.bytes, buffers_);
        to.on_message(arrived);
    }
    delivering_.clear();
    return count;
}

}  // namespace amalgam::detail

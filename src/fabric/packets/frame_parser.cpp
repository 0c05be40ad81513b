#include "fabric/packets/frame_parser.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/frames/wire_header.hpp"

namespace amalgam::detail {

delivery frame_parser::feed(const_bytes& from, frame_handler& to) noexcept {
    while (!from.empty()) {
        const delivery found = into_ != nullptr ? go_on(from, to) : begin(from, to);
        if (found != delivery::taken) return found;
    }
    return delivery::taken;
}

delivery frame_parser::begin(const_bytes& from, frame_handler& to) noexcept {
    if (held_bytes_ == 0 && from.size() >= header_bytes) {
        const frame_header header = from_wire(from.data());
        const const_bytes rest = from.subspan(header_bytes);
        // Enough to continue, or all of the frame: nothing needs to be buffered.
        if (rest.size() >= std::min<std::size_t>(header.bytes, least_prefix)) {
            from = rest;
            return take_whole_or_part(header, from, to);
        }
    }
    const auto hold = [&](std::size_t until) {
        const std::size_t some = std::min(until - std::min(until, held_bytes_), from.size());
        std::memcpy(held_.data() + held_bytes_, from.data(), some);
        held_bytes_ += some;
        from = from.subspan(some);
        return held_bytes_ >= until;
    };
    if (!hold(header_bytes)) return delivery::taken;
    const frame_header header = from_wire(held_.data());
    if (!hold(header_bytes + std::min<std::size_t>(header.bytes, least_prefix)))
        return delivery::taken;
    const_bytes held(held_.data() + header_bytes, std::exchange(held_bytes_, 0) - header_bytes);
    return take_whole_or_part(header, held, to);
}

delivery frame_parser::take_whole_or_part(const frame_header& header, const_bytes& rest,
                                          frame_handler& to) noexcept {
    if (header.bytes > max_bytes_) return delivery::malformed;
    if (rest.size() >= header.bytes) {
        const const_bytes payload = rest.first(header.bytes);
        rest = rest.subspan(header.bytes);
        return to.on_frame(header, payload);
    }
    const const_bytes prefix = rest;
    rest = {};
    into_ = to.on_large(header, prefix);
    if (into_ == nullptr) return delivery::malformed;
    missing_ = header.bytes - prefix.size();
    at_ = {};
    return delivery::taken;
}

delivery frame_parser::go_on(const_bytes& from, frame_handler& to) noexcept {
    const const_bytes some = from.first(std::min(missing_, from.size()));
    from = from.subspan(some.size());
    missing_ -= some.size();
    if (!into_->discard) copy_in(into_->into, at_, some);
    if (missing_ > 0) return delivery::taken;
    into_ = nullptr;
    return to.on_large_end();
}

}  // namespace amalgam::detail

#include "inject/target/waiting_messages.hpp"

#include <algorithm>
#include <utility>

#include "inject/limits.hpp"

namespace amalgam::detail {

waiting_messages::place::place(std::shared_ptr<waiting_messages> of,
                               std::shared_ptr<image_fetch> what, std::size_t bytes) noexcept
    : of_(std::move(of)), fetch_(std::move(what)), bytes_(bytes) {}

waiting_messages::place::~place() {
    if (of_ != nullptr) of_->leave(*fetch_, bytes_);
}

waiting_messages::place waiting_messages::enter(const peer& from, image_id which,
                                                std::size_t bytes) {
    const std::lock_guard one(lock_);
    struct {
        std::size_t images = 0, messages = 0, bytes = 0;
    } whole, of_peer;
    std::shared_ptr<image_fetch> same;
    for (const auto& each : all_) {
        for (auto* const sum : {&whole, each->from == from ? &of_peer : nullptr}) {
            if (sum == nullptr) continue;
            sum->images += 1;
            sum->messages += each->messages;
            sum->bytes += each->bytes;
        }
        if (each->which == which && each->from == from) same = each;
    }
    const auto room = [&](std::size_t held, std::size_t more, std::size_t most) {
        return held == 0 || (held < most && more <= most - held);
    };
    const bool fits =
        room(whole.messages, 1, most_messages_) && room(of_peer.messages, 1, most_messages_ / 2) &&
        room(whole.bytes, bytes, most_bytes_) && room(of_peer.bytes, bytes, most_bytes_ / 2);
    if (!fits || (same == nullptr && (whole.images >= limits::max_fetched_images ||
                                      of_peer.images >= limits::max_fetched_images_per_peer)))
        throw error(errc::overloaded,
                    "too many messages wait for images that this target does not have; send the "
                    "image by a call before posting many messages to it, or raise "
                    "injection_options::max_waiting_messages");
    if (same == nullptr) same = all_.emplace_back(std::make_shared<image_fetch>(from, which));
    same->messages += 1;
    same->bytes += bytes;
    return {shared_from_this(), std::move(same), bytes};
}

void waiting_messages::leave(const image_fetch& what, std::size_t bytes) noexcept {
    std::shared_ptr<image_fetch> last;  // Freed outside the lock.
    const std::lock_guard one(lock_);
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [&](const auto& each) { return each.get() == &what; });
    if (at == all_.end()) return;
    (*at)->bytes -= bytes;
    if (--(*at)->messages != 0) return;
    last = std::move(*at);
    all_.erase(at);
}

}  // namespace amalgam::detail

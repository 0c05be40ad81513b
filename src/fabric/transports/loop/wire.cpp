#include "fabric/transports/loop/wire.hpp"

#include <cerrno>
#include <new>
#include <utility>

#include <sys/eventfd.h>

namespace amalgam::detail {

loop_mailbox::put_result loop_mailbox::put(loop_item& item) noexcept try {
    const std::lock_guard lock(mutex_);
    if (closed_) return put_result::closed;
    items_.push_back(std::move(item));  // If it throws, `item` is unchanged.
    wake();
    return put_result::taken;
} catch (const std::bad_alloc&) {
    return put_result::no_memory;
}

void loop_mailbox::end(const std::shared_ptr<loop_connection>& on, std::uint8_t side,
                       status why) noexcept {
    const std::lock_guard lock(mutex_);
    loop_side& over = on->sides[side];
    if (closed_ || std::exchange(over.is_over, true)) return;
    over.over_why = why;
    over.over_on = on;
    (last_ended_ != nullptr ? last_ended_->next_over : first_ended_) = &over;
    last_ended_ = &over;
    wake();
}

void loop_mailbox::wake() noexcept {
    if (std::exchange(armed_, false)) ::eventfd_write(handle_.get(), 1);
}

void loop_mailbox::take(std::vector<loop_item>& out, loop_side*& over) noexcept {
    const std::lock_guard lock(mutex_);
    // Both vectors keep their memory. Without items, `out` keeps its own.
    if (!items_.empty()) out.swap(items_);
    over = std::exchange(first_ended_, nullptr);
    last_ended_ = nullptr;
}

loop_item take_over(loop_side*& list) noexcept {
    loop_side& over = *list;
    list = std::exchange(over.next_over, nullptr);
    loop_item ended;
    ended.what = loop_item::kind::reset;
    ended.why = over.over_why;
    ended.to = static_cast<std::uint8_t>(&over == &over.over_on->sides[0] ? 0 : 1);
    ended.on = std::move(over.over_on);
    return ended;
}

bool loop_mailbox::empty() const noexcept {
    const std::lock_guard lock(mutex_);
    return items_.empty() && first_ended_ == nullptr;
}

std::vector<loop_item> loop_mailbox::close() noexcept {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    while (first_ended_ != nullptr)
        (void)take_over(first_ended_);
    last_ended_ = nullptr;
    return std::exchange(items_, {});
}

void loop_mailbox::forget_sent(const completion& on_sent) {
    const std::lock_guard lock(mutex_);
    for (loop_item& item : items_)
        if (item.on_sent == &on_sent) item.on_sent = nullptr;
}

void loop_mailbox::open_handle() {
    handle_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!handle_)
        throw error(status{errc::no_memory, errno},
                    "out of file descriptors for the port's wait handle; raise the limit on open "
                    "files; example: ulimit -n 4096");
}

bool loop_mailbox::arm() {
    const std::lock_guard lock(mutex_);
    if (!items_.empty() || first_ended_ != nullptr) return false;
    armed_ = true;
    return true;
}

void loop_mailbox::disarm() noexcept {
    const std::lock_guard lock(mutex_);
    armed_ = false;
    eventfd_t ignored;
    ::eventfd_read(handle_.get(), &ignored);
}

std::shared_ptr<loop_mailbox> loop_hub::open(const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto& at = names_[name];
    if (at != nullptr) return nullptr;
    at = std::make_shared<loop_mailbox>(name);
    return at;
}

std::shared_ptr<loop_mailbox> loop_hub::find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const auto at = names_.find(name);
    return at == names_.end() ? nullptr : at->second;
}

void loop_hub::retire(const loop_mailbox& box) {
    const std::lock_guard lock(mutex_);
    const auto at = names_.find(box.name());
    if (at != names_.end() && at->second.get() == &box) names_.erase(at);
}

void loop_hub::close(loop_mailbox& box) {
    retire(box);
    for (loop_item& item : box.close()) {
        if (item.what == loop_item::kind::connect)
            tell_over(item.on, 1 - item.to, {errc::unreachable});
    }
}

void loop_hub::deposit(loop_item&& item) noexcept {
    if (item.what == loop_item::kind::reset) {
        tell_over(item.on, item.to, item.why);
        return;
    }
    const int other = 1 - item.to;
    loop_mailbox& box = *item.on->sides[item.to].box;
    switch (box.put(item)) {
        case loop_mailbox::put_result::taken:
            deposited(box);
            return;
        case loop_mailbox::put_result::closed:
            if (item.what == loop_item::kind::connect)
                tell_over(item.on, other, {errc::unreachable});
            else if (item.what == loop_item::kind::frame)
                tell_over(item.on, other, {errc::disconnected});
            return;
        case loop_mailbox::put_result::no_memory:
            // End the connection rather than lose something.
            break_now(item.on, {errc::no_memory});
            return;
    }
}

void loop_hub::tell_over(const std::shared_ptr<loop_connection>& on, int side,
                         status why) noexcept {
    loop_mailbox* box = on->sides[side].box.get();
    if (box == nullptr) return;
    box->end(on, static_cast<std::uint8_t>(side), why);
    deposited(*box);
}

void loop_hub::break_now(const std::shared_ptr<loop_connection>& on, status why) noexcept {
    for (int side = 0; side < 2; ++side)
        tell_over(on, side, why);
}

}  // namespace amalgam::detail

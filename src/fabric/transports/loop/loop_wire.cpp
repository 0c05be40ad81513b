#include "fabric/transports/loop/loop_wire.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include <sys/eventfd.h>

namespace amalgam::detail {

bool loop_mailbox::put(loop_item& item) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    if (std::exchange(armed_, false)) ::eventfd_write(handle_.get(), 1);
    return true;
}

void loop_mailbox::take(std::vector<loop_item>& out) {
    const std::lock_guard lock(mutex_);
    if (out.empty()) {
        out.swap(items_);  // Both keep their memory.
        return;
    }
    std::move(items_.begin(), items_.end(), std::back_inserter(out));
    items_.clear();
}

bool loop_mailbox::empty() const {
    const std::lock_guard lock(mutex_);
    return items_.empty();
}

std::vector<loop_item> loop_mailbox::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
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
                    "no descriptor is left for the port's wait handle; raise the limit of open "
                    "files, for example: ulimit -n 4096");
}

bool loop_mailbox::arm() {
    const std::lock_guard lock(mutex_);
    if (!items_.empty()) return false;
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
        if (item.what != loop_item::kind::connect) continue;
        loop_item reset;
        reset.what = loop_item::kind::reset;
        reset.to = static_cast<std::uint8_t>(1 - item.to);
        reset.on = std::move(item.on);
        reset.why = {errc::unreachable};
        deposit(std::move(reset));
    }
}

void loop_hub::deposit(loop_item&& item) {
    loop_mailbox& box = *item.on->sides[item.to].box;
    if (box.put(item)) {
        deposited(box);
        return;
    }
    const bool tells = item.what == loop_item::kind::frame || item.what == loop_item::kind::connect;
    if (!tells) return;
    item.why = {item.what == loop_item::kind::connect ? errc::unreachable : errc::disconnected};
    item.what = loop_item::kind::reset;
    item.to = static_cast<std::uint8_t>(1 - item.to);
    deposit(std::move(item));
}

void loop_hub::break_now(const std::shared_ptr<loop_connection>& on, status why) {
    for (std::uint8_t side = 0; side < 2; ++side) {
        loop_item reset;
        reset.what = loop_item::kind::reset;
        reset.to = side;
        reset.on = on;
        reset.why = why;
        deposit(std::move(reset));
    }
}

}  // namespace amalgam::detail

#include "rpc/call/item_sender.hpp"

#include <algorithm>
#include <memory>

#include <amalgam/tasks/event.hpp>

#include "rpc/call/answer_record.hpp"
#include "rpc/call/server.hpp"

namespace amalgam::detail {

item_sender::item_sender(invocation& call, std::uint32_t window) noexcept
    : call_(call),
      values_(&call.owner().context().buffers()),
      credit_(std::min(window, most_credit)) {}

engine_core& item_sender::core() noexcept {
    return call_.owner().context().core();
}

void item_sender::await_credit() {
    if (!call_.canceled()) credit_.acquire();
    check_wanted();
}

void item_sender::check_wanted() const {
    if (call_.canceled()) {
        throw error(errc::canceled, "the caller of this stream canceled it or is gone");
    }
}

void item_sender::send() {
    waited_answer item(call_, values_);
    item.is_last = false;
    std::shared_ptr<event> returned;
    try {
        item.frame_item(returned);
    } catch (...) {
        give_back_credit();
        throw;
    }
    item.send();
    // From here on only the engine keeps borrowed buffers: the next line waits for their release.
    values_.lends.clear();
    if (!returned) return;
    if (!call_.canceled()) returned->wait();
    check_wanted();
}

void item_sender::add_credit(std::uint32_t items) noexcept {
    const std::size_t room = most_credit - std::min<std::size_t>(credit_.available(), most_credit);
    credit_.release(std::min<std::size_t>(items, room));
}

}  // namespace amalgam::detail

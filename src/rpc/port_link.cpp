#include "rpc/port_link.hpp"

#include "rpc/engine_core.hpp"

namespace amalgam::detail {

std::size_t port_link::poll() noexcept {
    const std::size_t happened =
        where_ != nullptr ? where_->progress(budget) : core_.out().self().deliver(*this);
    core_.out().flush(index_);
    core_.look_whether_quiet();
    return happened;
}

int port_link::wait_handle() const noexcept {
    return where_ != nullptr ? where_->wait_handle() : -1;
}

bool port_link::prepare_to_sleep() noexcept {
    // Messages to ourselves come from our own stream only, which is here.
    return where_ != nullptr ? where_->prepare_to_sleep() : core_.out().self().empty();
}

void port_link::on_message(message& arrived) noexcept {
    core_.on_message(index_, arrived);
}

void port_link::on_peer_down(peer_id gone, status why) noexcept {
    core_.on_peer_down(index_, gone, why);
}

}  // namespace amalgam::detail

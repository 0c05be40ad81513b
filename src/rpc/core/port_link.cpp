#include "rpc/core/port_link.hpp"

#include "rpc/core/core.hpp"

namespace amalgam::detail {

std::size_t port_link::poll() noexcept {
    const engine_context::busy handlers_run(core_);
    std::size_t happened = where_.progress(budget);
    was_full_ = happened >= budget;
    if (core_.has_waiting_work()) [[unlikely]]
        happened += flush();
    core_.look_whether_quiet();
    return happened;
}

bool port_link::has_work() noexcept {
    return work_ == nullptr || core_.has_waiting_work() || work_->has_work();
}

// What units have posted meanwhile counts, too: it waits, or the port has it.
bool port_link::has_more() noexcept {
    return work_ == nullptr || was_full_ || core_.has_waiting_work() || work_->has_more();
}

/// What waited for the port to make progress; with the first one, also messages to ourselves.
[[gnu::noinline]] std::size_t port_link::flush() noexcept {
    outbox& out = core_.outbox();
    out.flush(index_);
    std::size_t happened = core_.transfers().flush(index_);
    if (index_ != 0) return happened;
    if (!out.self().empty()) happened += out.self().deliver(core_.self_sink());
    out.flush(peer::self_port);
    return happened + core_.transfers().flush(peer::self_port);
}

int port_link::wait_handle() const noexcept {
    return where_.wait_handle();
}

bool port_link::prepare_to_sleep() noexcept {
    // Messages to ourselves come only from this stream. Any queued without one in delivery wait for
    // memory, which nobody signals.
    outbox& out = core_.outbox();
    return out.self().empty() && !out.is_queued_to_self() && !core_.transfers().runnable() &&
           where_.prepare_to_sleep();
}

void port_link::on_message(message& arrived) noexcept {
    core_.on_message(index_, arrived);
}

void port_link::on_peer_down(peer_id gone, status why) noexcept {
    core_.on_peer_down(index_, gone, why);
}

std::size_t stream_driver::run_ready() noexcept {
    const std::size_t happened = stream_.run_ready();
    core_.settle();  // This may be gone afterwards.
    return happened;
}

void self_sink::on_message(message& arrived) noexcept {
    core_.on_message(peer::self_port, arrived);
}

}  // namespace amalgam::detail

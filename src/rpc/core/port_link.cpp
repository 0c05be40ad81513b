#include "rpc/core/port_link.hpp"

#include "rpc/core/core.hpp"

namespace amalgam::detail {

namespace {
struct always_some final : port_work {
    always_some() noexcept { has_more_ = true; }
    bool finds_work() noexcept override { return true; }
    bool asks_to_look() noexcept override { return true; }
};
}  // namespace

port_work& port_link::unknown_work() noexcept {
    static always_some unknown;
    return unknown;
}

port_work& port_link::work_of(port& where) noexcept {
    port_work* const said = cast_if_typed<port_work>(where);
    return said != nullptr ? *said : unknown_work();
}

std::size_t port_link::poll() noexcept {
    engine_core& core = core_;  // Read once.
    const engine_context::busy handlers_run(core);
    std::size_t happened = where_.progress(budget);
    was_full_ = happened >= budget;
    if (core.has_waiting_work()) [[unlikely]]
        happened += flush(core, index_);
    core.look_whether_quiet();
    return happened;
}

bool port_link::has_work() noexcept {
    return core_.has_waiting_work() || work_.has_work();
}

// What units have posted meanwhile counts, too: it waits, or the port has it.
bool port_link::has_more() noexcept {
    return was_full_ || core_.has_waiting_work() || work_.has_more();
}

/// What waited for the port to make progress; with the first one, also messages to ourselves.
[[gnu::noinline]] std::size_t port_link::flush(engine_core& core, std::uint16_t index) noexcept {
    outbox& out = core.outbox();
    out.flush(index);
    std::size_t happened = core.transfers().flush(index);
    if (index != 0) return happened;
    if (!out.self().empty()) happened += out.self().deliver(core.self_sink());
    out.flush(peer::self_port);
    return happened + core.transfers().flush(peer::self_port);
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

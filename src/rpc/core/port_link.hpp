#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/fabric/extension/port_work.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/poller.hpp>

namespace amalgam::detail {

class engine_core;

/// One port, as a poller of the engine's stream. The first one also serves the link to ourselves.
///
/// Threads: the engine's stream.
///
/// message_sink is the first base: so `this` is adjusted per poll, not per message.
class port_link final : public message_sink, public poller {
public:
    /// Messages and completions between two checks for ready ULTs.
    static constexpr std::size_t budget = 32;

    port_link(engine_core& core, std::uint16_t index, port& where) noexcept
        : core_(core), index_(index), where_(where), work_(work_of(where)) {}

    /// What its port says of itself; of one that says nothing, unknown_work().
    port_work& work() const noexcept { return work_; }
    /// Says that there is always some.
    static port_work& unknown_work() noexcept;

    std::size_t poll() noexcept override;
    bool has_work() noexcept override;
    bool has_more() noexcept override;
    int wait_handle() const noexcept override;
    bool prepare_to_sleep() noexcept override;
    void on_message(message& arrived) noexcept override;
    void on_peer_down(peer_id gone, status why) noexcept override;

private:
    static std::size_t flush(engine_core& core, std::uint16_t index) noexcept;
    static port_work& work_of(port& where) noexcept;

    engine_core& core_;
    std::uint16_t index_;
    port& where_;
    port_work& work_;
    bool was_full_ = false;  // The last poll() may have left something.
};

/// Receives messages to ourselves.
class self_sink final : public message_sink {
public:
    explicit self_sink(engine_core& core) noexcept : core_(core) {}
    void on_message(message& arrived) noexcept override;

private:
    engine_core& core_;
};

/// Runs an engine's stream on driven ports, when their network says so.
class stream_driver final : public port_driver {
public:
    stream_driver(engine_core& core, execution_stream& stream) noexcept
        : core_(core), stream_(stream) {}
    std::size_t run_ready() noexcept override;
    std::optional<clock::time_point> next_timer() const noexcept override {
        return stream_.next_timer();
    }

private:
    engine_core& core_;
    execution_stream& stream_;
};

}  // namespace amalgam::detail

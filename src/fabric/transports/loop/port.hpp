#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/port/framed_port.hpp"
#include "fabric/transports/loop/wire.hpp"

namespace amalgam::detail {

/// One end of a loop connection, as seen by its port.
class loop_link final : public frame_link {
public:
    loop_link(loop_port& port, std::shared_ptr<loop_connection> on, std::uint8_t side)
        : port_(port), on_(std::move(on)), side_(side) {}

    posted send(const frame_header&, gather payload, completion* on_sent) noexcept override;
    bool forget(completion& on_sent) noexcept override;
    void detach(completion& on_sent) noexcept override;
    void shut() noexcept override;
    identity who() const override;
    void shut(status why) noexcept;  ///< `why` is for the other end.

    const std::shared_ptr<loop_connection>& on() const noexcept { return on_; }
    loop_side& own() const noexcept { return on_->sides[side_]; }
    loop_side& other() const noexcept { return on_->sides[1 - side_]; }
    std::uint8_t side() const noexcept { return side_; }

    bool paused = false;
    std::deque<loop_item> held;  ///< Frames that arrived while paused, or after such frames.
    placement* open = nullptr;   ///< For the first frame, while it is read in steps.
    std::size_t landed = 0;      ///< Bytes of it read so far.
    segment_cursor at;           ///< Position in `open`.
    std::size_t index = 0;       ///< Position in the port's list.

private:
    bool has_room(std::size_t bytes) const noexcept;

    loop_port& port_;
    std::shared_ptr<loop_connection> on_;
    std::uint8_t side_;
};

/// A port of either kind of loop network; only the hub differs.
class loop_port final : public framed_port {
public:
    /// `incarnation` 0: random. Failure: throws error, or std::bad_alloc.
    loop_port(std::shared_ptr<loop_hub> hub, std::shared_ptr<loop_mailbox> box,
              const port_options& options, std::uint64_t incarnation, bool driven);
    ~loop_port() override;

    std::string address() const override;
    std::string explain() const override;
    identity self() const override;
    int wait_handle() const noexcept override { return box_->handle(); }
    const clock& time() const noexcept override { return hub_->time(); }
    void attach_driver(port_driver* driver) noexcept override { hub_->drive(*this, driver); }
    void driver_ready() noexcept override { hub_->wake(*this); }

    loop_hub& hub() const noexcept { return *hub_; }
    loop_mailbox& box() const noexcept { return *box_; }
    const std::vector<std::unique_ptr<loop_link>>& links() const noexcept { return links_; }
    clock::duration silence_limit() const noexcept { return options().silence_limit; }
    /// progress() would do something.
    bool has_work() const noexcept;
    /// Loses all peers at once and can connect to nobody afterwards.
    void kill() noexcept;
    bool is_dead() const noexcept { return dead_; }
    buffer_pool& pool() noexcept { return buffers(); }
    /// The connection is over at this end.
    void end_link(loop_link& link, status why) noexcept;
    /// Cancels the sent() call for this completion.
    void forget_sent(const completion& on_sent) noexcept;

protected:
    result<frame_link*> connect(std::string_view address) noexcept override;
    result<std::string> canonical(std::string_view address) const noexcept override;
    std::size_t move_frames(std::size_t budget) noexcept override;
    bool arm() noexcept override;
    void release(frame_link&) noexcept override;
    void resume(frame_link&) noexcept override;
    void due() noexcept override { hub_->wake(*this); }

private:
    loop_link& add_link(std::shared_ptr<loop_connection> on, std::uint8_t side);
    std::size_t read_held(std::size_t budget) noexcept;
    bool next_item() noexcept;
    bool handle(loop_item& item) noexcept;
    void accept(loop_item& item) noexcept;
    bool read(loop_link& link, loop_item& item) noexcept;
    bool land(loop_link& link, const loop_item& item, delivery& what) noexcept;
    void obey(loop_link& link, delivery what) noexcept;

    std::shared_ptr<loop_hub> hub_;
    std::shared_ptr<loop_mailbox> box_;
    bool dead_ = false;
    bool armed_ = false;
    std::vector<std::unique_ptr<loop_link>> links_;
    std::vector<loop_item> inbox_;  // Taken from the mailbox; those before next_ are done.
    std::size_t next_ = 0;
    loop_side* over_ = nullptr;        // Ended sides, to be handled after the inbox.
    std::vector<loop_link*> resumed_;  // Hold frames and are no longer paused.
};

}  // namespace amalgam::detail

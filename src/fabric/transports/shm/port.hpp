#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/fabric/extension/port_users.hpp>
#include <amalgam/fabric/extension/port_work.hpp>
#include <amalgam/fabric/extension/short_lane.hpp>

#include "fabric/limits.hpp"
#include "fabric/port/framed_port.hpp"
#include "fabric/transports/shm/link.hpp"
#include "fabric/transports/shm/listener.hpp"
#include "fabric/transports/shm/memory/blocks.hpp"
#include "fabric/transports/shm/memory/cross_memory.hpp"
#include "fabric/transports/shm/memory/lent.hpp"
#include "fabric/transports/shm/memory/registrations.hpp"
#include "fabric/transports/shm/users.hpp"

namespace amalgam::detail {

/// Settings of a shared-memory port.
struct shm_port_settings {
    bool listens = true;
    /// Copy directly between processes where the kernel allows it; else through the rings.
    bool cross_memory = true;
    std::string why_not;  ///< Why cross_memory is false, for explain().
    /// Allocate memory that peers can map, and map theirs.
    bool shares_blocks = true;
    shm_users users;  ///< Others than this process' own, whose ports may be connected with this.
    /// Connections with their processes.
    std::size_t most_of_others = limits::shm_max_of_others;
    std::size_t most_of_one_user = limits::shm_max_of_one_user;
};

/// A port over shared memory: polls its rings itself, and asks the kernel only now and then who
/// connected or left.
///
/// Threads: the port's thread.
class shm_port final : public framed_port, public port_work, public short_lanes, public port_users {
public:
    /// Failure: as transport::open().
    static result<std::unique_ptr<port>> open(std::string_view name, const shm_port_settings&,
                                              const port_options&);
    ~shm_port() override;

    std::string address() const override;
    std::string explain() const override;
    /// As framed_port's, with a short way for what fits a line of the ring.
    posted post_send(peer_id, std::uint64_t tag, gather, completion&) noexcept override;
    int wait_handle() const noexcept override { return events_.get(); }
    short_lane* lane_to(peer_id) noexcept override;
    bool lets_in_others() const noexcept override { return !settings_.users.are_none(); }
    std::optional<std::uint32_t> user_of(peer_id) const noexcept override;
    result<shared_block> allocate(std::size_t bytes) noexcept override;

    // ---- for links
    using framed_port::begin_placement;
    using framed_port::buffers;
    using framed_port::deliver;
    using framed_port::deliver_message;
    using framed_port::end_placement;
    using framed_port::link_down;
    using framed_port::sent;
    using framed_port::writable;

    shm_lent_pool& lent() noexcept { return lent_; }
    bool uses_cross_memory() const noexcept { return settings_.cross_memory; }
    bool shares_blocks() const noexcept { return settings_.shares_blocks; }
    bool has_barriers() const noexcept { return barriers_; }
    std::chrono::milliseconds silence_limit() const noexcept { return options().silence_limit; }
    void push_later(shm_link&) noexcept;
    /// A refused send would be taken now: its sender must not sleep through that.
    void room_came() noexcept { room_came_ = true; }
    /// Counts a peer with which the kernel refuses direct copies.
    void cross_memory_denied(status why) noexcept {
        ++denied_;
        denied_why_ = why;
    }
    /// Counts a peer whose blocks the kernel refuses to map.
    void blocks_denied(status why) noexcept {
        ++blocks_denied_;
        blocks_denied_why_ = why;
    }
    void drain(shm_link&) noexcept;
    void unwatch(shm_link&) noexcept;
    /// It has changed which links are polled in each turn, or whether one of them is paused.
    void choose_only() noexcept;

protected:
    result<frame_link*> connect(std::string_view address) noexcept override;
    result<std::string> canonical(std::string_view address) const noexcept override;
    std::size_t move_frames(std::size_t budget) noexcept override;
    bool arm() noexcept override;
    void due() noexcept override { has_more_ = true; }
    void release(frame_link&) noexcept override;
    void resume(frame_link&) noexcept override;
    std::optional<status> direct_put(frame_link&, gather, const remote_key&,
                                     std::uint64_t offset) noexcept override;
    std::optional<status> direct_get(frame_link&, scatter, const remote_key&,
                                     std::uint64_t offset) noexcept override;
    std::optional<status> direct_atomic(frame_link&, const remote_key&, std::uint64_t offset,
                                        const atomic_operation&,
                                        std::uint64_t& old) noexcept override;
    void region_opened(const remote_key&, scatter) noexcept override;
    void region_closed(const remote_key&) noexcept override;

private:
    /// What processes of other users are shown of this port: whether it sleeps, and nothing of its
    /// memory.
    struct outside {
        shm_registrations registrations;
        unique_fd to_read;  ///< To pass to them.
    };
    static result<outside> make_outside();
    shm_port(const shm_port_settings&, const port_options&, shm_listener, shm_registrations,
             std::optional<outside>, unique_fd events, unique_fd timer);
    /// What a peer of that user is passed.
    int shown_to(const shm_credentials&) const noexcept;

    // port.cpp: work of every progress() call.
    void disarm() noexcept;
    void lie_down() noexcept;
    void go_without_fences() noexcept;
    std::size_t poll_links(std::size_t budget) noexcept;
    std::size_t poll_several(std::size_t budget) noexcept;
    std::size_t move_all(std::size_t budget) noexcept;
    std::size_t move_more(std::size_t budget) noexcept;
    std::size_t poll_quiet(std::size_t budget) noexcept;
    shm_link* next_quiet() noexcept;
    bool finds_work() noexcept override;
    bool finds_more() noexcept;
    bool finds_ready() noexcept;
    bool asks_to_look() noexcept override;
    bool events_are_due() const noexcept { return cycles() - events_seen_ > cycles_between_events; }
    std::size_t push_links(std::size_t budget) noexcept;
    void drain_links() noexcept;
    void cool_links() noexcept;
    void heat(shm_link&) noexcept;
    void forget(shm_link&) noexcept;
    void look_at_sleepers() noexcept;

    // port_events.cpp: events from the kernel, checked now and then.
    void look_at_events() noexcept;
    void on_event(const shm_watch&, std::uint32_t events) noexcept;
    void on_connection_waiting() noexcept;
    void on_pending(shm_pending&) noexcept;
    void on_link(shm_link&, std::uint32_t events) noexcept;
    void on_welcome(shm_link&) noexcept;
    bool was_refused(shm_link&, int socket) noexcept;
    void refuse(shm_link&, const shm_hello& said) noexcept;
    bool has_room_for(const shm_credentials&) const noexcept;
    void welcome(shm_pending&, shm_received_hello&) noexcept;
    bool bring_up(shm_link&, unique_fd socket, const shm_credentials&,
                  shm_received_hello&) noexcept;
    shm_link& adopt(std::unique_ptr<shm_link>);
    void reach(shm_link&) noexcept;
    void look_at_time() noexcept;
    void set_timer() noexcept;
    void watch_listener() noexcept;
    bool watch(int fd, shm_watch&) noexcept;
    shm_hello hello() const noexcept;
    /// A peer has yet to answer or greet, with a deadline.
    bool is_expecting() const noexcept { return !reaching_.empty() || !listener_.is_empty(); }

    const shm_port_settings settings_;
    bool barriers_;
    bool wants_fences_ = true;    // Senders fence, which replaces sleep_barrier().
    unsigned short_watches_ = 0;  // In a row; a watch is the time between two sleeps.
    std::size_t watched_ = 0;     // Frames moved in this watch.
    bool armed_ = false;
    bool room_came_ = false;
    // How often the kernel is asked for connections and disconnections: about every 20 us.
    static constexpr std::uint64_t cycles_between_events = std::uint64_t{1} << 16;
    static constexpr std::uint64_t turns_between_looks = 16;  // At the time.
    std::uint64_t turn_ = 0;                                  // Calls of move_frames().
    std::uint64_t events_seen_ = 0;  // cycles() at the last query of the kernel.
    // Polled in every turn: all that is, unless `has_more_`, or nothing is due and it is not armed.
    std::vector<shm_link*> hot_;
    std::vector<shm_link*> quiet_;    // A few of them are polled per turn.
    std::vector<shm_link*> pushing_;  // With queued output.
    std::vector<shm_link*> draining_;
    std::size_t next_hot_ = 0;
    std::size_t next_quiet_ = 0;

    shm_lent_pool lent_;
    std::vector<std::unique_ptr<shm_link>> links_;
    std::vector<std::unique_ptr<shm_link>> sleepers_;  // Over, but their peers may still write.
    std::vector<shm_link*> reaching_;                  // Waiting for their welcome.
    std::size_t denied_ = 0;  // Connections so far where the kernel refused cross-memory attach.
    status denied_why_;
    std::size_t blocks_denied_ = 0;  // The same, for mapping the peer's blocks.
    status blocks_denied_why_;
    shm_listener listener_;
    shm_registrations registrations_;
    std::optional<outside> outside_;  ///< If other users are let in.
    shm_block_table blocks_{registrations_};
    shm_own_probe probe_{incarnation()};
    unique_fd events_;
    unique_fd timer_;
    shm_watch door_watch_{shm_watch::kind::listener};
    shm_watch timer_watch_{shm_watch::kind::timer};
    bool listener_watched_ = false;
    bool timer_set_ = false;
};

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>
#include <amalgam/fabric/identity.hpp>

#include "fabric/transports/loop/port.hpp"
#include "fabric/transports/loop/wire.hpp"

namespace amalgam::detail {

/// A port in a virtual-time network. Outlives the port, so that events may refer to it.
struct loop_station {
    std::string name;
    loop_port* port = nullptr;
    port_driver* driver = nullptr;
    clock::duration processing{};  ///< Time per frame.
    clock::time_point busy_until{};
    bool cut = false;
    bool ready = false;       ///< In the queue of stations with work.
    std::uint64_t timer = 0;  ///< Number of the valid timer event; 0: none.
    clock::time_point timer_at{};
    std::shared_ptr<const identity> as;  ///< Null: this process.
};

class loop_broadcast;

/// The hub behind a loop_network: carries items in virtual time, injects faults, and runs the
/// ports.
///
/// Future events are in one heap ordered by time; ports with work now are in one queue. An event
/// only says where to look, so a stale one is harmless.
/// Threads: one.
class virtual_hub final : public loop_hub, public std::enable_shared_from_this<virtual_hub> {
public:
    explicit virtual_hub(const loop_options& options);

    std::unique_ptr<amalgam::port> port(std::string_view name, const port_options& options);
    std::shared_ptr<broadcast_medium> broadcast(std::string_view name);
    bool spread(const loop_broadcast& from, const_bytes packet);
    void kill(std::string_view name);
    bool alive(std::string_view name) const { return find(name) != nullptr; }
    void processing(std::string_view name, clock::duration each) {
        station_of(name).processing = each;
    }
    void identify(std::string_view name, identity as) {
        station_of(name).as = std::make_shared<const identity>(std::move(as));
    }
    void cut(std::string_view name);
    void heal(std::string_view name);
    void cut(std::string_view from, std::string_view to);
    void heal(std::string_view from, std::string_view to);

    void run_until_idle();
    void run_until(clock::time_point end);
    std::size_t open_operations() const noexcept;

    // Current settings of loop_network.
    clock::duration least_delay{};
    clock::duration most_delay{};
    double drop = 0;
    bool reorder = false;
    std::uint64_t operations = 0;
    std::uint64_t faulty_operation = 0;  // 0: none.
    loop_fault fault = loop_fault::reset;
    std::function<void(const loop_event&)> tell;

    fate next_operation() noexcept override;
    bool lends(std::size_t bytes) const noexcept override { return bytes > options.inline_bytes; }
    void carry(loop_item&& item) override;
    bool forget(loop_connection&, std::uint8_t to, completion&) noexcept override;
    void detach(loop_connection&, std::uint8_t to, completion&) noexcept override;
    void shut(loop_connection&, std::uint8_t side) noexcept override;
    void break_now(const std::shared_ptr<loop_connection>& on, status why) noexcept override;
    void attach(loop_port&) override;
    void detach(loop_port&) noexcept override;
    void drive(loop_port&, port_driver*) noexcept override;
    void wake(loop_port&) noexcept override;
    void catch_up() noexcept override;
    const clock& time() const noexcept override { return time_; }

private:
    /// One event: the front of the traffic on `on` to `side` arrives or has been processed, the
    /// silence limit of `side` passes, the timer of `where` fires, or a packet arrives at `whom` or
    /// has been processed.
    struct event {
        enum class kind : std::uint8_t { arrival, handled, silence, timer, packet, handled_packet };
        clock::time_point when;
        std::uint64_t order = 0;   // Among events of the same time.
        std::uint64_t number = 0;  // Increases with every event.
        kind what = kind::arrival;
        std::uint8_t side = 0;
        std::shared_ptr<loop_connection> on;
        loop_station* where = nullptr;
        std::shared_ptr<loop_broadcast> whom;
        std::shared_ptr<const buffer> packet;
    };
    static bool later(const event& a, const event& b) noexcept;

    void deposited(loop_mailbox& box) override;
    void mark_ready(loop_station& one);
    void run_ready();
    std::size_t run_all();
    std::size_t run(loop_station& one);
    void look_at_timer(loop_station& one);
    bool step(clock::time_point end);
    void run_events(clock::time_point end);

    std::uint64_t schedule(event what);
    clock::duration delay_of_one();
    clock::time_point arrival_time(loop_side& to);
    static bool is_idle(const loop_station& one, clock::time_point now) noexcept {
        return one.processing.count() <= 0 && one.busy_until <= now;
    }
    clock::time_point occupy(loop_station& one);
    void arrive(const std::shared_ptr<loop_connection>& on, std::uint8_t side);
    void handle(const std::shared_ptr<loop_connection>& on, std::uint8_t side);
    void arrive(event&& packet);
    void handle_packet(const event& packet);
    void give_up(const std::shared_ptr<loop_connection>& on, std::uint8_t side);
    void fall_silent(const std::shared_ptr<loop_connection>& on);
    bool is_cut(const std::string& from, const std::string& to) const;
    bool is_cut(const loop_connection& on, std::uint8_t to) const;
    bool is_cut(const loop_connection& on) const { return is_cut(on, 0) || is_cut(on, 1); }
    void resume();
    void copy_lent(loop_item& item);
    loop_station& station_of(std::string_view name) const;
    void report(loop_event::kind what, const loop_connection& on, std::uint8_t to,
                const loop_item& item) const;

    manual_clock time_;
    seeded_random random_;
    buffer_pool buffers_;
    std::vector<event> events_;  // A heap.
    std::uint64_t event_count_ = 0;
    std::deque<std::unique_ptr<loop_station>> stations_;         // In order of opening.
    std::map<std::string, loop_station*, std::less<>> by_name_;  // Latest of each name.
    std::vector<std::shared_ptr<loop_connection>> silent_;
    std::set<std::pair<std::string, std::string>> one_way_cuts_;
    std::deque<loop_station*> ready_;
    std::vector<std::weak_ptr<loop_broadcast>> broadcasts_;
};

}  // namespace amalgam::detail

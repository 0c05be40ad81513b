#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <amalgam/core/clock.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>

namespace amalgam {

namespace detail {
class virtual_hub;
}

/// How a loop_network's ports behave; the knobs that turn while it runs are its members.
struct loop_options {
    std::uint64_t seed = 1;  ///< Of everything left to chance; equal seeds give equal runs.
    /// Longer sends are lent until they arrive, and so complete later.
    std::size_t inline_bytes = 4096;
    std::size_t max_message_bytes = std::size_t{256} << 20;
    /// One direction of a connection holds this much that was not read yet; then posts are `full`.
    std::size_t link_bytes = std::size_t{1} << 20;
};

/// What befalls an operation chosen by loop_network::fail_operation().
enum class loop_fault : std::uint8_t {
    reset,  ///< The connection breaks at both ends at once; what was on its way is lost.
    full    ///< It is refused once, as by a link that has no room.
};

/// Something that happened on a network: for traces.
struct loop_event {
    enum class kind : std::uint8_t { connect, frame, lost, down };
    kind what = kind::frame;
    clock::time_point when;
    std::string_view from;  ///< Name of the port that sent, or of the one whose peer is down.
    std::string_view to;    ///< Name of the port that received, or of the peer that is down.
    std::uint64_t tag = 0;  ///< Of the frame.
    std::size_t bytes = 0;  ///< Of its payload.
};

/// A network inside one thread on which time moves only when told: for tests and simulations.
///
/// Connections are reliable and keep order, like those of real transports; what goes wrong goes
/// wrong as it would there. A frame that is dropped for good, or a cut that lasts past the silence
/// limit of an end, ends the connection at that end with `disconnected` (`unreachable` if it never
/// stood). A cut that heals before only delays. The whole run depends on the seed and the calls
/// alone.
///
/// Ports are driven: see port::attach_driver(). One without a driver gets its progress() called.
/// A test may also call progress() itself, which sees what is due by now().
///
/// Owner:   ports may outlive the network; then nothing moves any more.
/// Threads: the network and all its ports belong to one thread.
/// Failure: functions that name a port throw error{not_found} for a name that never had one.
/// Cost:    O(log n) per frame and some 2 KiB per port; thousands of ports are fine.
class loop_network {
public:
    explicit loop_network(const loop_options& options = {});
    loop_network(const loop_network&) = delete;
    loop_network& operator=(const loop_network&) = delete;
    ~loop_network();

    /// A port that listens at loop://NAME.
    /// Failure: throws error{invalid} when the name is taken or no name of the URI grammar.
    std::unique_ptr<amalgam::port> port(std::string_view name, const port_options& options = {});
    /// As by kill -9: the port's peers see `disconnected` at once, after what was on its way, and
    /// so does the port itself of all its peers. It cannot be reached or reach anybody any more.
    void kill(std::string_view name);
    /// kill() if it still lives, then a new port, a new incarnation, at the same address.
    std::unique_ptr<amalgam::port> restart(std::string_view name, const port_options& options = {});

    /// What that port's host says reaches all others that have one of these, each copy as a frame
    /// would: delayed, dropped, or held off by a cut, for good. One packet is one operation.
    /// As long as the port lives; `loop_options::inline_bytes` limits a packet.
    std::shared_ptr<broadcast_medium> broadcast(std::string_view name);

    /// Every frame takes this long; between the two, by chance, when they differ. Frames of one
    /// connection and direction stay in order.
    void delay(clock::duration exactly) { delay(exactly, exactly); }
    void delay(clock::duration least, clock::duration most);
    /// That port's host has one processor, which takes so long for each frame that arrives, one
    /// after the other; what comes meanwhile waits. 0, as it begins: no time. A handler that takes
    /// time of its own sleeps, by this_task::sleep_for(); those of one processor share a mutex.
    void processing(std::string_view name, clock::duration each);
    /// Each frame is lost for good with this probability.
    void drop(double probability);
    /// What is due at the same time happens in an order left to chance, instead of that of
    /// sending. Frames of one connection and direction stay in order.
    void reorder(bool by_chance);
    /// Nothing gets to this port or away from it until heal().
    void cut(std::string_view name);
    void heal(std::string_view name);
    /// Nothing that `from` says gets to `to` until that is healed; what `to` says gets to `from`.
    /// A connection between them ends at the silence limit all the same: its end at `from` hears
    /// of nothing that it arrived.
    void cut(std::string_view from, std::string_view to);
    void heal(std::string_view from, std::string_view to);
    /// The n-th operation from now (1: the next) meets this fault. Operations are the frames that
    /// ports hand over, those of puts and gets included, and the connections they open.
    void fail_operation(std::uint64_t n, loop_fault fault = loop_fault::reset);
    /// How many operations there were so far.
    std::uint64_t operations() const noexcept;

    /// Runs everything, jumping from event to event (arrivals, silence limits, drivers' timers),
    /// until there is nothing left. Never ends with a driver that always has a timer: use
    /// run_for().
    void run_until_idle();
    /// The same for this long; now() is later by exactly that when it returns.
    void run_for(clock::duration how_long);

    clock::time_point now() const noexcept;
    /// What the ports' time() is.
    const clock& time() const noexcept;
    /// Operations that are pending on any port.
    std::size_t open_operations() const noexcept;

    /// Called for everything that happens, in order. An empty function ends it.
    void on_event(std::function<void(const loop_event&)> tell);

private:
    std::shared_ptr<detail::virtual_hub> hub_;
};

}  // namespace amalgam

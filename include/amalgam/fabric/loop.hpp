#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>

namespace amalgam {

namespace detail {
class virtual_hub;
}

/// How a loop_network's ports behave. Members of loop_network change the rest at run time.
struct loop_options {
    std::uint64_t seed = 1;  ///< For everything random; equal seeds give equal runs.
    /// Longer sends are borrowed until they arrive, so they complete later.
    std::size_t inline_bytes = 4096;
    /// Longer sends complete with `too_large`.
    std::size_t max_message_bytes = std::size_t{256} << 20;
    /// Unread bytes that one direction of a connection holds; beyond this, posts return `full`.
    std::size_t link_bytes = std::size_t{1} << 20;
};

/// Fault injected by loop_network::fail_operation().
enum class loop_fault : std::uint8_t {
    reset,  ///< The connection breaks at both ends at once; data in flight is lost.
    full    ///< It is refused once, as by a link without room.
};

/// One event on a network, for traces.
struct loop_event {
    /// What happens on a network.
    enum class kind : std::uint8_t {
        connect,  ///< A connection begins.
        frame,    ///< A frame is sent.
        lost,     ///< A frame is lost to a fault.
        down      ///< A peer is found to be down.
    };
    kind what = kind::frame;  ///< Which kind of event.
    clock::time_point when;   ///< In the time of the network.
    std::string_view from;    ///< Name of the sending port, or of the port whose peer is down.
    std::string_view to;      ///< Name of the receiving port, or of the peer that is down.
    std::uint64_t tag = 0;    ///< Of the frame.
    std::size_t bytes = 0;    ///< Payload size.
};

/// A network inside one thread, in virtual time that moves only when told: for tests and
/// simulations.
///
/// Connections are reliable and ordered, and fail the way real ones do. A frame dropped for good,
/// or a cut that outlasts an end's silence limit, ends the connection at that end with
/// `disconnected` (`unreachable` if it was never established). A cut that heals sooner only delays.
/// The whole run depends on nothing but the seed and the calls.
///
/// Ports are driven: see port::attach_driver(). For a port without a driver, the network calls
/// progress(). A test may also call progress() itself; it sees what is due by now().
///
/// Owner:   ports may outlive the network; then nothing moves any more.
/// Threads: the network and all its ports belong to one thread.
/// Failure: functions that name a port throw error{not_found} if no port ever had that name.
/// Cost:    O(log n) per frame and about 2 KiB per port; thousands of ports are fine.
class loop_network {
public:
    explicit loop_network(const loop_options& options = {});
    loop_network(const loop_network&) = delete;
    loop_network& operator=(const loop_network&) = delete;
    ~loop_network();

    /// Opens a port that listens at loop://NAME.
    /// Failure: throws error{invalid} if the name is taken or is not valid in a URI.
    std::unique_ptr<amalgam::port> port(std::string_view name, const port_options& options = {});
    /// Like kill -9: the port's peers see `disconnected` at once, after data in flight has arrived,
    /// and the port sees the same of all its peers. It can no longer be reached or reach others.
    void kill(std::string_view name);
    /// kill() if still alive, then a new port with a new incarnation at the same address.
    std::unique_ptr<amalgam::port> restart(std::string_view name, const port_options& options = {});

    /// Who that port is to its peers, as they see by port::who(): as if it had proved that. Call it
    /// before they connect. Initially this process.
    void identify(std::string_view name, identity as);

    /// A broadcast medium for that port's host. Packets reach every other host that has one. Each
    /// copy is delayed or dropped like a frame; a copy that meets a cut is lost. One packet counts
    /// as one operation. Usable while the port lives; `loop_options::inline_bytes` limits a packet.
    std::shared_ptr<broadcast_medium> broadcast(std::string_view name);

    /// How long every frame takes; random between the two if they differ. Frames in one direction
    /// of a connection stay in order.
    void delay(clock::duration exactly) { delay(exactly, exactly); }
    void delay(clock::duration least, clock::duration most);
    /// Simulates one processor on that port's host: each arriving frame takes this long, one after
    /// the other, and later ones queue. 0 (initial value): no time. A handler spends virtual time
    /// with this_task::sleep_for(); handlers that share a processor share a mutex.
    void processing(std::string_view name, clock::duration each);
    /// Probability that a frame is lost for good.
    void drop(double probability);
    /// True: events due at the same time happen in random order instead of the order sent. Frames
    /// in one direction of a connection stay in order.
    void reorder(bool by_chance);
    /// Blocks all traffic to and from this port until heal().
    void cut(std::string_view name);
    void heal(std::string_view name);
    /// Blocks traffic from `from` to `to` until healed; the other direction still works. A
    /// connection between them still ends at the silence limit, because the end at `from` hears no
    /// acknowledgements.
    void cut(std::string_view from, std::string_view to);
    void heal(std::string_view from, std::string_view to);
    /// Injects a fault into the n-th operation from now (1: the next). Operations are frames that
    /// ports send, including those of puts and gets, and connections they open.
    void fail_operation(std::uint64_t n, loop_fault fault = loop_fault::reset);
    /// Number of operations so far.
    std::uint64_t operations() const noexcept;

    /// Runs everything until nothing is left, jumping from event to event (arrivals, silence
    /// limits, drivers' timers). Never returns if a driver always has a timer: use run_for().
    void run_until_idle();
    /// The same for this long; afterwards now() is later by exactly that.
    void run_for(clock::duration how_long);

    clock::time_point now() const noexcept;
    /// The clock returned by the ports' time().
    const clock& time() const noexcept;
    /// Pending operations on all ports.
    std::size_t open_operations() const noexcept;

    /// Calls `tell` for every event, in order. An empty function turns it off.
    void on_event(std::function<void(const loop_event&)> tell);

private:
    std::shared_ptr<detail::virtual_hub> hub_;
};

}  // namespace amalgam

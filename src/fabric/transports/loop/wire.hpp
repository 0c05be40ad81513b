#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/loop.hpp>

#include "fabric/frames/frame.hpp"

namespace amalgam::detail {

struct loop_connection;
struct loop_side;
class loop_link;
class loop_port;
struct loop_station;

/// What travels between the two ends of a connection, or is reported to one end.
struct loop_item {
    enum class kind : std::uint8_t {
        connect,  ///< To side 1: a connection request.
        frame,
        reset,     ///< The connection is over: see `why`.
        writable,  ///< To a side that found no room: try again.
        sent       ///< To a side whose borrowed frame has arrived: see `on_sent`.
    };
    kind what = kind::frame;
    std::uint8_t to = 0;  ///< The receiving side.
    std::shared_ptr<loop_connection> on;
    frame_header header;
    buffer bytes;                   ///< frame: the payload, unless borrowed.
    gather lent;                    ///< frame: the borrowed payload, if `on_sent` is set.
    completion* on_sent = nullptr;  ///< frame: set if borrowed; sent: which one.
    status why;
};

/// Items that reached a port and that it has not processed yet.
///
/// Threads: any; take() and arm() only from the port's thread.
class loop_mailbox {
public:
    explicit loop_mailbox(std::string name) : name_(std::move(name)) {}

    const std::string& name() const noexcept { return name_; }
    enum class put_result : std::uint8_t { taken, closed, no_memory };
    /// Moves from `item` only if it returns `taken`.
    put_result put(loop_item& item) noexcept;
    /// Notifies `side` of the connection that it is over, after all items put before. Only the
    /// first call counts. Needs no memory, so running out of memory can always be reported.
    void end(const std::shared_ptr<loop_connection>& on, std::uint8_t side, status why) noexcept;
    /// Exchanges all items for the empty `out`, and moves the list of ended sides to `over`, to be
    /// handled after the items. Precondition: `over` is null.
    void take(std::vector<loop_item>& out, loop_side*& over) noexcept;
    bool empty() const noexcept;
    /// Refuses later items; returns those still queued.
    std::vector<loop_item> close() noexcept;
    /// Removes the `sent` item of this borrowed send, if queued.
    void forget_sent(const completion& on_sent);

    /// Opens the handle that becomes readable. Failure: throws error.
    void open_handle();
    int handle() const noexcept { return handle_.get(); }
    /// False: an item is already queued. Otherwise the next put() makes the handle readable.
    bool arm();
    void disarm() noexcept;

    loop_station* station = nullptr;  ///< Only for networks in virtual time.

private:
    const std::string name_;
    unique_fd handle_;
    mutable std::mutex mutex_;
    void wake() noexcept;

    std::vector<loop_item> items_;
    loop_side* first_ended_ = nullptr;
    loop_side* last_ended_ = nullptr;
    bool armed_ = false;
    bool closed_ = false;
};

/// One end of a connection.
struct loop_side {
    std::shared_ptr<loop_mailbox> box;
    loop_link* link = nullptr;  ///< Used only by its port.
    clock::duration silence_limit{};

    std::atomic<std::size_t> unread{0};  ///< Bytes sent from this side that the other has not read.
    std::atomic<bool> wants_room{false};  ///< Got `full`, and no `writable` since.

    // Guarded by the lock of `box`: the list of ended sides.
    bool is_over = false;
    status over_why;
    std::shared_ptr<loop_connection> over_on;  ///< Keeps this object alive while listed.
    loop_side* next_over = nullptr;

    // For networks in virtual time: items in flight to this side. Their `on` is empty, so that the
    // connection does not keep itself alive.
    struct travelling {
        clock::time_point arrives;
        loop_item item;
        bool is_there = false;  ///< Received; processed at `arrives`.
    };
    std::deque<travelling> coming;
    clock::time_point last_arrival{};
    std::size_t held = 0;  ///< How many of them came due while the connection was cut.
};

/// Two ends. Side 0 opened the connection.
struct loop_connection {
    loop_side sides[2];
    bool stands = false;  ///< The far side has seen it. From here: for virtual time only.
    bool broken = false;  ///< Permanently broken: nothing passes.
    bool silent = false;  ///< Broken or cut.
    clock::time_point silent_since{};
};

/// Takes the first side off a list of ended sides and returns the item that reports it.
/// Precondition: the list is not empty.
loop_item take_over(loop_side*& list) noexcept;

/// Room that a frame takes on its link. Includes its header, so that empty frames are bounded too.
inline std::size_t room_of(const loop_item& item) noexcept {
    return sizeof(frame_header) + item.header.bytes;
}

/// A set of names and the connections between them. This one delivers everything at once.
///
/// Threads: any.
class loop_hub {
public:
    explicit loop_hub(const loop_options& given) : options(given) {}
    loop_hub(const loop_hub&) = delete;
    loop_hub& operator=(const loop_hub&) = delete;
    virtual ~loop_hub() = default;

    /// Null: the name is taken.
    std::shared_ptr<loop_mailbox> open(const std::string& name);
    std::shared_ptr<loop_mailbox> find(std::string_view name) const;
    /// Frees the name: the mailbox can no longer be found.
    void retire(const loop_mailbox& box);
    /// The same, and refuses later items; pending connection requests are told.
    void close(loop_mailbox& box);

    /// Outcome of the operation about to begin: good, or a fault.
    enum class fate : std::uint8_t { good, reset, full };
    virtual fate next_operation() noexcept { return fate::good; }

    /// Whether sends of that size are borrowed.
    virtual bool lends(std::size_t) const noexcept { return false; }
    /// Carries an item to the other side of its connection.
    virtual void carry(loop_item&& item) { deposit(std::move(item)); }
    /// As in frame_link, for a borrowed frame in flight to `to`.
    virtual bool forget(loop_connection&, std::uint8_t, completion&) noexcept { return false; }
    virtual void detach(loop_connection&, std::uint8_t, completion&) noexcept {}
    /// `side` has ended the connection: its borrowed frames are not delivered.
    virtual void shut(loop_connection&, std::uint8_t) noexcept {}
    /// Breaks the connection at both ends and drops what is in flight.
    virtual void break_now(const std::shared_ptr<loop_connection>& on, status why) noexcept;

    virtual void attach(loop_port&) {}
    virtual void detach(loop_port&) noexcept {}
    virtual void drive(loop_port&, port_driver*) noexcept {}
    /// The port has work that did not come through its mailbox.
    virtual void wake(loop_port&) noexcept {}
    /// Processes what is due by now.
    virtual void catch_up() noexcept {}
    virtual const clock& time() const noexcept { return clock::steady(); }

    const loop_options options;

protected:
    /// Puts an item into its mailbox. If the mailbox is closed, the sender's side ends; if out of
    /// memory, both sides end.
    void deposit(loop_item&& item) noexcept;
    void tell_over(const std::shared_ptr<loop_connection>& on, int side, status why) noexcept;
    virtual void deposited(loop_mailbox&) {}

private:
    mutable std::mutex mutex_;
    std::map<std::string, std::shared_ptr<loop_mailbox>, std::less<>> names_;
};

}  // namespace amalgam::detail

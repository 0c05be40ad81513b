#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
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

#include "fabric/frame.hpp"

namespace amalgam::detail {

struct loop_connection;
struct loop_side;
class loop_link;
class loop_port;
struct loop_station;

/// What travels from one end of a connection to the other, or is told to one end.
struct loop_item {
    enum class kind : std::uint8_t {
        connect,  ///< To side 1: somebody wants to talk.
        frame,
        reset,     ///< The connection is over: `why`.
        writable,  ///< To a side that found no room: try again.
        sent       ///< To a side whose lent frame has arrived: `on_sent`.
    };
    kind what = kind::frame;
    std::uint8_t to = 0;  ///< The side.
    std::shared_ptr<loop_connection> on;
    frame_header header;
    buffer bytes;                   ///< frame: the payload, unless it is still lent.
    gather lent;                    ///< frame: the payload while `on_sent` is set.
    completion* on_sent = nullptr;  ///< frame: when lent; sent: which one.
    status why;
};

/// What reached a port that it has not looked at.
///
/// Threads: any; take() and arm() are the port's own.
class loop_mailbox {
public:
    explicit loop_mailbox(std::string name) : name_(std::move(name)) {}

    const std::string& name() const noexcept { return name_; }
    enum class put_result : std::uint8_t { taken, closed, no_memory };
    /// Takes `item` only if the result says so.
    put_result put(loop_item& item) noexcept;
    /// Tells `side` of the connection that it is over, after all that was put before. The first
    /// time counts. Needs no memory, so that what fails for want of it can always be told.
    void end(const std::shared_ptr<loop_connection>& on, std::uint8_t side, status why) noexcept;
    /// Exchanges all items for the empty `out`, and hands over the list of the sides that are over,
    /// to be looked at after them. Precondition: `over` is null.
    void take(std::vector<loop_item>& out, loop_side*& over) noexcept;
    bool empty() const noexcept;
    /// Nothing is put any more; gives what was still in here.
    std::vector<loop_item> close() noexcept;
    /// Forgets that this lent send has arrived, if it is in here.
    void forget_sent(const completion& on_sent);

    /// Opens the handle that becomes readable. Failure: throws error.
    void open_handle();
    int handle() const noexcept { return handle_.get(); }
    /// False: something is here already. Else the next put() makes the handle readable.
    bool arm();
    void disarm() noexcept;

    loop_station* station = nullptr;  ///< Of networks in virtual time.

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
    loop_link* link = nullptr;  ///< Touched by its port only.
    clock::duration silence_limit{};

    std::atomic<std::size_t> unread{0};   ///< Bytes sent from here that the other has not read.
    std::atomic<bool> wants_room{false};  ///< Was told `full` and not `writable` since.

    // Under the lock of `box`: in its list of those that are over.
    bool is_over = false;
    status over_why;
    std::shared_ptr<loop_connection> over_on;  ///< Keeps this alive while listed.
    loop_side* next_over = nullptr;

    // Of networks in virtual time: what is on its way to here. Its `on` is empty, lest a connection
    // keep itself alive.
    struct travelling {
        clock::time_point arrives;
        loop_item item;
        bool is_there = false;  ///< Its host has it, and has handled it at `arrives`.
    };
    std::deque<travelling> coming;
    clock::time_point last_arrival{};
    std::size_t held = 0;  ///< How many of them were due while the connection was cut.
};

/// Two ends. Side 0 opened it.
struct loop_connection {
    loop_side sides[2];
    bool stands = false;  ///< The far side has seen it. Below: of networks in virtual time.
    bool broken = false;  ///< Nothing passes any more, ever.
    bool silent = false;  ///< Broken or cut.
    clock::time_point silent_since{};
};

/// Takes the first side off a list of those that are over, as the news of it.
/// Precondition: the list is not empty.
loop_item take_over(loop_side*& list) noexcept;

/// What a frame costs its link's room: its header too, so that empty ones are bounded.
inline std::size_t room_of(const loop_item& item) noexcept {
    return sizeof(frame_header) + item.header.bytes;
}

/// A set of names and the way between them. This one carries everything at once.
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
    /// The name is free again; nobody finds the mailbox any more.
    void retire(const loop_mailbox& box);
    /// The same, and nothing is put into it any more; who still tried to connect is told.
    void close(loop_mailbox& box);

    /// What befalls the operation that is about to begin: nothing, or a fault.
    enum class fate : std::uint8_t { good, reset, full };
    virtual fate next_operation() noexcept { return fate::good; }

    /// Whether sends of that size are lent.
    virtual bool lends(std::size_t) const noexcept { return false; }
    /// Takes an item to the other side of its connection.
    virtual void carry(loop_item&& item) { deposit(std::move(item)); }
    /// As frame_link: of a lent frame that is on its way to `to`.
    virtual bool forget(loop_connection&, std::uint8_t, completion&) noexcept { return false; }
    virtual void detach(loop_connection&, std::uint8_t, completion&) noexcept {}
    /// `side` has ended the connection: what it lent is not sent any more.
    virtual void shut(loop_connection&, std::uint8_t) noexcept {}
    /// Both ends have lost the connection, and what was on its way.
    virtual void break_now(const std::shared_ptr<loop_connection>& on, status why) noexcept;

    virtual void attach(loop_port&) {}
    virtual void detach(loop_port&) noexcept {}
    virtual void drive(loop_port&, port_driver*) noexcept {}
    /// The port has something to do that did not come through its mailbox.
    virtual void wake(loop_port&) noexcept {}
    /// Brings about what is due by now.
    virtual void catch_up() noexcept {}
    virtual const clock& time() const noexcept { return clock::steady(); }

    const loop_options options;

protected:
    /// Puts an item into the mailbox it goes to. One that finds it closed ends its sender's side,
    /// one that finds no memory both.
    void deposit(loop_item&& item) noexcept;
    void tell_over(const std::shared_ptr<loop_connection>& on, int side, status why) noexcept;
    virtual void deposited(loop_mailbox&) {}

private:
    mutable std::mutex mutex_;
    std::map<std::string, std::shared_ptr<loop_mailbox>, std::less<>> names_;
};

}  // namespace amalgam::detail

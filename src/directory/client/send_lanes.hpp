#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <amalgam/core/result.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/directory/resource_message.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam::detail {

inline constexpr const char* context_is_closed = "this context is closed; make a new one";

/// A queued message that its sender does not wait for, or a waiting sender's turn.
///
/// Owner:   shared by its lane and those waiting for it.
class queued_send {
public:
    enum class kind : std::uint8_t {
        message,
        post,  ///< Nobody learns its outcome.
        turn   ///< Not a message: its sender sends it itself, between given() and done().
    };
    queued_send(kind which, std::int32_t its_tag, std::size_t its_bytes) noexcept
        : what(which), tag(its_tag), bytes(its_bytes) {}
    queued_send(const queued_send&) = delete;
    queued_send& operator=(const queued_send&) = delete;
    virtual ~queued_send() = default;

    /// Holds at least `bytes`.
    virtual message_buffer& content() noexcept = 0;
    /// Its outcome. Called once, unless destroyed before. A failure once the context is closed is
    /// `closed`, whatever it was.
    void end(const failure* why) noexcept;

    const kind what;
    const std::int32_t tag;
    const std::size_t bytes;

private:
    friend class send_lanes;
    virtual void ended(const failure* why) noexcept = 0;

    const std::atomic<bool>* closed_ = nullptr;  // The context's, once in a lane.
};

/// Messages that a context has started to send, in order per pair of resources. Each such pair has
/// a lane while it has messages. One ULT runs a lane; nothing else sends messages that must stay
/// behind those in it.
///
/// Threads: any.
/// Cost:    idle(), checked per message, is a load.
class send_lanes {
public:
    using item = std::shared_ptr<queued_send>;

    /// `closed`: whether their context is closed; outlives this and what is in it.
    explicit send_lanes(const std::atomic<bool>& closed) noexcept : closed_(closed) {}

    bool idle() const noexcept { return open_.load(std::memory_order_acquire) == 0; }

    /// Appends to the lane. True: the lane was opened, and the caller must start its ULT.
    bool push(resource_id from, resource_id to, item what);
    /// The same, but only if the lane is open. False: it is not, and nothing has to wait.
    /// Failure: throws error{overloaded} for a post if posts of `most_bytes` are queued there.
    bool push_if_open(resource_id from, resource_id to, item what, std::size_t most_bytes);
    /// For the lane's ULT: the next item; none: the lane is now closed.
    item next(resource_id from, resource_id to);
    /// The same; also none if the next item is not wanted.
    template <typename Wanted>
    item next_if(resource_id from, resource_id to, Wanted wanted);
    /// Removes an item that must not be sent any more. False if already taken.
    bool remove(resource_id from, resource_id to, const queued_send& what) noexcept;
    /// Ends every item in the lane with that failure, and closes it.
    void fail(resource_id from, resource_id to, const failure& why) noexcept;

    /// Parks until no lane is open.
    void wait_until_idle();

private:
    struct lane {
        std::deque<item> items;
        std::size_t posted_bytes = 0;
    };
    static std::uint64_t key(resource_id from, resource_id to) noexcept {
        return std::uint64_t{static_cast<std::uint32_t>(from)} << 32 |
               static_cast<std::uint32_t>(to);
    }
    static std::size_t posted(const queued_send& what) noexcept {
        return what.what == queued_send::kind::post ? what.bytes + 256 : 0;
    }
    static item take(lane& from) noexcept;
    void close(std::uint64_t which) noexcept;  // With the lock held.

    const std::atomic<bool>& closed_;
    std::mutex lock_;  // Never held across a wait.
    std::unordered_map<std::uint64_t, lane> lanes_;
    std::atomic<std::size_t> open_{0};
    event all_closed_;
};

template <typename Wanted>
send_lanes::item send_lanes::next_if(resource_id from, resource_id to, Wanted wanted) {
    const std::lock_guard one(lock_);
    const auto at = lanes_.find(key(from, to));
    if (at == lanes_.end() || at->second.items.empty() || !wanted(*at->second.items.front()))
        return nullptr;
    return take(at->second);
}

/// The turn of a sender that waits: later items of the lane wait until this ends.
class send_turn {
public:
    send_turn() noexcept = default;  ///< Nothing to wait for.
    /// Parks until it is its turn. Failure: throws error{timed_out} at the deadline.
    send_turn(send_lanes& lanes, resource_id from, resource_id to, event::time_point deadline);
    send_turn(const send_turn&) = delete;
    send_turn& operator=(const send_turn&) = delete;
    ~send_turn();

    /// Its placeholder in the lane.
    class waiting;

private:
    std::shared_ptr<waiting> mine_;
};

/// A message of resource::start_send().
class started_send final : public queued_send {
public:
    started_send(std::int32_t its_tag, message_buffer its_content)
        : queued_send(kind::message, its_tag, its_content.size()),
          content_(std::move(its_content)) {}
    future<void> result() { return result_.get_future(); }
    message_buffer& content() noexcept override { return content_; }

private:
    void ended(const failure* why) noexcept override {
        why != nullptr ? result_.set_failure(*why) : result_.set_value();
    }

    message_buffer content_;
    promise<void> result_;
};

/// A message of resource::post().
class posted_send final : public queued_send {
public:
    posted_send(std::int32_t its_tag, message_buffer its_content)
        : queued_send(kind::post, its_tag, its_content.size()), content_(std::move(its_content)) {}
    message_buffer& content() noexcept override { return content_; }

private:
    void ended(const failure*) noexcept override {}

    message_buffer content_;
};

class send_turn::waiting final : public queued_send {
public:
    waiting() noexcept : queued_send(kind::turn, 0, 0) {}
    message_buffer& content() noexcept override { return none_; }

    event given;
    event done;

private:
    void ended(const failure*) noexcept override { given.set(); }

    message_buffer none_;
};

}  // namespace amalgam::detail

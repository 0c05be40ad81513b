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

/// A message from one resource to another that its sender does not wait for, or a sender who waits
/// for his turn.
///
/// Owner:   shared by its lane, and whoever waits for it.
class queued_send {
public:
    enum class kind : std::uint8_t {
        message,
        post,  ///< Nobody is told what becomes of it.
        turn   ///< Not a message: its sender sends it himself, between given() and done().
    };
    queued_send(kind which, std::int32_t its_tag, std::size_t its_bytes) noexcept
        : what(which), tag(its_tag), bytes(its_bytes) {}
    queued_send(const queued_send&) = delete;
    queued_send& operator=(const queued_send&) = delete;
    virtual ~queued_send() = default;

    /// Holds at least `bytes`.
    virtual message_buffer& content() noexcept = 0;
    /// What became of it: once, unless it is destroyed before.
    virtual void end(const failure* why) noexcept = 0;

    const kind what;
    const std::int32_t tag;
    const std::size_t bytes;
};

/// Messages that a context has begun to send, in the order in which each resource sends to each
/// other one: a lane for each such pair, as long as something is in it. One ULT runs a lane; nobody
/// else sends what is to stay behind its messages.
///
/// Threads: any.
/// Cost:    idle(), which each message asks, is a load.
class send_lanes {
public:
    using item = std::shared_ptr<queued_send>;

    bool idle() const noexcept { return open_.load(std::memory_order_acquire) == 0; }

    /// At the end of the lane. True: it was opened for that, and the caller has it run.
    bool push(resource_id from, resource_id to, item what);
    /// The same, but only where the lane is open. False: it is not, and nothing has to wait.
    /// Failure: throws error{overloaded} for a post when posts of `most_bytes` wait there.
    bool push_if_open(resource_id from, resource_id to, item what, std::size_t most_bytes);
    /// For who runs it: the next; none: the lane is closed.
    item next(resource_id from, resource_id to);
    /// The same; none also when the next one is not wanted.
    template <typename Wanted>
    item next_if(resource_id from, resource_id to, Wanted wanted);
    /// It is not to be sent any more. False: it was taken already.
    bool remove(resource_id from, resource_id to, const queued_send& what) noexcept;
    /// Ends all that is in it with that, and closes it.
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

/// The turn of a sender who waits himself: what comes behind it waits until this ends.
class send_turn {
public:
    send_turn() noexcept = default;  ///< There is nothing to wait for.
    /// Parks until it is there. Failure: throws error{timed_out} at the deadline.
    send_turn(send_lanes& lanes, resource_id from, resource_id to, event::time_point deadline);
    send_turn(const send_turn&) = delete;
    send_turn& operator=(const send_turn&) = delete;
    ~send_turn();

    /// What lies in the lane for it.
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
    void end(const failure* why) noexcept override {
        why != nullptr ? result_.set_failure(*why) : result_.set_value();
    }

private:
    message_buffer content_;
    promise<void> result_;
};

/// A message of resource::post().
class posted_send final : public queued_send {
public:
    posted_send(std::int32_t its_tag, message_buffer its_content)
        : queued_send(kind::post, its_tag, its_content.size()), content_(std::move(its_content)) {}
    message_buffer& content() noexcept override { return content_; }
    void end(const failure*) noexcept override {}

private:
    message_buffer content_;
};

class send_turn::waiting final : public queued_send {
public:
    waiting() noexcept : queued_send(kind::turn, 0, 0) {}
    message_buffer& content() noexcept override { return none_; }
    void end(const failure*) noexcept override { given.set(); }

    event given;
    event done;

private:
    message_buffer none_;
};

}  // namespace amalgam::detail

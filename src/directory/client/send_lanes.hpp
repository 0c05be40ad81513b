#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include <amalgam/core/result.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/directory/resource_message.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/extension/small_block.hpp>
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
/// a lane while it has messages. A short message that finds the lane without a queue is sent at
/// once by who starts it. What must wait is queued: one ULT then runs the lane, once what was sent
/// at once has been answered. Nothing else sends messages that must stay behind those in the lane.
///
/// Threads: any.
/// Cost:    idle(), checked per message, is a load. No allocation in steady state.
class send_lanes {
public:
    using item = std::shared_ptr<queued_send>;
    template <typename T>
    using list = std::list<T, small_block_allocator<T>>;

    /// A message that was sent at once.
    struct begun {
        item what;
        peer there;
        result<errc> became = errc::ok;  ///< Once it was refused.
    };
    /// Its place among those of its lane, until leave(), or until the lane's ULT has it.
    struct place {
        list<begun>::iterator at;
        /// Not 0: no other is under way, and earlier refusals no longer count. Until sent() nothing
        /// else enters, which could arrive before it.
        std::uint64_t begins;
    };

    /// `closed`: whether their context is closed; outlives this and what is in it.
    explicit send_lanes(const std::atomic<bool>& closed) noexcept : closed_(closed) {}

    bool idle() const noexcept { return open_.load(std::memory_order_acquire) == 0; }

    /// For who sends the message at once. Empty: it must be queued, by push().
    std::optional<place> enter(resource_id from, resource_id to, const item& what,
                               const peer& there);
    /// For one that begins, unless it has ended: what enters from now on is sent after it.
    void sent(resource_id from, resource_id to, const place& which) noexcept;
    /// That message has ended. True: the lane is left to its ULT, which the caller must start.
    bool leave(resource_id from, resource_id to, const place& which) noexcept;
    /// The lane's ULT is to send it again, with all that follow. True: as leave().
    bool refuse(resource_id from, resource_id to, const place& which,
                result<errc>&& became) noexcept;
    /// For the lane's ULT, before next(): those that were refused, in order.
    list<begun> take_refused(resource_id from, resource_id to);

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
        list<item> items;
        list<begun> at_once;
        std::size_t refused = 0;  // Of these; nothing more is sent at once behind them.
        std::size_t posted_bytes = 0;
        std::uint64_t beginning = 0;  // One that begins is being sent: its number.
        bool has_ult = false;
    };
    using map = std::unordered_map<std::uint64_t, lane, std::hash<std::uint64_t>,
                                   std::equal_to<std::uint64_t>,
                                   small_block_allocator<std::pair<const std::uint64_t, lane>>>;
    static std::uint64_t key(resource_id from, resource_id to) noexcept {
        return std::uint64_t{static_cast<std::uint32_t>(from)} << 32 |
               static_cast<std::uint32_t>(to);
    }
    static std::size_t posted(const queued_send& what) noexcept {
        return what.what == queued_send::kind::post ? what.bytes + 256 : 0;
    }
    static item take(lane& from) noexcept;
    // With the lock held.
    std::pair<map::iterator, bool> open(resource_id from, resource_id to);
    bool leave_to_ult(map::iterator which) noexcept;
    void close(map::iterator which) noexcept;

    const std::atomic<bool>& closed_;
    std::mutex lock_;  // Never held across a wait.
    map lanes_;
    std::uint64_t last_begun_ = 0;
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
        if (why == nullptr) return result_.set_value();
        failure said{why->what, {}};
        try {
            said.sentence = why->sentence;
        } catch (const std::bad_alloc&) {
            // Its code is left.
        }
        result_.set_failure(std::move(said));
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

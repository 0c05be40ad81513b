#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/responder.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/ult.hpp>

/// What the nodes of fastflow.hpp stand on; needs no FastFlow itself.
///
/// The wire: procedures named amalgam.fastflow.*, called by senders but for `failed`, which both
/// ends call.
///     join    type of the items              I will send; refused when the types differ or enough
///                                            senders have joined; answered at once
///     batch   number, items, bytes           numbers count from 0; answered when all of its items
///                                            have left the receiver
///     end     batches, items                 there are no more: once per sender and receiver
///     failed  why                            this end ends early
namespace amalgam {

/// What a node does by default when its stream cannot be finished: writes the sentence to stderr
/// and ends the process with exit code 1, without destructors, because other nodes still run.
[[noreturn]] inline void end_program(const failure& why) {
    if (::ftrylockfile(stdout) == 0) std::fflush(stdout);
    std::fprintf(stderr, "amalgam: %s\n", why.sentence.c_str());
    std::_Exit(1);
}

/// How a node that sends or receives behaves. Every field has a default that suits most.
struct fastflow_options {
    /// Items travel together once they fill this; sooner when the receiver has nothing to do.
    std::size_t batch_bytes = std::size_t{64} << 10;
    /// Of one sender and receiver: sent, and not yet consumed.
    unsigned batches_in_flight = 4;
    /// How long senders look for their receivers, and receivers wait for their senders.
    std::chrono::nanoseconds join_limit = std::chrono::seconds(30);
    /// Runs once, when the other end is lost or failed, or items cannot be read or written; on a
    /// thread of its own, after the other ends were told. When it returns, the stream ends early:
    /// a receiver gives end-of-stream, a sender deletes what it gets. It must not destroy the node.
    std::function<void(const failure&)> on_failure = end_program;
    engine_options engine{};
};

namespace detail {

/// What both ends have: an engine, and how it all ends when something breaks.
class fastflow_end {
public:
    fastflow_end(endpoints where, fastflow_options options)
        : options_(std::move(options)), engine_(std::move(where), options_.engine) {}
    fastflow_end(const fastflow_end&) = delete;
    fastflow_end& operator=(const fastflow_end&) = delete;

    engine& over() noexcept { return engine_; }
    std::optional<failure> failed() const {
        const std::lock_guard hold(lock_);
        return failed_;
    }

    /// Returns once on_failure has, if this end failed: what a node does last.
    void wait_for_last_words() {
        std::unique_lock hold(lock_);
        changed_.wait(hold, [this] { return !failed_ || said_; });
    }

    /// The first failure counts; after the end none does.
    void fail(failure why) {
        const std::lock_guard hold(lock_);
        if (failed_ || done_) return;
        failed_ = std::move(why);
        wake_all();
        // Not here: the engine cannot be stopped from inside, and whoever found out may be needed.
        last_words_ = std::thread([this] { say_why(); });
    }

protected:
    ~fastflow_end() = default;

    /// In the constructors of what derives from this, before anybody can call; close() comes first
    /// in their destructors.
    void listen() {
        told_ = engine_.on_peer_lost([this](const peer& who, status why) { lose(who, why); });
        engine_.define("amalgam.fastflow.failed", [this](std::string why) {
            fail({{errc::handler_failed},
                  label(call_context::current().from()) + " failed: " + why});
        });
    }
    void close() {
        {
            const std::lock_guard hold(lock_);
            done_ = true;
            wake_all();
        }
        if (last_words_.joinable()) last_words_.join();  // No other can begin any more.
        refuse("it was destroyed before the end of the stream");
        stop();
    }

    virtual std::string label(const peer& who) const = 0;
    /// Those to tell, with the lock held.
    virtual std::vector<peer> others() const = 0;
    /// Losing that one loses items; with the lock held.
    virtual bool needs(const peer& who) const = 0;
    /// Ends what others wait for here; without the lock.
    virtual void refuse(const std::string& /*why*/) {}
    /// Joins the ULTs that it has; without the lock.
    virtual void end_ults() {}
    virtual void wake_all() noexcept { changed_.notify_all(); }

    fastflow_options options_;
    mutable mutex lock_;
    condition_variable changed_;
    std::optional<failure> failed_;
    bool said_ = false;  ///< on_failure has returned.
    bool done_ = false;

    static failure loss_of(const std::string& who, status why) {
        return {why, who + " is lost before the end of the stream (" + std::string(name(why.code)) +
                         "): see what it said last, and start all groups again"};
    }

private:
    void stop() {
        // Whoever waits for the lock must have it before the stream ends.
        end_ults();
        told_.end();
        engine_.stop();
    }

    void lose(const peer& who, status why) {
        {
            const std::lock_guard hold(lock_);
            if (!needs(who)) return;
        }
        fail(loss_of(label(who), why));
    }

    void say_why() {
        std::unique_lock hold(lock_);
        const failure why = *failed_;
        const std::vector<peer> all = others();
        hold.unlock();
        const auto failed = engine_.procedure<void(std::string)>("amalgam.fastflow.failed");
        std::vector<future<void>> told;
        try {
            for (const peer& one : all)
                told.push_back(failed.on(one).within(std::chrono::seconds(1)).start(why.sentence));
        } catch (const error&) {  // They find out by our end.
        }
        for (future<void>& one : told)
            (void)one.wait();
        refuse(why.sentence);
        stop();
        if (options_.on_failure) options_.on_failure(why);
        hold.lock();
        said_ = true;
        wake_all();
    }

    engine engine_;
    peer_lost_subscription told_;
    std::thread last_words_;
};

/// A receiver, without the type of its items.
class fastflow_in final : public fastflow_end {
public:
    /// A batch that has come.
    struct arrival {
        peer from;
        std::uint32_t items;
        buffer bytes;
        responder<void> consumed;
    };

    fastflow_in(endpoints where, std::size_t senders, std::string type, fastflow_options options)
        : fastflow_end(std::move(where), std::move(options)),
          senders_(senders != 0 ? senders : over().addresses().size()),
          type_(std::move(type)) {
        if (over().addresses().empty())
            throw error(errc::invalid,
                        "a receiver listens: give it an address, as tcp://eth0:7000");
        listen();
        over().define(
            "amalgam.fastflow.batch",
            [this](responder<void> consumed, std::uint64_t number, std::uint32_t items,
                   const_bytes bytes) { take(std::move(consumed), number, items, bytes); });
        over().define("amalgam.fastflow.end", [this](std::uint64_t batches, std::uint64_t items) {
            take_end(batches, items);
        });
        // Last: who has joined sends.
        over().define("amalgam.fastflow.join", [this](std::string of) { take_join(of); });
    }
    ~fastflow_in() { close(); }

    /// Waits for the next batch; nothing: all senders have ended, or this end failed.
    std::optional<arrival> next() {
        std::unique_lock hold(lock_);
        const auto something = [this] { return failed_ || !ready_.empty() || all_ended(); };
        if (!join_until_) join_until_ = std::chrono::steady_clock::now() + options_.join_limit;
        changed_.wait_until(hold, *join_until_,
                            [&] { return something() || links_.size() == senders_; });
        if (links_.size() != senders_ && std::chrono::steady_clock::now() >= *join_until_) {
            const std::string missed = std::to_string(links_.size()) + " of " +
                                       std::to_string(senders_) + " senders joined at " +
                                       over().address();
            hold.unlock();
            fail({{errc::timed_out}, missed + " in time: start the others, or expect fewer"});
            return std::nullopt;
        }
        changed_.wait(hold, something);
        if (failed_ || ready_.empty()) return std::nullopt;
        std::optional<arrival> first(std::move(ready_.front()));
        ready_.pop_front();
        return first;
    }

    /// All items of a batch have left.
    void consumed(arrival& what) {
        {
            const std::lock_guard hold(lock_);
            links_[what.from].items += what.items;
        }
        what.consumed();
    }
    /// Not all of them will: this end has failed. Its sender is told so after the other ends know
    /// why.
    void give_back(arrival what) {
        std::unique_lock hold(lock_);
        if (!refused_) return ready_.push_front(std::move(what));
        hold.unlock();
        what.consumed.fail(*refused_);
    }

private:
    struct link {
        std::string name;
        std::uint64_t expected = 0;              ///< The number of the next batch in order.
        std::uint64_t items = 0;                 ///< Consumed.
        std::map<std::uint64_t, arrival> early;  ///< Large batches are fetched, and overtaken.
        bool ended = false;
    };

    void take_join(const std::string& type) {
        const std::lock_guard hold(lock_);
        if (type != type_)
            throw error(errc::mismatch, "its items are " + type + ", expected " + type_ +
                                            ": build both ends for the same type");
        const peer& from = call_context::current().from();
        if (links_.count(from) != 0) return;  // Asked again, after a lost answer.
        if (links_.size() == senders_ || failed_ || done_)
            throw error(errc::closed, "all of the " + std::to_string(senders_) +
                                          " senders that it expects have joined before");
        const std::string name = "sender " + std::to_string(links_.size() + 1);
        links_[from].name = name;
        changed_.notify_all();
    }

    void take(responder<void> consumed, std::uint64_t number, std::uint32_t items,
              const_bytes bytes) {
        const peer from = call_context::current().from();
        arrival fresh{from, items, room_.take(bytes.size()), std::move(consumed)};
        std::copy(bytes.begin(), bytes.end(), fresh.bytes.data());
        const std::lock_guard hold(lock_);
        if (refused_) throw error(errc::closed, *refused_);
        const auto found = links_.find(from);
        if (found == links_.end() || found->second.ended || number < found->second.expected ||
            found->second.early.size() == most_early ||
            !found->second.early.emplace(number, std::move(fresh)).second)
            throw error(errc::invalid, "batch " + std::to_string(number) + " was not expected");
        link& of = found->second;
        while (!of.early.empty() && of.early.begin()->first == of.expected) {
            ready_.push_back(std::move(of.early.extract(of.early.begin()).mapped()));
            ++of.expected;
        }
        changed_.notify_all();
    }

    void take_end(std::uint64_t batches, std::uint64_t items) {
        const std::lock_guard hold(lock_);
        if (failed_) throw error(failed_->what, failed_->sentence);
        const auto found = links_.find(call_context::current().from());
        if (found == links_.end() || found->second.ended)
            throw error(errc::invalid, "this sender has not joined, or has ended before");
        link& of = found->second;
        if (of.expected != batches || of.items != items)
            throw error(errc::internal,
                        std::to_string(of.items) + " items arrived of " + std::to_string(items));
        of.ended = true;
        changed_.notify_all();
    }

    bool all_ended() const noexcept {
        return links_.size() == senders_ &&
               std::all_of(links_.begin(), links_.end(),
                           [](const auto& one) { return one.second.ended; });
    }
    std::string label(const peer& who) const override {
        const std::lock_guard hold(lock_);
        const auto found = links_.find(who);
        return (found == links_.end() ? "a sender" : found->second.name) + " of " +
               std::to_string(senders_);
    }
    std::vector<peer> others() const override {
        std::vector<peer> open;
        for (const auto& [who, of] : links_)
            if (!of.ended) open.push_back(who);
        return open;
    }
    bool needs(const peer& who) const override {
        const auto found = links_.find(who);
        return found != links_.end() && !found->second.ended;
    }
    void refuse(const std::string& why) override {
        std::unique_lock hold(lock_);
        std::deque<arrival> all = std::move(ready_);
        ready_.clear();
        if (!refused_) refused_ = why;
        for (auto& [who, of] : links_)
            for (auto& [number, early] : std::exchange(of.early, {}))
                all.push_back(std::move(early));
        hold.unlock();
        for (arrival& one : all)
            one.consumed.fail(why);
    }

    static constexpr std::size_t most_early = 1000;
    const std::size_t senders_;
    const std::string type_;
    buffer_pool room_;
    std::unordered_map<peer, link> links_;
    std::deque<arrival> ready_;
    std::optional<std::chrono::steady_clock::time_point> join_until_;
    std::optional<std::string> refused_;  ///< Why batches that come are; a moment after a failure.
};

/// Items on their way; what archives write into.
class fastflow_batch {
public:
    fastflow_batch(buffer_pool& from, std::size_t usual_bytes) noexcept
        : pool_(&from), usual_bytes_(usual_bytes) {}

    std::byte* extend(std::size_t more) {
        const std::size_t before = bytes_.size();
        if (before + more > bytes_.capacity()) {
            // With room for the item that fills it.
            buffer larger = pool_->take(std::max(2 * before, usual_bytes_ + more));
            std::copy_n(bytes_.data(), before, larger.data());
            bytes_ = std::move(larger);
        }
        bytes_.resize(before + more);
        return bytes_.data() + before;
    }
    void shrink(std::size_t to) noexcept { bytes_.resize(to); }
    std::size_t size() const noexcept { return bytes_.size(); }
    const_bytes bytes() const noexcept { return bytes_.bytes(); }

    std::uint32_t items = 0;

private:
    buffer_pool* pool_;
    std::size_t usual_bytes_;
    buffer bytes_;
};

/// A sender, without the type of its items.
///
/// For each receiver some ULTs take turns: one takes the open batch, calls, and comes back when it
/// was consumed. A batch is taken when it is full, or when nothing is in flight to that receiver:
/// so single items leave at once, and none waits here for the next one.
class fastflow_out final : public fastflow_end {
public:
    fastflow_out(std::vector<std::string> receivers, std::string type, fastflow_options options)
        : fastflow_end(ports_to(receivers), std::move(options)), type_(std::move(type)) {
        for (std::string& address : receivers)
            links_.push_back(std::make_unique<link>(std::move(address), new_batch()));
        listen();
    }
    ~fastflow_out() { close(); }

    std::size_t receivers() const noexcept { return links_.size(); }

    /// Finds all receivers; a failure is told like every other.
    void join() {
        const auto deadline = std::chrono::steady_clock::now() + options_.join_limit;
        for (std::unique_ptr<link>& each : links_) {
            if (!join(*each, deadline)) return;
            const std::lock_guard hold(lock_);
            for (unsigned i = 0; !failed_ && i < std::max(options_.batches_in_flight, 1u); ++i)
                turns_.push_back(spawn(over().stream(), [this, to = each.get()] { post(*to); }));
        }
    }

    /// `write(archive)` appends one item for that receiver, or without one for who has the least to
    /// do. False: this end failed, and nothing is sent any more. Waits for room.
    template <typename Write>
    bool send(std::optional<std::size_t> receiver, Write write) {
        std::unique_lock hold(lock_);
        link* to = nullptr;
        const auto has_room = [&] {
            to = receiver ? links_[*receiver].get() : &least_busy();
            return failed_ || to->open.size() < options_.batch_bytes;
        };
        changed_.wait(hold, has_room);
        if (failed_) return false;
        const std::size_t before = to->open.size();
        try {
            basic_archive_writer<fastflow_batch> archive(to->open);
            write(archive);
        } catch (...) {
            to->open.shrink(before);
            throw;
        }
        ++to->open.items;
        if (is_due(*to) && !std::exchange(to->called, true)) to->due.notify_one();
        return true;
    }

    /// Waits until all was consumed, then tells every receiver that there is no more.
    void end() {
        std::unique_lock hold(lock_);
        changed_.wait(hold, [this] {
            return failed_ || std::all_of(links_.begin(), links_.end(), [](const auto& each) {
                       return each->open.items == 0 && each->in_flight == 0;
                   });
        });
        const auto procedure =
            over().procedure<void(std::uint64_t, std::uint64_t)>("amalgam.fastflow.end");
        for (std::unique_ptr<link>& each : links_) {
            if (failed_) return;
            each->ended = true;  // Before the call: once answered, the receiver may go.
            hold.unlock();
            const result<void> answer = procedure.on(each->to).try_call(each->batches, each->items);
            if (!answer) fail_to_send(*each, answer.why());
            hold.lock();
        }
    }

private:
    struct link {
        link(std::string where, fastflow_batch first)
            : address(std::move(where)), open(std::move(first)) {}

        std::string address;
        peer to;
        fastflow_batch open;
        std::uint64_t batches = 0;
        std::uint64_t items = 0;
        unsigned in_flight = 0;
        bool called = false;  ///< Somebody was woken to take the open batch.
        bool ended = false;
        condition_variable due;
    };

    /// One port for each transport that leads to a receiver.
    static endpoints ports_to(const std::vector<std::string>& receivers) {
        if (receivers.empty())
            throw error(errc::invalid, "a sender needs the address of a receiver");
        std::vector<std::string> uris;
        for (const std::string& address : receivers) {
            const uri there = uri::parse(address);
            std::string one =
                there.scheme + (there.protocol.empty() ? "" : "+" + there.protocol) + "://";
            if (std::find(uris.begin(), uris.end(), one) == uris.end())
                uris.push_back(std::move(one));
        }
        return uris;
    }

    fastflow_batch new_batch() noexcept { return {room_, options_.batch_bytes}; }

    bool join(link& at, std::chrono::steady_clock::time_point deadline) {
        using namespace std::chrono_literals;
        constexpr std::chrono::nanoseconds longest = 200ms;
        const auto procedure = over().procedure<void(std::string)>("amalgam.fastflow.join");
        for (std::chrono::nanoseconds pause = 5ms;; pause = std::min(2 * pause, longest)) {
            const auto left = deadline - std::chrono::steady_clock::now();
            failure why;
            if (const result<peer> found = over().try_lookup(at.address)) {
                const result<void> answer =
                    procedure.on(*found)
                        .within(std::max<std::chrono::nanoseconds>(left, pause))
                        .try_call(type_);
                if (answer) {
                    const std::lock_guard hold(lock_);
                    at.to = *found;
                    return true;
                }
                why = answer.why();
            } else {
                why = found.why();
            }
            const errc code = why.what.code;
            // It may not have started yet.
            const bool may_come = code == errc::unreachable || code == errc::disconnected ||
                                  code == errc::timed_out || code == errc::not_found;
            if (!may_come || left <= pause) {
                fail(
                    {why.what, "the receiver at " + at.address +
                                   (may_come ? " was not there in time (" : " cannot be joined (") +
                                   why.sentence + "): start it, or correct the address"});
                return false;
            }
            if (failed()) return false;
            std::this_thread::sleep_for(pause);
        }
    }

    bool is_due(const link& of) const noexcept {
        return of.open.items != 0 && (of.in_flight == 0 || of.open.size() >= options_.batch_bytes);
    }

    /// The one that has items waiting, so that batches fill; else the one with the least in flight,
    /// by turns among equals.
    link& least_busy() noexcept {
        link* best = links_[turn_].get();
        if (best->open.items != 0 && best->open.size() < options_.batch_bytes) return *best;
        const auto load = [this](const link& of) {
            return of.in_flight + (of.open.size() < options_.batch_bytes ? 0 : 1000000);
        };
        best = nullptr;
        const std::size_t last = turn_;
        for (std::size_t i = 1; i <= links_.size(); ++i) {
            const std::size_t at = (last + i) % links_.size();
            if (best != nullptr && load(*links_[at]) >= load(*best)) continue;
            best = links_[at].get();
            turn_ = at;
        }
        return *best;
    }

    void post(link& to) {
        const auto procedure = over().procedure<void(std::uint64_t, std::uint32_t, const_bytes)>(
            "amalgam.fastflow.batch");
        std::unique_lock hold(lock_);
        for (;;) {
            try {
                to.due.wait(hold, [&] { return failed_ || done_ || is_due(to); });
            } catch (const error&) {  // Canceled.
            }
            if (failed_ || done_) return;
            const fastflow_batch mine = std::exchange(to.open, new_batch());
            const std::uint64_t number = to.batches++;
            to.items += mine.items;
            ++to.in_flight;
            to.called = false;
            changed_.notify_all();
            hold.unlock();
            const result<void> answer =
                procedure.on(to.to).try_call(number, mine.items, mine.bytes());
            if (!answer) fail_to_send(to, answer.why());
            hold.lock();
            --to.in_flight;
            changed_.notify_all();
        }
    }

    void fail_to_send(const link& to, const failure& why) {
        if (why.what == errc::disconnected)
            return fail(loss_of("the receiver at " + to.address, why.what));
        fail({why.what, "the receiver at " + to.address + " took not all that was sent to it (" +
                            why.sentence + ")"});
    }
    void end_ults() override {
        std::unique_lock hold(lock_);
        std::vector<ult> all = std::exchange(turns_, {});
        hold.unlock();
        for (ult& each : all)
            each.cancel();
        for (ult& each : all) {
            try {
                each.join();
            } catch (const error&) {  // It had not begun.
            }
        }
    }

    std::string label(const peer& who) const override {
        const std::lock_guard hold(lock_);
        for (const std::unique_ptr<link>& each : links_)
            if (each->to == who) return "the receiver at " + each->address;
        return "a receiver";
    }
    std::vector<peer> others() const override {
        std::vector<peer> open;
        for (const std::unique_ptr<link>& each : links_)
            if (each->to && !each->ended) open.push_back(each->to);
        return open;
    }
    bool needs(const peer& who) const override {
        return std::any_of(links_.begin(), links_.end(),
                           [&](const auto& each) { return each->to == who && !each->ended; });
    }
    void wake_all() noexcept override {
        changed_.notify_all();
        for (std::unique_ptr<link>& each : links_)
            each->due.notify_all();
    }

    const std::string type_;
    buffer_pool room_;
    std::vector<std::unique_ptr<link>> links_;
    std::vector<ult> turns_;
    std::size_t turn_ = 0;
};

}  // namespace detail

}  // namespace amalgam

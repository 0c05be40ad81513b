#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/flow/detail/fastflow_out.hpp>

#include "flow/channel/reach.hpp"
#include "flow/fastflow/wire.hpp"

namespace amalgam::detail {

namespace {

/// One port per transport that leads to a receiver.
endpoints ports_to(const std::vector<std::string>& receivers) {
    if (receivers.empty()) throw error(errc::invalid, "a sender needs the address of a receiver");
    std::vector<std::string> ports;
    for (const std::string& address : receivers) {
        std::string one = client_uri(uri::parse(address));
        if (std::find(ports.begin(), ports.end(), one) == ports.end())
            ports.push_back(std::move(one));
    }
    return ports;
}

}  // namespace

std::byte* fastflow_batch::extend(std::size_t more) {
    const std::size_t before = bytes_.size();
    if (before + more > bytes_.capacity()) {
        // Includes room for the item that completes it.
        buffer larger = pool_->take(std::max(2 * before, usual_bytes_ + more));
        std::copy_n(bytes_.data(), before, larger.data());
        bytes_ = std::move(larger);
    }
    bytes_.resize(before + more);
    return bytes_.data() + before;
}

fastflow_out::fastflow_out(std::vector<std::string> receivers, std::string type,
                           fastflow_options options)
    : fastflow_end(ports_to(receivers), std::move(options)), type_(std::move(type)) {
    for (std::string& address : receivers) {
        auto made = std::make_unique<link>(new_batch());
        made->name = fmt::format("the receiver at {}", address);
        made->address = std::move(address);
        far_ends_.push_back(made.get());
        links_.push_back(std::move(made));
    }
    listen();
}

void fastflow_out::join() {
    const clock::time_point deadline =
        over().now() + std::chrono::duration_cast<clock::duration>(options_.join_limit);
    for (std::unique_ptr<link>& each : links_) {
        if (!join(*each, deadline)) return;
        const std::lock_guard hold(lock_);
        for (unsigned i = 0; !failed_ && i < std::max(options_.batches_in_flight, 1u); ++i)
            ults_.push_back(spawn(over().stream(), [this, to = each.get()] { take_turns(*to); }));
    }
}

bool fastflow_out::join(link& at, clock::time_point deadline) {
    const auto procedure = over().procedure<fastflow_wire::join_signature>(fastflow_wire::join);
    const auto ask = [&](const peer& who, std::chrono::nanoseconds time_left) {
        return procedure.on(who).within(time_left).try_call(type_);
    };
    const result<peer> found =
        reach(over(), at.address, deadline, ask, [this] { return failed().has_value(); });
    if (!found) {
        const bool late = may_come(found.code().code);
        fail({found.code(),
              fmt::format("{} {} ({}); start it, or correct the address", at.name,
                          late ? "did not answer in time" : "cannot be joined", found.sentence())});
        return false;
    }
    const std::lock_guard hold(lock_);
    at.who = *found;
    return true;
}

/// Null: this end failed.
fastflow_out::link* fastflow_out::wait_for_room(std::optional<std::size_t> receiver,
                                                std::unique_lock<mutex>& hold) {
    if (receiver && *receiver >= links_.size())
        throw error(
            errc::invalid,
            fmt::format("route() returned {}, expected less than {}, the number of receivers",
                        *receiver, links_.size()));
    link* to = nullptr;
    changed_.wait(hold, [&] {
        to = receiver ? links_[*receiver].get() : &least_busy();
        return failed_ || !is_full(*to);
    });
    return failed_ ? nullptr : to;
}

void fastflow_out::add_item(link& to) {
    ++to.open.items;
    if (is_due(to) && !std::exchange(to.called, true)) to.due.notify_one();
}

/// The one with items waiting, so that batches fill; else the one with the least in flight,
/// round-robin among equals.
fastflow_out::link& fastflow_out::least_busy() noexcept {
    link* best = links_[turn_].get();
    if (best->open.items != 0 && !is_full(*best)) return *best;
    const auto load = [this](const link& of) { return std::pair(is_full(of), of.in_flight); };
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

void fastflow_out::take_turns(link& to) {
    std::unique_lock hold(lock_);
    for (;;) {
        try {
            to.due.wait(hold, [&] { return failed_ || done_ || is_due(to); });
        } catch (const error&) {  // Canceled.
        }
        if (failed_ || done_) return;
        post(to, hold);
    }
}

void fastflow_out::post(link& to, std::unique_lock<mutex>& hold) {
    const fastflow_batch mine = std::exchange(to.open, new_batch());
    const std::uint64_t number = to.batches++;
    to.items += mine.items;
    ++to.in_flight;
    to.called = false;
    changed_.notify_all();
    hold.unlock();
    const auto batch = over().procedure<fastflow_wire::batch_signature>(fastflow_wire::batch);
    const result<void> answer = batch.on(to.who).try_call(number, mine.items, mine.bytes());
    if (!answer) fail_to_send(to, answer.why());
    hold.lock();
    --to.in_flight;
    changed_.notify_all();
}

void fastflow_out::fail_to_send(const link& to, const failure& why) {
    if (why.what == errc::disconnected) return fail(loss_of(to, why.what));
    fail({why.what, fmt::format("{} did not take everything that was sent to it ({})", to.name,
                                why.sentence)});
}

void fastflow_out::end() {
    std::unique_lock hold(lock_);
    changed_.wait(hold, [this] {
        return failed_ || std::all_of(links_.begin(), links_.end(), [](const auto& each) {
                   return each->open.items == 0 && each->in_flight == 0;
               });
    });
    const auto end = over().procedure<fastflow_wire::end_signature>(fastflow_wire::end);
    for (std::unique_ptr<link>& each : links_) {
        if (failed_) return;
        each->ended = true;  // Before the call: once it is answered, the receiver may go.
        hold.unlock();
        const result<void> answer = end.on(each->who).try_call(each->batches, each->items);
        if (!answer) fail_to_send(*each, answer.why());
        hold.lock();
    }
    if (!failed_) ended_ = true;
}

void fastflow_out::end_ults() {
    std::unique_lock hold(lock_);
    std::vector<ult> all = std::exchange(ults_, {});
    hold.unlock();
    for (ult& each : all)
        each.cancel();
    for (ult& each : all) {
        try {
            each.join();
        } catch (const error&) {  // It had not started.
        }
    }
}

void fastflow_out::wake_all() noexcept {
    changed_.notify_all();
    for (std::unique_ptr<link>& each : links_)
        each->due.notify_all();
}

}  // namespace amalgam::detail

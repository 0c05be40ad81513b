#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <amalgam/flow/detail/fastflow_in.hpp>
#include <amalgam/rpc/call_context.hpp>

#include "flow/fastflow/wire.hpp"

namespace amalgam::detail {

fastflow_in::fastflow_in(endpoints where, std::size_t senders, std::string type,
                         fastflow_options options)
    : fastflow_end(std::move(where), std::move(options)),
      senders_(senders != 0 ? senders : over().addresses().size()),
      type_(std::move(type)) {
    if (over().addresses().empty())
        throw error(errc::invalid,
                    "a receiver needs an address to listen on; example: tcp://eth0:7000");
    listen();
    over().define(library_name{fastflow_wire::batch},
                  [this](responder<void> consumed, std::uint64_t number, std::uint32_t items,
                         const_bytes bytes) { take(std::move(consumed), number, items, bytes); });
    over().define(library_name{fastflow_wire::end},
                  [this](std::uint64_t batches, std::uint64_t items) { take_end(batches, items); });
    // Last: a sender that has joined starts sending.
    over().define(library_name{fastflow_wire::join},
                  [this](std::string type_of_items) { take_join(type_of_items); });
}

std::optional<fastflow_in::arrival> fastflow_in::next() {
    std::unique_lock hold(lock_);
    if (!has_all_senders(hold)) return std::nullopt;
    changed_.wait(hold, [this] { return has_something(); });
    if (failed_) return std::nullopt;
    if (ready_.empty()) {
        ended_ = true;
        return std::nullopt;
    }
    std::optional<arrival> first(std::move(ready_.front()));
    ready_.pop_front();
    return first;
}

/// False: their time is up; this end has failed. Items that arrived need not wait for all senders.
bool fastflow_in::has_all_senders(std::unique_lock<mutex>& hold) {
    const auto all_joined = [this] { return links_.size() == senders_; };
    if (!join_until_) join_until_ = std::chrono::steady_clock::now() + options_.join_limit;
    changed_.wait_until(hold, *join_until_, [&] { return has_something() || all_joined(); });
    if (all_joined() || std::chrono::steady_clock::now() < *join_until_) return true;
    const std::size_t joined = links_.size();
    hold.unlock();
    fail({{errc::timed_out},
          fmt::format(
              "only {} of {} senders joined at {} in time; start the others, or expect fewer",
              joined, senders_, over().address())});
    return false;
}

/// A batch, or the end.
bool fastflow_in::has_something() const noexcept {
    const auto all_ended = [this] {
        return links_.size() == senders_ &&
               std::all_of(links_.begin(), links_.end(),
                           [](const auto& one) { return one.second.ended; });
    };
    return failed_ || !ready_.empty() || all_ended();
}

void fastflow_in::consumed(arrival& what) {
    {
        const std::lock_guard hold(lock_);
        what.from->items += what.items;
    }
    what.consumed();
}

void fastflow_in::give_back(arrival what) {
    std::unique_lock hold(lock_);
    if (!refused_) return ready_.push_front(std::move(what));
    hold.unlock();
    what.consumed.fail(*refused_);
}

void fastflow_in::take_join(const std::string& type) {
    const std::lock_guard hold(lock_);
    if (type != type_)
        throw error(errc::mismatch,
                    fmt::format("its items are {}, expected {}; build both ends for the same type",
                                type, type_));
    const peer& from = call_context::current().from();
    if (links_.count(from) != 0) return;  // A retry after a lost answer.
    if (links_.size() == senders_ || failed_ || done_)
        throw error(errc::closed,
                    fmt::format("all {} senders that it expects have already joined", senders_));
    link& fresh = links_[from];
    fresh.name = fmt::format("sender {} of {}", links_.size(), senders_);
    fresh.who = from;
    far_ends_.push_back(&fresh);
    changed_.notify_all();
}

void fastflow_in::take(responder<void> consumed, std::uint64_t number, std::uint32_t items,
                       const_bytes bytes) {
    const peer from = call_context::current().from();
    buffer copy = room_.take(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.data());
    const std::lock_guard hold(lock_);
    if (refused_) throw error(errc::closed, *refused_);
    const auto found = links_.find(from);
    if (found == links_.end() || !found->second.expects(number))
        throw error(
            errc::invalid,
            fmt::format("batch {} is out of sequence, or its sender has not joined", number));
    link& of = found->second;
    of.early.emplace(number, arrival{&of, items, std::move(copy), std::move(consumed)});
    while (!of.early.empty() && of.early.begin()->first == of.expected) {
        ready_.push_back(std::move(of.early.extract(of.early.begin()).mapped()));
        ++of.expected;
    }
    changed_.notify_all();
}

void fastflow_in::take_end(std::uint64_t batches, std::uint64_t items) {
    const std::lock_guard hold(lock_);
    if (failed_) throw error(failed_->what, failed_->sentence);
    const auto found = links_.find(call_context::current().from());
    if (found == links_.end() || found->second.ended)
        throw error(errc::invalid, "this sender has not joined, or has already ended");
    link& of = found->second;
    if (of.expected != batches || of.items != items)
        throw error(errc::internal, fmt::format("{} of {} items arrived", of.items, items));
    of.ended = true;
    changed_.notify_all();
}

void fastflow_in::refuse(const std::string& why) {
    std::unique_lock hold(lock_);
    std::deque<arrival> all = std::exchange(ready_, {});
    if (!refused_) refused_ = why;
    for (auto& [who, of] : links_)
        for (auto& [number, early] : std::exchange(of.early, {}))
            all.push_back(std::move(early));
    hold.unlock();
    for (arrival& one : all)
        one.consumed.fail(why);
}

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <amalgam/flow/detail/node_body.hpp>
#include <amalgam/flow/node.hpp>

// The nodes of graph::add_ordered_farm(). Items are numbered before the workers, and results sorted
// after them. By number, not by the workers' turns, because a worker may be several processes.
namespace amalgam::detail {

template <typename T>
struct numbered {
    std::uint64_t number = 0;
    T value{};

    template <typename Archive>
    requires serializable<T>
    void serialize(Archive& archive) { archive(number, value); }
};

/// Number of items sent at a worker's end: they sort last.
inline constexpr std::uint64_t number_at_end = std::numeric_limits<std::uint64_t>::max();

template <typename T>
struct number_items : stage<T, numbered<T>> {
    void start(const place&) { next_ = 0; }
    void process(T&& item, outlet<numbered<T>>& out) {
        out.send(numbered<T>{next_++, std::move(item)});
    }

private:
    std::uint64_t next_ = 0;
};

/// A worker that gives exactly one item per input.
template <typename In, typename Out, typename Function>
struct ordered_function : stage<numbered<In>, numbered<Out>> {
    explicit ordered_function(Function function) : function_(std::move(function)) {}
    void process(numbered<In>&& item, outlet<numbered<Out>>& out) {
        out.send(numbered<Out>{item.number, function_(std::move(item.value))});
    }

private:
    Function function_;
};

/// A worker that gives any number of items.
template <typename Node>
struct ordered_worker : stage<numbered<typename Node::input_type>,
                              numbered<std::vector<typename Node::output_type>>> {
    using in = typename Node::input_type;
    using out = typename Node::output_type;
    using all = numbered<std::vector<out>>;

    template <typename... Arguments>
    explicit ordered_worker(const Arguments&... arguments) : node_(arguments...) {}

    void start(const place& where) { node_.start(where); }
    void process(numbered<in>&& item, outlet<all>& outward) {
        all given{item.number, {}};
        outlet<out> keep(given.value);
        give(node_, std::move(item.value), 0, keep);
        outward.send(std::move(given));
    }
    void end(outlet<all>& outward) {
        all given{number_at_end, {}};
        outlet<out> keep(given.value);
        node_.end_of_stream(0, keep);
        node_.end(keep);
        if (!given.value.empty()) outward.send(std::move(given));
    }
    void stop() noexcept { node_.stop(); }

private:
    Node node_;
};

// Errors for results that do not match the numbering.
[[noreturn]] void throw_twice(std::uint64_t number);
[[noreturn]] void throw_missing(std::uint64_t number, std::size_t held);

/// `Given` is a worker's result for one item: an Out, or several.
template <typename Given, typename Out>
struct sort_items : stage<numbered<Given>, Out> {
    void start(const place&) {
        next_ = 0;
        early_.clear();
        at_end_.clear();
    }
    void process(numbered<Given>&& item, outlet<Out>& outward, std::size_t from) {
        if (item.number == number_at_end) {
            at_end_.emplace(from, std::move(item.value));
        } else if (item.number > next_) {
            const std::uint64_t number = item.number;
            if (!early_.emplace(number, std::move(item.value)).second) throw_twice(number);
        } else if (item.number < next_) {
            throw_twice(item.number);
        } else {
            send(std::move(item.value), outward);
            ++next_;
            for (auto at = early_.begin(); at != early_.end() && at->first == next_; ++next_) {
                send(std::move(at->second), outward);
                at = early_.erase(at);
            }
        }
    }
    void end(outlet<Out>& outward) {
        if (!early_.empty()) throw_missing(next_, early_.size());
        for (auto& [from, given] : at_end_)
            send(std::move(given), outward);
    }

private:
    static void send(Given&& given, outlet<Out>& outward) {
        if constexpr (std::is_same_v<Given, Out>) {
            outward.send(std::move(given));
        } else {
            for (Out& each : given)
                outward.send(std::move(each));
        }
    }

    std::uint64_t next_ = 0;
    std::map<std::uint64_t, Given> early_;
    std::multimap<std::size_t, Given> at_end_;  ///< Keyed by worker.
};

}  // namespace amalgam::detail

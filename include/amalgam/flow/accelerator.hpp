#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/channel.hpp>

namespace amalgam {

/// A source that emits what the program pushes into a channel, until the channel is closed.
///
/// Owner:   borrows the channel, and closes it if the run ends early or is refused.
/// Threads: any thread may push into the channel.
template <typename T>
class channel_source : public source<T> {
public:
    explicit channel_source(channel<T>& from) : from_(from) {}
    /// Called by the graph: sends on what the channel brings, until it is closed.
    void generate(outlet<T>& out) {
        while (std::optional<T> item = from_.pop())
            out.send(std::move(*item));
    }
    void stop() noexcept { from_.close(); }

private:
    channel<T>& from_;
};

/// A sink that pushes into a channel. It closes the channel after the last item, or if the run ends
/// early or is refused.
///
/// Owner:   borrows the channel.
/// Threads: any thread may pop from the channel.
template <typename T>
class channel_sink : public sink<T> {
public:
    explicit channel_sink(channel<T>& to) : to_(to) {}
    /// Called by the graph: parks while the channel is full.
    void consume(T&& item) { to_.push(std::move(item)); }
    void end() { to_.close(); }
    void stop() noexcept { to_.close(); }

private:
    channel<T>& to_;
};

/// Runs a block as a service for the surrounding program: offload items, collect results.
///
///     am::graph g;
///     auto square = [](int n) { return long{n} * n; };
///     am::accelerator<int, long> squares(g, g.add_farm<int, long>("square", 4, square));
///     std::jthread feed([&] {
///         for (int i = 0; i < 1000; ++i) squares.offload(i);
///         squares.finish();
///     });
///     while (std::optional<long> result = squares.collect()) use(*result);
///     squares.wait();
///
/// Both ends apply back-pressure: to offload more than the graph holds, collect concurrently. For a
/// graph with groups, use channel_source and channel_sink directly, each in the group whose program
/// owns the channel and calls start().
///
/// Owner:   borrows the graph. The destructor stops the run and waits.
/// Threads: any.
/// Cost:    on top of the graph, a push and a pop on each of two channels.
template <typename In, typename Out>
class accelerator {
    static_assert(!std::is_void_v<In> && !std::is_void_v<Out>,
                  "an accelerator's block must take items and return results");

public:
    /// Adds the nodes "offload" and "collect" around `work` to `g`, and starts the run.
    accelerator(graph& g, const block<In, Out>& work, const run_options& options = {})
        : offloaded_(options.queue_items),
          results_(options.queue_items),
          running_(start(joined(g, work), options)) {}

    /// Waits while the graph is full. Failure: throws error{closed} after finish(), or if the run
    /// ended early or was refused; wait() says why.
    void offload(const In& item) { offloaded_.push(item); }
    void offload(In&& item) { offloaded_.push(std::move(item)); }
    /// Ends the input.
    void finish() noexcept { offloaded_.close(); }

    /// The next result, in the block's output order; empty when there will be no more.
    std::optional<Out> collect() { return results_.pop(); }
    /// Empty if there is none now.
    std::optional<Out> try_collect() { return results_.try_pop(); }

    /// Waits for the run to end: after finish(), and once everything is collected.
    /// Failure: throws as run().
    run_report wait() { return running_.wait(); }
    /// Ends the run early.
    void stop() noexcept { running_.stop(); }

private:
    graph& joined(graph& g, const block<In, Out>& work) {
        g.pipeline(g.add<channel_source<In>>("offload", offloaded_), work,
                   g.add<channel_sink<Out>>("collect", results_));
        return g;
    }

    channel<In> offloaded_;
    channel<Out> results_;
    running_graph running_;
};

}  // namespace amalgam

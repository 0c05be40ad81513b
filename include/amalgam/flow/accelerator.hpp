#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/channel.hpp>

namespace amalgam {

/// A source that gives what the program pushes into a channel, until that is closed.
///
/// Owner:   borrows the channel, which it closes when the run ends early or is refused.
/// Threads: the channel may be pushed into by any.
template <typename T>
class channel_source : public source<T> {
public:
    explicit channel_source(channel<T>& from) : from_(from) {}
    void generate(outlet<T>& out) {
        while (std::optional<T> item = from_.pop())
            out.send(std::move(*item));
    }
    void stop() noexcept { from_.close(); }

private:
    channel<T>& from_;
};

/// A sink that pushes into a channel, which it closes behind the last item, or when the run ends
/// early or is refused.
///
/// Owner:   borrows the channel.
/// Threads: the channel may be popped from by any.
template <typename T>
class channel_sink : public sink<T> {
public:
    explicit channel_sink(channel<T>& to) : to_(to) {}
    void consume(T&& item) { to_.push(std::move(item)); }
    void end() { to_.close(); }
    void stop() noexcept { to_.close(); }

private:
    channel<T>& to_;
};

/// A block that works for the program around it: items are offloaded to it, results collected.
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
/// Both ends wait for each other (back-pressure): who offloads more than the graph holds must
/// collect meanwhile. A graph with groups uses channel_source and channel_sink by itself, each in
/// the group whose program has the channel, which calls start().
///
/// Owner:   borrows the graph. Its end stops the run and waits.
/// Threads: any.
/// Cost:    beside the graph's, two channels' pushes and pops.
template <typename In, typename Out>
class accelerator {
    static_assert(!std::is_void_v<In> && !std::is_void_v<Out>,
                  "an accelerator's block takes items and gives results");

public:
    /// Adds the nodes "offload" and "collect" around `work` to `g`, and starts it.
    accelerator(graph& g, const block<In, Out>& work, const run_options& options = {})
        : offloaded_(options.queue_items),
          results_(options.queue_items),
          running_(start(joined(g, work), options)) {}

    /// Waits while the graph is full. Failure: throws error{closed} after finish(), or when the
    /// run has ended early or was refused; wait() says why.
    void offload(const In& item) { offloaded_.push(item); }
    void offload(In&& item) { offloaded_.push(std::move(item)); }
    /// No more comes.
    void finish() noexcept { offloaded_.close(); }

    /// The next result, in the order in which the block gives them; nothing when there will be
    /// none.
    std::optional<Out> collect() { return results_.pop(); }
    /// Nothing: there is none now.
    std::optional<Out> try_collect() { return results_.try_pop(); }

    /// Returns when the run has ended: after finish(), and once everything was collected.
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

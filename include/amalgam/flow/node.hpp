#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <amalgam/flow/outlet.hpp>
#include <amalgam/flow/place.hpp>

namespace amalgam {

// Base classes of user nodes. Hooks are found by name in the node's own class and are not virtual,
// so an item costs no indirect call. One ULT at a time calls a node, except for stop(): it is
// called once, from any thread, when the run ends early or is refused, possibly before start(). It
// must end the node's waits outside the graph, and wake anything there that waits for the node.
//
//     struct squares : am::stage<int, long> {
//         void process(int n, am::outlet<long>& out) { out.send(long{n} * n); }
//     };

/// A node that produces items. Define `void generate(outlet<Out>&)`, which sends any number of
/// items and returns at end of stream.
template <typename Out>
struct source {
    using input_type = void;
    using output_type = Out;

    void start(const place&) {}  ///< Before generate().
    void end() {}                ///< After everything has been sent.
    void stop() noexcept {}      ///< See above.
};

/// A node that transforms items. Define `void process(In, outlet<Out>&)`, which sends any number of
/// items per input. A by-value parameter moves the item in; with `const In&` its memory is reused
/// for a later item.
///
/// A node with several senders may define `void process(In, outlet<Out>&, std::size_t from)`
/// instead: `from` is the sender's index, in the order they were connected. Items of one sender
/// arrive in order.
template <typename In, typename Out>
struct stage {
    using input_type = In;
    using output_type = Out;

    void start(const place&) {}  ///< Before the first item.
    /// Input `from` reached end of stream.
    void end_of_stream(std::size_t /*from*/, outlet<Out>&) {}
    void end(outlet<Out>&) {}  ///< After the last item of all inputs; may still send.
    void stop() noexcept {}    ///< See above.
};

/// A node that consumes items. Define `void consume(In)` or `void consume(In, std::size_t from)`,
/// with parameters as in stage::process().
template <typename In>
struct sink {
    using input_type = In;
    using output_type = void;

    void start(const place&) {}                  ///< Before the first item.
    void end_of_stream(std::size_t /*from*/) {}  ///< Input `from` reached end of stream.
    void end() {}                                ///< After the last item of all inputs.
    void stop() noexcept {}                      ///< See above.
};

namespace detail {

template <typename Node>
concept source_node = std::is_void_v<typename Node::input_type> &&
    requires(Node& node, const place& where, outlet<typename Node::output_type>& out) {
    node.start(where);
    node.generate(out);
    node.end();
};

template <typename Node>
concept knows_who_sends = requires(Node& node, typename Node::input_type&& item,
                                   outlet<typename Node::output_type>& out) {
    node.process(std::move(item), out, std::size_t{});
}
|| requires(Node& node, typename Node::input_type&& item) {
    node.consume(std::move(item), std::size_t{});
};

template <typename Node>
concept stage_node =
    !std::is_void_v<typename Node::input_type> &&
    (knows_who_sends<Node> ||
     requires(Node & node, typename Node::input_type&& item,
              outlet<typename Node::output_type>& out) { node.process(std::move(item), out); }) &&
    requires(Node & node, const place& where, outlet<typename Node::output_type>& out) {
    node.start(where);
    node.end_of_stream(std::size_t{}, out);
    node.end(out);
};

template <typename Node>
concept sink_node = std::is_void_v<typename Node::output_type> &&
                    (knows_who_sends<Node> ||
                     requires(Node & node, typename Node::input_type&& item) {
                         node.consume(std::move(item));
                     }) &&
                    requires(Node& node, const place& where) {
    node.start(where);
    node.end_of_stream(std::size_t{});
    node.end();
};

// Nodes that wrap the functions given to graph::add_source(), add_stage() and add_sink().
template <typename Out, typename Function>
struct function_source : source<Out> {
    explicit function_source(Function function) : function_(std::move(function)) {}
    void generate(outlet<Out>& out) { function_(out); }
    Function function_;
};

template <typename In, typename Out, typename Function>
struct function_stage : stage<In, Out> {
    explicit function_stage(Function function) : function_(std::move(function)) {}
    void process(In&& item, outlet<Out>& out) {
        if constexpr (std::invocable<Function&, In&&, outlet<Out>&>) {
            function_(std::move(item), out);
        } else {
            out.send(function_(std::move(item)));
        }
    }
    Function function_;
};

template <typename In, typename Function>
struct function_sink : sink<In> {
    explicit function_sink(Function function) : function_(std::move(function)) {}
    void consume(In&& item) { function_(std::move(item)); }
    Function function_;
};

}  // namespace detail
}  // namespace amalgam

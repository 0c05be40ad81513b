#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <amalgam/flow/outlet.hpp>
#include <amalgam/flow/place.hpp>

namespace amalgam {

// What a user's node derives from. The hooks below are found by name in the node's own class,
// not virtual: an item costs no indirect call. Each node is called by one ULT at a time, but for
// stop(): that comes once, from any thread, when the run ends early or is refused, also before
// start(), and wakes what the node waits for outside of the graph, and who waits there for it.
//
//     struct squares : am::stage<int, long> {
//         void process(int n, am::outlet<long>& out) { out.send(long{n} * n); }
//     };

/// A node that makes items. It has `void generate(outlet<Out>&)`, which sends any number and
/// returns at the end of the stream.
template <typename Out>
struct source {
    using input_type = void;
    using output_type = Out;

    void start(const place&) {}  ///< Before generate().
    void end() {}                ///< After everything was sent.
    void stop() noexcept {}      ///< See above.
};

/// A node that turns items into others. It has `void process(In, outlet<Out>&)`, which sends
/// any number per item. Taken by value an item is moved in; by `const In&` its memory is used
/// again for a later one.
///
/// A node that several others send to may have `void process(In, outlet<Out>&, std::size_t from)`
/// instead: `from` counts them from 0, in the order they were joined with it. Items of one of them
/// come in their order.
template <typename In, typename Out>
struct stage {
    using input_type = In;
    using output_type = Out;

    void start(const place&) {}  ///< Before the first item.
    /// No more comes from that one.
    void end_of_stream(std::size_t /*from*/, outlet<Out>&) {}
    void end(outlet<Out>&) {}  ///< After the last item of all; may still send.
    void stop() noexcept {}    ///< See above.
};

/// A node that uses items up. It has `void consume(In)` or `void consume(In, std::size_t from)`,
/// which take as stage::process() does.
template <typename In>
struct sink {
    using input_type = In;
    using output_type = void;

    void start(const place&) {}                  ///< Before the first item.
    void end_of_stream(std::size_t /*from*/) {}  ///< No more comes from that one.
    void end() {}                                ///< After the last item of all.
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

// What graph::add_source() and its sisters make of a function.
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

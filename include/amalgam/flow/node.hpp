#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <amalgam/flow/outlet.hpp>
#include <amalgam/flow/place.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam {

// Base classes of user nodes. Hooks are found by name in the node's own class and are not virtual,
// so an item costs no indirect call. One ULT at a time calls a node, except for stop(): it is
// called once, from any thread, when the run ends early or is refused, possibly before start(). It
// must end the node's waits outside the graph, and wake anything there that waits for the node.
//
//     struct squares : am::stage<int, long> {
//         void process(int n, am::outlet<long>& out) { out.send(long{n} * n); }
//     };

// Checkpoints (launch_options::checkpoints) save what a node's own `serialize(Archive&)` writes, as
// that of an item does, and read it back into a new node, after start(). A node without members,
// and a function without captures, has nothing to save.

/// A node that produces items. Define `void generate(outlet<Out>&)`, which sends any number of
/// items and returns at end of stream.
///
/// Or define `bool step(outlet<Out>&)`, which is called again and again until it returns false, and
/// sends any number of items each time. Only such a source can be in checkpoints: they are taken
/// between two steps, and its `serialize()` has to say where it is in what it sends.
template <typename Out>
struct source {
    using input_type = void;  ///< It takes nothing.
    using output_type = Out;  ///< Items it sends.

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
    using input_type = In;    ///< Items it takes.
    using output_type = Out;  ///< Items it sends.

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
    using input_type = In;     ///< Items it takes.
    using output_type = void;  ///< It sends nothing.

    void start(const place&) {}                  ///< Before the first item.
    void end_of_stream(std::size_t /*from*/) {}  ///< Input `from` reached end of stream.
    void end() {}                                ///< After the last item of all inputs.
    void stop() noexcept {}                      ///< See above.
};

namespace detail {

template <typename Node>
concept stepping_source = std::is_void_v<typename Node::input_type> &&
    requires(Node& node, outlet<typename Node::output_type>& out) {
    { node.step(out) } -> std::same_as<bool>;
};

template <typename Node>
concept source_node = std::is_void_v<typename Node::input_type> &&
                      (stepping_source<Node> ||
                       requires(Node & node, outlet<typename Node::output_type>& out) {
                           node.generate(out);
                       }) &&
                      requires(Node& node, const place& where) {
    node.start(where);
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

/// What a node that wraps a function has to save is what the function has.
template <typename Function>
struct function_state {
    explicit function_state(Function function) : function_(std::move(function)) {}
    template <typename Archive>
    requires serializable<Function>
    void serialize(Archive& archive) { archive(function_); }
    Function function_;
};

template <typename In, typename Out, typename Function>
struct function_stage : stage<In, Out>, function_state<Function> {
    using function_state<Function>::function_state;
    using function_state<Function>::function_;
    void process(In&& item, outlet<Out>& out) {
        if constexpr (std::invocable<Function&, In&&, outlet<Out>&>) {
            function_(std::move(item), out);
        } else {
            out.send(function_(std::move(item)));
        }
    }
};

template <typename In, typename Function>
struct function_sink : sink<In>, function_state<Function> {
    using function_state<Function>::function_state;
    using function_state<Function>::function_;
    void consume(In&& item) { function_(std::move(item)); }
};

/// Whether there is nothing to save of it: it has no members, or is a pointer to a function.
template <typename Node>
inline constexpr bool has_no_state =
    std::is_empty_v<Node> || std::is_function_v<std::remove_pointer_t<Node>>;
template <typename In, typename Out, typename Function>
inline constexpr bool has_no_state<function_stage<In, Out, Function>> = has_no_state<Function>;
template <typename In, typename Function>
inline constexpr bool has_no_state<function_sink<In, Function>> = has_no_state<Function>;

}  // namespace detail
}  // namespace amalgam

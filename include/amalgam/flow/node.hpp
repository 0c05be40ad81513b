#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include <amalgam/flow/outlet.hpp>

namespace amalgam {

/// Where a node runs: told to it before its first item.
struct place {
    std::string group;         ///< Empty when the whole graph runs in one process.
    std::size_t replica = 0;   ///< Which of the group's processes this is, from 0.
    std::size_t replicas = 1;  ///< How many processes the group has.
};

// What a user's node derives from. The hooks below are found by name in the node's own class,
// not virtual: an item costs no indirect call. Each node is called by one ULT at a time.
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
};

/// A node that turns items into others. It has `void process(In, outlet<Out>&)`, which sends
/// any number per item. Taken by value an item is moved in; by `const In&` its memory is used
/// again for a later one.
template <typename In, typename Out>
struct stage {
    using input_type = In;
    using output_type = Out;

    void start(const place&) {}  ///< Before the first item.
    void end(outlet<Out>&) {}    ///< After the last item; may still send.
};

/// A node that uses items up. It has `void consume(In)`, which takes as stage::process() does.
template <typename In>
struct sink {
    using input_type = In;
    using output_type = void;

    void start(const place&) {}  ///< Before the first item.
    void end() {}                ///< After the last item.
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
concept stage_node = !std::is_void_v<typename Node::input_type> &&
                     requires(Node & node, const place& where, typename Node::input_type&& item,
                              outlet<typename Node::output_type>& out) {
    node.start(where);
    node.process(std::move(item), out);
    node.end(out);
};

template <typename Node>
concept sink_node = std::is_void_v<typename Node::output_type> &&
    requires(Node& node, const place& where, typename Node::input_type&& item) {
    node.start(where);
    node.consume(std::move(item));
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

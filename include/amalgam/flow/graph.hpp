#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/detail/node_body.hpp>
#include <amalgam/flow/node.hpp>

namespace amalgam {

class graph;

/// A part of a graph that takes `In` and gives `Out` (void: takes or gives nothing): a node, or
/// a pipeline of blocks. Names the part; the graph holds it.
template <typename In, typename Out>
class block {
public:
    using input_type = In;
    using output_type = Out;

private:
    friend class graph;
    friend class group;
    block(detail::graph_core& owner, std::vector<std::size_t> nodes)
        : owner_(&owner), nodes_(std::move(nodes)) {}

    detail::graph_core* owner_;
    std::vector<std::size_t> nodes_;  // In the order items pass them.
};

/// A named part of a graph, to be run by a process of its own.
class group {
public:
    /// Puts every node of `blocks` into this group.
    template <typename... In, typename... Out>
    group& add(const block<In, Out>&... blocks) {
        (owner_->assign(index_, *blocks.owner_, blocks.nodes_), ...);
        return *this;
    }

private:
    friend class graph;
    group(detail::graph_core& owner, std::size_t index) : owner_(&owner), index_(index) {}

    detail::graph_core* owner_;
    std::size_t index_;
};

/// Nodes, the pipelines that join them, and the groups they are spread over. Built the same in
/// every process of a run; run() then runs the part that is this process's.
///
///     am::graph squares;
///     auto count = squares.add_source<int>("count", [](am::outlet<int>& out) {
///         for (int i = 0; i < 10; ++i) out.send(i);
///     });
///     auto square = squares.add_stage<int, long>("square", [](int n) { return long{n} * n; });
///     auto print = squares.add_sink<long>("print", [](long n) { std::cout << n << '\n'; });
///     squares.pipeline(count, square, print);
///     squares.group("G1").add(count);
///     squares.group("G2").add(square, print);
///     return am::run_main(squares);
///
/// Owner:   owns its nodes.
/// Threads: built by one; not changed while it runs.
/// Failure: what does not fit is told by run(), with the node's name, before any node starts.
class graph {
public:
    graph() : core_(std::make_unique<detail::graph_core>()) {}

    /// Adds a node of class `Node`, which derives from source, stage or sink, made from
    /// `arguments`. `name` is for messages, and must be the node's own.
    template <typename Node, typename... Arguments>
    auto add(std::string name, Arguments&&... arguments) {
        static_assert(
            detail::source_node<Node> || detail::stage_node<Node> || detail::sink_node<Node>,
            "a node derives from source<Out> and has void generate(outlet<Out>&), from "
            "stage<In, Out> and has void process(In, outlet<Out>&), or from sink<In> "
            "and has void consume(In)");
        using in = typename Node::input_type;
        using out = typename Node::output_type;
        auto body =
            std::make_unique<detail::typed_body<Node>>(std::forward<Arguments>(arguments)...);
        std::size_t index = core_->add(std::move(name), std::move(body));
        return block<in, out>(*core_, {index});
    }

    /// Adds a source that calls `function(outlet<Out>&)` once.
    template <typename Out, typename Function>
    block<void, Out> add_source(std::string name, Function function) {
        static_assert(std::invocable<Function&, outlet<Out>&>,
                      "a source's function takes an outlet<Out>&");
        return add<detail::function_source<Out, Function>>(std::move(name), std::move(function));
    }
    /// Adds a stage that calls `function(In)` and sends what it returns, or calls
    /// `function(In, outlet<Out>&)`.
    template <typename In, typename Out, typename Function>
    block<In, Out> add_stage(std::string name, Function function) {
        static_assert(
            std::invocable<Function&, In&&, outlet<Out>&> || std::invocable<Function&, In&&>,
            "a stage's function takes an In, and perhaps an outlet<Out>&");
        return add<detail::function_stage<In, Out, Function>>(std::move(name), std::move(function));
    }
    /// Adds a sink that calls `function(In)` for every item.
    template <typename In, typename Function>
    block<In, void> add_sink(std::string name, Function function) {
        static_assert(std::invocable<Function&, In&&>, "a sink's function takes an In");
        return add<detail::function_sink<In, Function>>(std::move(name), std::move(function));
    }

    /// Joins blocks: what one gives, the next takes. The result is a block again.
    template <typename FirstIn, typename FirstOut, typename... Rest>
    auto pipeline(const block<FirstIn, FirstOut>& first, const Rest&... rest) {
        if constexpr (sizeof...(Rest) == 0) {
            return first;
        } else {
            return join(first, rest...);
        }
    }

    /// The group of that name, made at its first mention.
    amalgam::group group(std::string_view name) {
        return amalgam::group(*core_, core_->group(name));
    }

    /// For run().
    detail::graph_core& core() noexcept { return *core_; }

private:
    template <typename In, typename Mid, typename Out, typename... Rest>
    auto join(const block<In, Mid>& left, const block<Mid, Out>& right, const Rest&... rest) {
        static_assert(!std::is_void_v<Mid>, "a sink gives nothing: it ends a pipeline");
        core_->connect(*left.owner_, left.nodes_.back(), *right.owner_, right.nodes_.front());
        std::vector<std::size_t> nodes = left.nodes_;
        nodes.insert(nodes.end(), right.nodes_.begin(), right.nodes_.end());
        block<In, Out> joined(*core_, std::move(nodes));
        if constexpr (sizeof...(Rest) == 0) {
            return joined;
        } else {
            return join(joined, rest...);
        }
    }

    std::unique_ptr<detail::graph_core> core_;
};

}  // namespace amalgam

#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/detail/node_body.hpp>
#include <amalgam/flow/detail/ordered.hpp>
#include <amalgam/flow/node.hpp>
#include <amalgam/flow/routing.hpp>

namespace amalgam {

class graph;

namespace detail {

/// Checks that a block taking `Taken` may follow a block giving `Given`. If not, the compiler error
/// shows both types as the arguments of this template.
template <typename Given, typename Taken>
constexpr bool fits() {
    static_assert(!std::is_void_v<Given>,
                  "a sink has no output: it must be the last block of a pipeline, or of combine()");
    static_assert(
        !std::is_void_v<Taken>,
        "a source has no input: it must be the first block of a pipeline, or of combine()");
    static_assert(
        std::is_void_v<Given> || std::is_void_v<Taken> || std::is_same_v<Given, Taken>,
        "blocks with different item types: one outputs the first type of this fits<>, and the next "
        "one takes the second; a stage between them can convert one into the other");
    return true;
}

}  // namespace detail

/// A part of a graph with input type `In` and output type `Out` (void: none): a node, or a
/// combination of blocks made by graph's functions. A reference; the graph owns the part.
template <typename In, typename Out>
class block {
public:
    using input_type = In;    ///< Items it takes; void: none.
    using output_type = Out;  ///< Items it gives; void: none.

private:
    friend class graph;
    friend class group;
    explicit block(detail::graph_part part) : part_(std::move(part)) {}

    detail::graph_part part_;
};

/// A farm whose output order matches its input order. Its nodes can be assigned to groups and pools
/// one by one.
template <typename In, typename Out>
class ordered_farm : public block<In, Out> {
public:
    const block<void, void> emitter;               ///< Distributes the items.
    const std::vector<block<void, void>> workers;  ///< In the order they were added.
    const block<void, void> collector;             ///< Restores the order.

private:
    friend class graph;
    ordered_farm(const block<In, Out>& whole, const block<void, void>& first,
                 std::vector<block<void, void>> middle, const block<void, void>& last)
        : block<In, Out>(whole), emitter(first), workers(std::move(middle)), collector(last) {}
};

/// A named part of a graph that runs in a process of its own.
class group {
public:
    /// Puts every node of `blocks` into this group.
    template <typename... In, typename... Out>
    group& add(const block<In, Out>&... blocks) {
        (owner_->assign(index_, blocks.part_), ...);
        return *this;
    }
    template <typename In, typename Out>
    group& add(const std::vector<block<In, Out>>& blocks) {
        for (const block<In, Out>& each : blocks)
            add(each);
        return *this;
    }

private:
    friend class graph;
    group(detail::graph_core& owner, std::size_t index) : owner_(&owner), index_(index) {}

    detail::graph_core* owner_;
    std::size_t index_;
};

/// Nodes, the pipelines that connect them, and the groups they are spread over. Every process of a
/// run builds the same graph; run() then runs this process's part.
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
/// Threads: built by one thread; not modified while running.
/// Failure: run() reports an inconsistent graph, with the node's name, before any node starts.
///          Every operation on a moved-from graph throws error{invalid}.
class graph {
public:
    graph() : core_(std::make_unique<detail::graph_core>()) {}

    /// Adds a node of class `Node`, derived from source, stage or sink, constructed from
    /// `arguments`. `name` appears in messages; it must be unique and free of control bytes.
    template <typename Node, typename... Arguments>
    auto add(std::string_view name, Arguments&&... arguments) {
        static_assert(
            detail::source_node<Node> || detail::stage_node<Node> || detail::sink_node<Node>,
            "a node must derive from source<Out> and have void generate(outlet<Out>&) or bool "
            "step(outlet<Out>&), from "
            "stage<In, Out> and have void process(In, outlet<Out>&), or from sink<In> and have "
            "void consume(In)");
        using in = typename Node::input_type;
        using out = typename Node::output_type;
        auto body =
            std::make_unique<detail::typed_body<Node>>(std::forward<Arguments>(arguments)...);
        const std::size_t index = core().add(name, std::move(body));
        detail::graph_part part;
        part.owner = &core();
        part.nodes = {index};
        if constexpr (!std::is_void_v<in>) part.in = detail::way_in{index, nullptr, {}};
        if constexpr (!std::is_void_v<out>) part.exits = {index};
        return block<in, out>(std::move(part));
    }

    /// Adds a source that calls `function(outlet<Out>&)` once.
    template <typename Out, typename Function>
    block<void, Out> add_source(std::string_view name, Function function) {
        static_assert(std::invocable<Function&, outlet<Out>&>,
                      "a source's function must take an outlet<Out>&");
        return add<detail::function_source<Out, Function>>(name, std::move(function));
    }
    /// Adds a stage that calls `function(In)` and sends the result, or calls `function(In,
    /// outlet<Out>&)`.
    template <typename In, typename Out, typename Function>
    block<In, Out> add_stage(std::string_view name, Function function) {
        static_assert(
            std::invocable<Function&, In&&, outlet<Out>&> || std::invocable<Function&, In&&>,
            "a stage's function must take an In, and optionally an outlet<Out>&");
        return add<detail::function_stage<In, Out, Function>>(name, std::move(function));
    }
    /// Adds a sink that calls `function(In)` for every item.
    template <typename In, typename Function>
    block<In, void> add_sink(std::string_view name, Function function) {
        static_assert(std::invocable<Function&, In&&>, "a sink's function must take an In");
        return add<detail::function_sink<In, Function>>(name, std::move(function));
    }

    /// Connects blocks in sequence: each takes what the previous one gives. The result is a block.
    template <typename FirstIn, typename FirstOut, typename... Rest>
    auto pipeline(const block<FirstIn, FirstOut>& first, const Rest&... rest) {
        if constexpr (sizeof...(Rest) == 0) {
            return first;
        } else {
            return join(first, rest...);
        }
    }

    /// Workers in parallel: `routing` sends each item to one of them (see routing.hpp). Their
    /// outputs are merged; each worker's own order is kept. Workers may be any blocks. The nodes
    /// before and after the farm in a pipeline act as its emitter and collector.
    template <typename In, typename Out, typename Routing = detail::plain_policy>
    block<In, Out> farm(const std::vector<block<In, Out>>& workers,
                        const Routing& routing = round_robin) {
        std::shared_ptr<const detail::routing_core> spread;
        if constexpr (!std::is_void_v<In>) spread = routing.template for_items<In>();
        return block<In, Out>(core().beside(parts_of(workers), std::move(spread)));
    }
    /// A farm of `workers` stages, each with a copy of `function`, named name.0, name.1 …
    template <typename In, typename Out, typename Function, typename Routing = detail::plain_policy>
    block<In, Out> add_farm(const std::string& name, std::size_t workers, const Function& function,
                            const Routing& routing = round_robin) {
        std::vector<block<In, Out>> all;
        for (std::size_t i = 0; i < workers; ++i)
            all.push_back(add_stage<In, Out>(name + "." + std::to_string(i), function));
        return farm(all, routing);
    }

    /// A farm whose results leave in the order of its input, whichever worker finishes first. Items
    /// are dealt round-robin, and each worker has a copy of `function`, as in add_stage(). Early
    /// results wait: at most as many as fit into the queues before the workers. The nodes are
    /// name.emitter, name.0, name.1 … and name.collector. Workers may be in groups of several
    /// processes; emitter and collector may not, unless the whole farm is in one such group.
    template <typename In, typename Out, typename Function>
    ordered_farm<In, Out> add_ordered_farm(const std::string& name, std::size_t workers,
                                           const Function& function) {
        if constexpr (std::invocable<Function&, In&&, outlet<Out>&>)
            return add_ordered_farm<detail::function_stage<In, Out, Function>>(name, workers,
                                                                               function);
        else
            return ordered<detail::ordered_function<In, Out, Function>, Out>(
                name, add<detail::number_items<In>>(name + ".emitter"), workers, function);
    }
    /// The same with workers of class `Node`, a stage, each constructed from `arguments`.
    template <typename Node, typename... Arguments>
    auto add_ordered_farm(const std::string& name, std::size_t workers,
                          const Arguments&... arguments) {
        static_assert(detail::stage_node<Node>, "the workers of an ordered farm must be stages");
        return ordered<detail::ordered_worker<Node>, typename Node::output_type>(
            name, add<detail::number_items<typename Node::input_type>>(name + ".emitter"), workers,
            arguments...);
    }

    /// Connects every left worker to every right worker. Each left worker applies `routing`
    /// independently.
    template <typename In, typename Given, typename Taken, typename Out,
              typename Routing = detail::plain_policy>
    block<In, Out> all_to_all(const std::vector<block<In, Given>>& left,
                              const std::vector<block<Taken, Out>>& right,
                              const Routing& routing = round_robin) {
        return pipeline(farm(left), farm(right, routing));
    }

    /// Fuses several nodes into one: each calls the next directly, with no queue between them. All
    /// but the last are single stages; the first may be a source.
    template <typename FirstIn, typename FirstOut, typename... Rest>
    auto combine(const block<FirstIn, FirstOut>& first, const Rest&... rest) {
        if constexpr (sizeof...(Rest) == 0) {
            return first;
        } else {
            return fuse(first, rest...);
        }
    }

    /// A loop: outputs of `body` go back to its start if `again(item)` is true, otherwise on. It
    /// ends when all its inputs have ended and no item is left in it. Items fed back are taken
    /// before new ones, which are taken at most 64 at a time. The feedback queue is unbounded:
    /// memory is bounded only if the body does not multiply the items it sends back.
    template <typename In, typename Out, typename Again>
    block<In, Out> feedback(const block<In, Out>& body, Again again) {
        if constexpr (detail::fits<Out, In>()) {
            static_assert(std::is_invocable_r_v<bool, const Again&, const Out&>,
                          "feedback() needs a function that takes an item and returns bool");
            core().loop(body.part_,
                        std::make_shared<const std::function<bool(const Out&)>>(std::move(again)));
        }
        return body;
    }

    /// The group of that name, created on first use.
    amalgam::group group(std::string_view name) {
        return amalgam::group(core(), core().group(name));
    }

    /// Runs the nodes of `blocks` on a dedicated pool of threads; run_options::pools sets their
    /// number. For nodes that block in system calls, or must not wait for others.
    template <typename... In, typename... Out>
    void in_pool(std::string_view pool, const block<In, Out>&... blocks) {
        (core().place(pool, -1, blocks.part_), ...);
    }
    /// Runs the nodes on one dedicated thread, bound to core `cpu`.
    template <typename... In, typename... Out>
    void pin(int cpu, const block<In, Out>&... blocks) {
        (core().place("cpu" + std::to_string(cpu), cpu, blocks.part_), ...);
    }

    /// The graph as Graphviz DOT: groups are frames, edges between groups blue, feedback edges
    /// dashed, combined nodes joined by thick lines. `run_main()` prints it if AMALGAM_SHOW is
    /// "dot".
    std::string dot() const { return core().dot(); }
    /// The same as JSON: {"nodes": [{"name", "takes", "gives", "group"}], "edges": [{"from", "to",
    /// "routing", "back", "combined", "between_groups"}]}, omitting keys that do not apply. Printed
    /// if AMALGAM_SHOW is "json".
    std::string json() const { return core().json(); }

    /// For run().
    detail::graph_core& core() const {
        if (core_ == nullptr) detail::refuse_moved_graph();
        return *core_;
    }

private:
    template <typename In, typename Given, typename Taken, typename Out, typename... Rest>
    auto join(const block<In, Given>& left, const block<Taken, Out>& right, const Rest&... rest) {
        static_assert(detail::fits<Given, Taken>());
        core().connect(left.part_, right.part_);
        return pipeline(block<In, Out>(detail::after(left.part_, right.part_)), rest...);
    }
    template <typename In, typename Given, typename Taken, typename Out, typename... Rest>
    auto fuse(const block<In, Given>& left, const block<Taken, Out>& right, const Rest&... rest) {
        static_assert(detail::fits<Given, Taken>());
        core().fuse(left.part_, right.part_);
        return combine(block<In, Out>(detail::after(left.part_, right.part_)), rest...);
    }
    template <typename Worker, typename Out, typename In, typename Number, typename... Arguments>
    ordered_farm<In, Out> ordered(const std::string& name, const block<In, Number>& emitter,
                                  std::size_t workers, const Arguments&... arguments) {
        using given = decltype(std::declval<typename Worker::output_type>().value);
        std::vector<block<Number, typename Worker::output_type>> typed;
        std::vector<block<void, void>> all;
        for (std::size_t i = 0; i < workers; ++i) {
            typed.push_back(add<Worker>(name + "." + std::to_string(i), arguments...));
            all.push_back(block<void, void>(typed.back().part_));
        }
        auto collector = add<detail::sort_items<given, Out>>(name + ".collector");
        std::vector<std::size_t> nodes;
        for (const auto& worker : typed)
            nodes.insert(nodes.end(), worker.part_.nodes.begin(), worker.part_.nodes.end());
        core().keep_order(
            {emitter.part_.nodes.front(), std::move(nodes), collector.part_.nodes.front()});
        return {pipeline(emitter, farm(typed), collector), block<void, void>(emitter.part_),
                std::move(all), block<void, void>(collector.part_)};
    }
    template <typename In, typename Out>
    static std::vector<detail::graph_part> parts_of(const std::vector<block<In, Out>>& blocks) {
        std::vector<detail::graph_part> parts;
        for (const block<In, Out>& each : blocks)
            parts.push_back(each.part_);
        return parts;
    }

    std::unique_ptr<detail::graph_core> core_;
};

}  // namespace amalgam

#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/flow/detail/in_port.hpp>
#include <amalgam/flow/detail/node_ends.hpp>
#include <amalgam/flow/detail/out_port.hpp>
#include <amalgam/flow/node.hpp>
#include <amalgam/rpc/type_name.hpp>

namespace amalgam::detail {

/// A node, type-erased.
///
/// Threads: run() by one ULT at a time.
class node_body {
public:
    virtual ~node_body() = default;

    virtual std::string takes() const = 0;  ///< Type name; empty for a source.
    virtual std::string gives() const = 0;  ///< Type name; empty for a sink.
    /// Whether its output can be sent to another process.
    virtual bool can_be_cut() const noexcept = 0;
    /// Creates a queue for its output; unbounded for feedback.
    virtual std::unique_ptr<ring_core> make_ring(std::size_t items, bool across_streams,
                                                 bool back) const = 0;
    /// Runs the node, from start() to end().
    virtual void run(const place& where, node_ends& ends) = 0;
    /// The run ends early: wakes anything the node waits for outside the graph. Any thread.
    virtual void stop() noexcept = 0;
    /// Returns the node as part of its sender; nullptr for a source, which has no sender.
    virtual std::unique_ptr<fused_node> fuse(node_ends& ends) = 0;
    /// Why checkpoints cannot have it, after its name; empty if they can.
    virtual std::string fault_of_saving() const = 0;
    /// What its serialize() writes; empty without one. Its ULT only.
    virtual std::vector<std::byte> save() const = 0;
};

template <typename T>
std::string item_type_name() {
    if constexpr (std::is_void_v<T>) {
        return {};
    } else if constexpr (serializable<T>) {
        return type_name<T>();
    } else {
        return spelled<T>();
    }
}

/// Passes an item to a node, with the sender's index if the node takes it.
template <typename Node, typename Item, typename... Outward>
void give(Node& node, Item&& item, std::size_t from, Outward&... outward) {
    constexpr bool is_sink = sizeof...(Outward) == 0;
    if constexpr (is_sink && knows_who_sends<Node>)
        node.consume(std::forward<Item>(item), from);
    else if constexpr (is_sink)
        node.consume(std::forward<Item>(item));
    else if constexpr (knows_who_sends<Node>)
        node.process(std::forward<Item>(item), outward..., from);
    else
        node.process(std::forward<Item>(item), outward...);
}

/// After start(): the node goes on from where it was saved.
template <typename Node>
void restore(Node& node, const node_ends& ends) {
    if constexpr (serializable<Node>) {
        if (ends.restored == nullptr) return;
        archive_reader reader(ends.restored->state);
        reader(node);
        if (!reader.ok()) throw_bad_state(ends.restored->name, reader.why());
        if (reader.remaining() != 0) throw_bad_state(ends.restored->name, "bytes are left over");
    }
}

/// Runs a source.
template <typename Node, typename Out>
void produce(Node& node, outlet<Out>& outward, node_marks* marks) {
    if constexpr (!stepping_source<Node>) {
        node.generate(outward);
    } else if (marks == nullptr) {
        while (node.step(outward)) {
        }
    } else {
        while (node.step(outward))
            marks->between_steps();
    }
}

/// For a counter with one writer and many readers.
inline void count_one(std::atomic<std::uint64_t>& counter) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

/// A stage or sink that runs inside its sender.
template <typename Node>
class fused_body final : public fused_taker<typename Node::input_type> {
    using in = typename Node::input_type;
    using out = typename Node::output_type;

public:
    fused_body(Node& node, node_ends& ends)
        : node_(node), ends_(ends), ports_(ends), outward_(ports_) {}
    void start(const place& where) override {
        ports_.start_fused(where);
        node_.start(where);
        restore(node_, ends_);
    }
    void take(in&& item) override {
        count_one(ends_.taken_inside);
        give(node_, std::move(item), 0, outward_);
    }
    void end() override {
        node_.end_of_stream(0, outward_);
        node_.end(outward_);
        ports_.end_fused();
    }

private:
    Node& node_;
    node_ends& ends_;
    out_ports<out> ports_;
    outlet<out> outward_;
};
template <typename Node>
requires std::is_void_v<typename Node::output_type>
class fused_body<Node> final : public fused_taker<typename Node::input_type> {
    using in = typename Node::input_type;

public:
    fused_body(Node& node, node_ends& ends) : node_(node), ends_(ends) {}
    void start(const place& where) override {
        node_.start(where);
        restore(node_, ends_);
    }
    void take(in&& item) override {
        count_one(ends_.taken_inside);
        give(node_, std::move(item), 0);
    }
    void end() override {
        node_.end_of_stream(0);
        node_.end();
    }

private:
    Node& node_;
    node_ends& ends_;
};

template <typename Node>
class typed_body final : public node_body {
    using in = typename Node::input_type;
    using out = typename Node::output_type;

public:
    template <typename... Arguments>
    explicit typed_body(Arguments&&... arguments) : node_(std::forward<Arguments>(arguments)...) {}

    std::string takes() const override { return item_type_name<in>(); }
    std::string gives() const override { return item_type_name<out>(); }
    bool can_be_cut() const noexcept override {
        if constexpr (std::is_void_v<out>) {
            return true;
        } else {
            return serializable<out>;
        }
    }

    std::unique_ptr<ring_core> make_ring(std::size_t items, bool across_streams,
                                         bool back) const override {
        if constexpr (std::is_void_v<out>) {
            return nullptr;
        } else {
            if (back) return std::make_unique<growing_ring<out>>(across_streams);
            return std::make_unique<ring<out>>(items, across_streams);
        }
    }

    void run(const place& where, node_ends& ends) override {
        if constexpr (std::is_void_v<out>) {
            node_.start(where);
            restore(node_, ends);
            take_all<in>(
                ends, [this](in&& item, std::size_t from) { give(node_, std::move(item), from); },
                [this](std::size_t from) { node_.end_of_stream(from); });
            node_.end();
        } else {
            out_ports<out> ports(ends);
            outlet<out> outward(ports);
            ports.start_fused(where);
            node_.start(where);
            restore(node_, ends);
            if constexpr (std::is_void_v<in>) {
                produce(node_, outward, ends.marks);
                node_.end();
            } else {
                take_all<in>(
                    ends,
                    [this, &outward](in&& item, std::size_t from) {
                        give(node_, std::move(item), from, outward);
                    },
                    [this, &outward](std::size_t from) { node_.end_of_stream(from, outward); });
                node_.end(outward);
            }
            ports.end_fused();
        }
    }

    void stop() noexcept override { node_.stop(); }

    std::string fault_of_saving() const override {
        if constexpr (std::is_void_v<in> && !stepping_source<Node>)
            return "is a source that runs on its own, expected one that goes step by step: a class "
                   "with bool step(outlet<Out>&) in place of generate(), and serialize()";
        else if constexpr (!serializable<Node> && (std::is_void_v<in> || !has_no_state<Node>))
            return "has members and does not say what to save of them, expected template <class A> "
                   "void serialize(A& a) { a(member, another); }; of a function, in a class with "
                   "an operator()";
        else
            return {};
    }
    std::vector<std::byte> save() const override {
        state_bytes into;
        if constexpr (serializable<Node>) {
            basic_archive_writer writer(into);
            writer(node_);
        }
        return into.take();
    }

    std::unique_ptr<fused_node> fuse(node_ends& ends) override {
        if constexpr (std::is_void_v<in>)
            return nullptr;
        else
            return std::make_unique<fused_body<Node>>(node_, ends);
    }

private:
    Node node_;
};

}  // namespace amalgam::detail

#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ff/node.hpp>

namespace ff {

namespace detail {

/// The nodes of a selector, which run on its thread.
class selected_nodes {
public:
    size_t add(ff_node& node, ff_node& owner);
    size_t add(std::unique_ptr<ff_node> node, ff_node& owner);
    size_t size() const { return nodes_.size(); }
    ff_node* at(size_t which) const { return which < nodes_.size() ? nodes_[which] : nullptr; }
    int init(ssize_t id);
    void end();

private:
    std::vector<ff_node*> nodes_;
    std::vector<std::unique_ptr<ff_node>> owned_;
};

}  // namespace detail

/// A node that is one of several: selectNode() says which gets the items that follow. What that
/// one sends, this one sends.
///
/// Owner:   the program owns nodes that were added by reference; the rest is the selector's.
/// Threads: selectNode() before a run, or by the node's own thread.
/// Failure: as ff_node; without nodes, or if the chosen one is not there, it ends the stream.
template <typename In, typename Out = In>
class ff_nodeSelector : public ff_node_t<In, Out> {
public:
    using in_type = In;
    using out_type = Out;

    ff_nodeSelector() = default;
    /// Nodes, by reference or std::unique_ptr, and perhaps the item for run_and_wait_end().
    template <typename First, typename... Rest,
              typename = std::enable_if_t<!std::is_base_of_v<ff_nodeSelector, std::decay_t<First>>>>
    explicit ff_nodeSelector(First&& first, Rest&&... rest) {
        take(first);
        (take(rest), ...);
    }

    void setTask(const In& item) { item_ = const_cast<In*>(&item); }
    void selectNode(size_t which) { selected_ = which; }
    ff_node* getNode(size_t which) { return nodes_.at(which); }
    size_t numNodes() const { return nodes_.size(); }
    size_t addNode(ff_node& node) { return nodes_.add(node, *this); }
    size_t addNode(std::unique_ptr<ff_node> node) { return nodes_.add(std::move(node), *this); }

    int nodeInit() override { return nodes_.init(this->get_my_id()); }
    void nodeEnd() override { nodes_.end(); }
    int svc_init() override { return nodeInit(); }
    void svc_end() override { nodeEnd(); }
    Out* svc(In* item) override {
        ff_node* const node = nodes_.at(selected_);
        if (node == nullptr) return this->EOS;
        if (item != nullptr) return static_cast<Out*>(node->svc(item));
        node->svc(item_);
        return this->EOS;
    }

    int run(bool = false) override { return ff_node::run(); }
    int wait() override { return ff_node::wait(); }
    /// Gives the item of setTask() to the selected node, on the caller's thread.
    int run_and_wait_end() override {
        if (nodeInit() < 0) return -1;
        svc(static_cast<In*>(nullptr));
        nodeEnd();
        return 0;
    }

private:
    void take(const In& item) { setTask(item); }
    void take(ff_node& node) { addNode(node); }
    template <typename Node>
    void take(std::unique_ptr<Node>& node) {
        addNode(std::unique_ptr<ff_node>(node.release()));
    }

    detail::selected_nodes nodes_;
    size_t selected_ = 0;
    In* item_ = nullptr;
};

}  // namespace ff

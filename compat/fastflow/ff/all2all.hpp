#pragma once

#include <vector>

#include <ff/block.hpp>
#include <ff/multinode.hpp>
#include <ff/node.hpp>

namespace ff {

/// Two sets of nodes; each of the first has a channel to each of the second. A plain node of the
/// first set gets several outputs, one of the second several inputs. Both may be pipelines.
///
/// Owner:   the program owns the nodes, but for those that it passes with `cleanup`.
/// Threads, failure: as ff_node.
class ff_a2a : public detail::block {
public:
    explicit ff_a2a(bool = false, int in_entries = DEFAULT_BUFFER_CAPACITY,
                    int out_entries = DEFAULT_BUFFER_CAPACITY, bool fixed = FF_FIXED_SIZE);
    /// Takes over what `other` would have deleted.
    ff_a2a(const ff_a2a& other);
    ~ff_a2a() override;

    /// `ondemand`: an item goes to whoever has fewer than so many waiting.
    template <typename T>
    int add_firstset(const std::vector<T*>& nodes, int ondemand = 0, bool cleanup = false) {
        ondemand_ = ondemand;
        return add(first_, {nodes.begin(), nodes.end()}, cleanup, "first");
    }
    template <typename T>
    int add_secondset(const std::vector<T*>& nodes, bool cleanup = false) {
        return add(second_, {nodes.begin(), nodes.end()}, cleanup, "second");
    }
    template <typename T>
    int change_firstset(const std::vector<T*>& nodes, int ondemand = 0, bool cleanup = false,
                        bool forget = false) {
        if (forget) remove_from_cleanuplist(first_);
        first_.clear();
        return add_firstset(nodes, ondemand, cleanup);
    }
    template <typename T>
    int change_secondset(const std::vector<T*>& nodes, bool cleanup = false, bool forget = false) {
        if (forget) remove_from_cleanuplist(second_);
        second_.clear();
        return add_secondset(nodes, cleanup);
    }
    bool change_node(ff_node* old, ff_node* with, bool cleanup = false,
                     bool forget = false) override;
    void remove_from_cleanuplist(const svector<ff_node*>& nodes);
    const svector<ff_node*>& getFirstSet() const { return first_; }
    const svector<ff_node*>& getSecondSet() const { return second_; }
    const svector<ff_node*>& get_firstset() const { return first_; }
    const svector<ff_node*>& get_secondset() const { return second_; }

    // Accepted, and without effect: each run says itself who begins without an item.
    using ff_node::skipfirstpop;
    /// Connects the second set to the first.
    int wrap_around() {
        wrapped_ = true;
        return 0;
    }
    bool isset_wraparound() const { return wrapped_; }
    void setInputQueueLength(int entries, bool fixed = true) { size_inputs(entries, fixed); }
    void setOutputQueueLength(int entries, bool fixed = true) { size_outputs(entries, fixed); }

    bool isAll2All() const override { return true; }
    bool isMultiInput() const override { return true; }
    bool isMultiOutput() const override { return true; }
    int ondemand_buffer() const override { return ondemand_; }
    int cardinality() const override;
    int numThreads() const { return cardinality(); }
    void get_out_nodes(svector<ff_node*>& nodes) override;
    void get_in_nodes(svector<ff_node*>& nodes) override;

private:
    friend struct detail::access;
    int add(svector<ff_node*>& set, const std::vector<ff_node*>& nodes, bool cleanup,
            const char* name);

    svector<ff_node*> first_;
    svector<ff_node*> second_;
    svector<ff_node*> owned_;
    int ondemand_ = 0;
    bool wrapped_ = false;
};

}  // namespace ff

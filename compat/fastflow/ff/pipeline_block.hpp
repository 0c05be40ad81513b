#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ff/accelerator.hpp>
#include <ff/multinode.hpp>
#include <ff/node.hpp>

namespace ff {

/// Stages one after another. Any block is a stage.
///
/// Owner:   the program owns the stages, but for those that it passes with `cleanup` or by value.
/// Threads, failure: as ff_node.
class ff_pipeline : public detail::accelerator {
public:
    /// `input_channel`: items come from offload(), and go to load_result().
    explicit ff_pipeline(bool input_channel = false, int in_entries = DEFAULT_BUFFER_CAPACITY,
                         int out_entries = DEFAULT_BUFFER_CAPACITY, bool fixed = FF_FIXED_SIZE);
    /// Takes over what `other` would have deleted.
    ff_pipeline(const ff_pipeline& other);
    ~ff_pipeline() override;

    int add_stage(ff_node* stage, bool cleanup = false);
    template <typename T, typename = std::enable_if_t<std::is_base_of_v<ff_node, T>>>
    int add_stage(const T& stage) {
        return add_stage(new T(stage), true);
    }
    template <typename T, typename = std::enable_if_t<std::is_base_of_v<ff_node, T>>>
    int add_stage(T& stage) {
        return add_stage(static_cast<const T&>(stage));
    }
    int add_stage(std::unique_ptr<ff_node> stage) { return add_stage(stage.release(), true); }
    void remove_stage(int at, bool forget = false);
    void insert_stage(int at, ff_node* stage, bool cleanup = false);
    bool change_node(ff_node* old, ff_node* with, bool cleanup = false,
                     bool forget = false) override;
    ssize_t get_stageindex(const ff_node* stage) const;
    ff_node* get_firststage() const { return stages_.empty() ? nullptr : stages_.front(); }
    ff_node* get_laststage() const { return stages_.empty() ? nullptr : stages_.back(); }
    ff_node* get_nextstage(const ff_node* stage) const;
    ff_node* get_prevstage(const ff_node* stage) const;
    /// The first or last node of a stage that is a pipeline itself; else the stage.
    ff_node* get_node(int stage) const;
    ff_node* get_node_last(int stage) const;
    ff_node* get_lastnode() const { return get_node_last(static_cast<int>(stages_.size()) - 1); }
    const svector<ff_node*>& getStages() const { return stages_; }
    /// The stages, with those of inner pipelines in their place.
    const svector<ff_node*> get_pipeline_nodes() const;
    void flatten();

    // Accepted, and without effect: each run says itself who begins without an item.
    using ff_node::skipfirstpop;
    /// Connects the last stage to the first.
    int wrap_around() {
        wrapped_ = true;
        return 0;
    }
    bool isset_wraparound() const { return wrapped_; }
    void cleanup_nodes(bool on = true) { cleanup_ = on; }
    bool isset_cleanup_nodes() const { return cleanup_; }
    /// The sizes of queues between stages. They grow unless `fixed`.
    void setXNodeInputQueueLength(int entries, bool fixed = true) { size_inputs(entries, fixed); }
    void setXNodeOutputQueueLength(int entries, bool fixed = true) { size_outputs(entries, fixed); }

    bool isPipe() const override { return true; }
    bool isMultiInput() const override;
    bool isMultiOutput() const override;
    bool isPrepared() const { return prepared(); }
    int cardinality() const override;
    int numThreads() const { return cardinality(); }
    int ondemand_buffer() const override {
        return stages_.empty() ? 0 : stages_.back()->ondemand_buffer();
    }
    void set_scheduling_ondemand(int entries = 1) override;
    void get_out_nodes(svector<ff_node*>& nodes) override;
    void get_in_nodes(svector<ff_node*>& nodes) override;

    int wait_last() { return wait(); }

    using ff_node::dryrun;

private:
    friend struct detail::access;
    bool prepared() const;

    svector<ff_node*> stages_;
    svector<ff_node*> owned_;
    bool cleanup_ = false;
    bool wrapped_ = false;
};

/// A pipeline from its stages: nodes by reference, pointer, unique_ptr or value. Of one pipeline
/// that can be changed, it makes a stage, not a copy.
template <typename In = char, typename Out = In>
class ff_Pipe : public ff_pipeline {
public:
    using in_type = In;
    using out_type = Out;

    template <typename... Stages, typename = std::enable_if_t<(sizeof...(Stages) > 0)>>
    explicit ff_Pipe(bool input_channel, Stages&&... stages) : ff_pipeline(input_channel) {
        (add(std::forward<Stages>(stages)), ...);
    }
    template <
        typename First, typename... Stages,
        typename = std::enable_if_t<!std::is_same_v<std::decay_t<First>, bool> &&
                                    (sizeof...(Stages) > 0 || std::is_same_v<First, ff_Pipe&> ||
                                     !std::is_same_v<std::decay_t<First>, ff_Pipe>)>>
    explicit ff_Pipe(First&& first, Stages&&... stages) : ff_pipeline(false) {
        add(std::forward<First>(first));
        (add(std::forward<Stages>(stages)), ...);
    }

    ff_Pipe(const ff_Pipe& other) = default;
    ~ff_Pipe() override { this->end_threads(); }  // Before its nodes go.

private:
    void add(ff_node* stage) { add_stage(stage); }
    template <typename T>
    void add(T&& stage) {
        if constexpr (std::is_pointer_v<std::decay_t<T>>) {
            add_stage(static_cast<ff_node*>(stage));
        } else if constexpr (std::is_base_of_v<ff_node, std::decay_t<T>>) {
            if constexpr (std::is_lvalue_reference_v<T> &&
                          !std::is_const_v<std::remove_reference_t<T>>)
                add_stage(static_cast<ff_node*>(&stage));
            else
                add_stage(new std::decay_t<T>(std::forward<T>(stage)), true);
        } else {
            add_stage(static_cast<ff_node*>(stage.get()));
            kept_.push_back(std::move(stage));
        }
    }
    std::vector<std::shared_ptr<ff_node>> kept_;
};

}  // namespace ff

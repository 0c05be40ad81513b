#pragma once

#include <ff/node.hpp>

namespace ff::detail {

/// What blocks of several nodes have in common, which a program runs by themselves or puts into
/// others: the sizes of their queues, and ff_node's functions that run them.
///
/// Owner, threads, failure: as ff_node.
class block : public ff_node {
public:
    /// Queues into and out of the nodes grow unless `fixed`.
    void setFixedSize(bool fixed) { fixed_in_ = fixed_out_ = fixed; }
    void setAffinity(int) override {
        error("setAffinity: a pipeline, farm or all-to-all, expected one of its nodes\n");
    }

    using ff_node::freeze;
    using ff_node::run;
    using ff_node::run_and_wait_end;
    using ff_node::run_then_freeze;
    using ff_node::stop;
    using ff_node::thaw;
    using ff_node::wait;
    using ff_node::wait_freezing;

protected:
    block(int in_entries, int out_entries, bool fixed)
        : fixed_in_(fixed), fixed_out_(fixed), in_entries_(in_entries), out_entries_(out_entries) {}
    void* svc(void*) override { return nullptr; }
    void size_inputs(int entries, bool fixed) {
        in_entries_ = entries;
        fixed_in_ = fixed;
    }
    void size_outputs(int entries, bool fixed) {
        out_entries_ = entries;
        fixed_out_ = fixed;
    }

private:
    friend struct access;

    bool fixed_in_;
    bool fixed_out_;
    int in_entries_;
    int out_entries_;
};

}  // namespace ff::detail

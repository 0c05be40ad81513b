#include <algorithm>

#include "network.hpp"

namespace ff {
namespace {

template <typename T>
void forget(svector<T*>& owned, const ff_node* node) {
    owned.erase(std::remove(owned.begin(), owned.end(), node), owned.end());
}

}  // namespace

ff_pipeline::ff_pipeline(bool input_channel, int in_entries, int out_entries, bool fixed)
    : accelerator(input_channel, in_entries, out_entries, fixed) {}

ff_pipeline::ff_pipeline(const ff_pipeline& other)
    : accelerator(other),
      stages_(other.stages_),
      cleanup_(other.cleanup_),
      wrapped_(other.wrapped_) {
    auto& from = const_cast<ff_pipeline&>(other);
    owned_.swap(from.owned_);
    from.cleanup_ = false;
}

ff_pipeline::~ff_pipeline() {
    end_threads();
    if (cleanup_) {
        for (ff_node* stage : stages_)
            if (std::find(owned_.begin(), owned_.end(), stage) == owned_.end())
                owned_.push_back(stage);
    }
    for (ff_node* each : owned_)
        delete each;
}

int ff_pipeline::add_stage(ff_node* stage, bool cleanup) {
    if (stage == nullptr) {
        error("add_stage: a null pointer, expected a node\n");
        return -1;
    }
    stages_.push_back(stage);
    detail::outdate(*this);
    if (cleanup) owned_.push_back(stage);
    return 0;
}

void ff_pipeline::remove_stage(int at, bool forget_it) {
    if (at < 0 || static_cast<size_t>(at) >= stages_.size()) {
        error("remove_stage: stage %d does not exist, expected one below %zu\n", at,
              stages_.size());
        return;
    }
    if (forget_it) forget(owned_, stages_[static_cast<size_t>(at)]);
    stages_.erase(stages_.begin() + at);
    detail::outdate(*this);
}

void ff_pipeline::insert_stage(int at, ff_node* stage, bool cleanup) {
    if (at < 0 || static_cast<size_t>(at) > stages_.size() || stage == nullptr) {
        error("insert_stage: no stage can be inserted at %d of %zu\n", at, stages_.size());
        return;
    }
    stages_.insert(stages_.begin() + at, stage);
    detail::outdate(*this);
    if (cleanup) owned_.push_back(stage);
}

bool ff_pipeline::change_node(ff_node* old, ff_node* with, bool cleanup, bool forget_it) {
    const ssize_t at = get_stageindex(old);
    if (at < 0 || with == nullptr) return false;
    if (forget_it) forget(owned_, old);
    stages_[static_cast<size_t>(at)] = with;
    detail::outdate(*this);
    if (cleanup) owned_.push_back(with);
    return true;
}

bool ff_pipeline::prepared() const {
    return detail::access::network_of(const_cast<ff_pipeline&>(*this)) != nullptr;
}

ssize_t ff_pipeline::get_stageindex(const ff_node* stage) const {
    const auto found = std::find(stages_.begin(), stages_.end(), stage);
    return found == stages_.end() ? -1 : found - stages_.begin();
}
ff_node* ff_pipeline::get_nextstage(const ff_node* stage) const {
    const ssize_t at = get_stageindex(stage);
    return at < 0 || static_cast<size_t>(at) + 1 == stages_.size()
               ? nullptr
               : stages_[static_cast<size_t>(at) + 1];
}
ff_node* ff_pipeline::get_prevstage(const ff_node* stage) const {
    const ssize_t at = get_stageindex(stage);
    return at <= 0 ? nullptr : stages_[static_cast<size_t>(at) - 1];
}
ff_node* ff_pipeline::get_node(int stage) const {
    if (stage < 0 || static_cast<size_t>(stage) >= stages_.size()) return nullptr;
    ff_node* found = stages_[static_cast<size_t>(stage)];
    return found->isPipe() ? static_cast<ff_pipeline*>(found)->get_node(0) : found;
}
ff_node* ff_pipeline::get_node_last(int stage) const {
    if (stage < 0 || static_cast<size_t>(stage) >= stages_.size()) return nullptr;
    ff_node* found = stages_[static_cast<size_t>(stage)];
    return found->isPipe() ? static_cast<ff_pipeline*>(found)->get_lastnode() : found;
}
const svector<ff_node*> ff_pipeline::get_pipeline_nodes() const {
    svector<ff_node*> all;
    for (ff_node* stage : stages_) {
        if (stage->isPipe())
            all += static_cast<ff_pipeline*>(stage)->get_pipeline_nodes();
        else
            all.push_back(stage);
    }
    return all;
}
void ff_pipeline::flatten() {
    // Inner pipelines stay whole, with what they own: only their stages are named here.
    const svector<ff_node*> outer = stages_;
    stages_ = get_pipeline_nodes();
    if (!cleanup_) return;
    cleanup_ = false;
    for (ff_node* each : outer)
        if (std::find(owned_.begin(), owned_.end(), each) == owned_.end()) owned_.push_back(each);
}

bool ff_pipeline::isMultiInput() const {
    return !stages_.empty() && stages_.front()->isMultiInput();
}
bool ff_pipeline::isMultiOutput() const {
    return !stages_.empty() && stages_.back()->isMultiOutput();
}
int ff_pipeline::cardinality() const {
    int threads = 0;
    for (const ff_node* stage : stages_)
        threads += stage->cardinality();
    return threads;
}
void ff_pipeline::set_scheduling_ondemand(int entries) {
    if (!stages_.empty()) stages_.back()->set_scheduling_ondemand(entries);
}
void ff_pipeline::get_out_nodes(svector<ff_node*>& nodes) {
    if (!stages_.empty()) stages_.back()->get_out_nodes(nodes);
}
void ff_pipeline::get_in_nodes(svector<ff_node*>& nodes) {
    if (!stages_.empty()) stages_.front()->get_in_nodes(nodes);
}

}  // namespace ff

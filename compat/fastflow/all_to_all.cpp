#include <algorithm>

#include "network.hpp"

namespace ff {

ff_a2a::ff_a2a(bool, int in_entries, int out_entries, bool fixed)
    : block(in_entries, out_entries, fixed) {}

ff_a2a::ff_a2a(const ff_a2a& other)
    : block(other),
      first_(other.first_),
      second_(other.second_),
      ondemand_(other.ondemand_),
      wrapped_(other.wrapped_) {
    owned_.swap(const_cast<ff_a2a&>(other).owned_);
}

ff_a2a::~ff_a2a() {
    end_threads();
    for (ff_node* each : owned_)
        delete each;
}

int ff_a2a::add(svector<ff_node*>& set, const std::vector<ff_node*>& nodes, bool cleanup,
                const char* name) {
    if (!set.empty() || nodes.empty()) {
        error("add_%sset: %s, expected one call with one node or more\n", name,
              nodes.empty() ? "there are no nodes" : "the set has nodes already");
        return -1;
    }
    if (std::find(nodes.begin(), nodes.end(), nullptr) != nodes.end()) {
        error("add_%sset: a null pointer among the nodes, expected nodes\n", name);
        return -1;
    }
    for (ff_node* node : nodes) {
        set.push_back(node);
        if (cleanup) owned_.push_back(node);
    }
    detail::outdate(*this);
    return 0;
}

void ff_a2a::remove_from_cleanuplist(const svector<ff_node*>& nodes) {
    for (const ff_node* node : nodes)
        owned_.erase(std::remove(owned_.begin(), owned_.end(), node), owned_.end());
}

bool ff_a2a::change_node(ff_node* old, ff_node* with, bool cleanup, bool forget) {
    if (with == nullptr) return false;
    for (svector<ff_node*>* set : {&first_, &second_}) {
        const auto found = std::find(set->begin(), set->end(), old);
        if (found == set->end()) continue;
        *found = with;
        detail::outdate(*this);
        if (forget) owned_.erase(std::remove(owned_.begin(), owned_.end(), old), owned_.end());
        if (cleanup) owned_.push_back(with);
        return true;
    }
    return false;
}

int ff_a2a::cardinality() const {
    int threads = 0;
    for (const svector<ff_node*>* set : {&first_, &second_})
        for (const ff_node* node : *set)
            threads += node->cardinality();
    return threads;
}
void ff_a2a::get_out_nodes(svector<ff_node*>& nodes) {
    for (ff_node* node : second_)
        node->get_out_nodes(nodes);
}
void ff_a2a::get_in_nodes(svector<ff_node*>& nodes) {
    for (ff_node* node : first_)
        node->get_in_nodes(nodes);
}

}  // namespace ff

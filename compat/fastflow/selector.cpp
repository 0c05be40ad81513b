#include <ff/selector.hpp>

#include "access.hpp"

namespace ff::detail {

namespace {

bool send_by_owner(void* item, int id, unsigned long retry, unsigned long ticks, void* owner) {
    return static_cast<ff_node*>(owner)->ff_send_out(item, id, retry, ticks);
}

}  // namespace

size_t selected_nodes::add(ff_node& node, ff_node& owner) {
    nodes_.push_back(&node);
    access::on_send(node, &send_by_owner, &owner);
    return nodes_.size() - 1;
}

size_t selected_nodes::add(std::unique_ptr<ff_node> node, ff_node& owner) {
    owned_.push_back(std::move(node));
    return add(*owned_.back(), owner);
}

int selected_nodes::init(ssize_t id) {
    if (nodes_.empty()) return -1;
    for (ff_node* each : nodes_) {
        access::id(*each, id);
        if (each->svc_init() < 0) return -1;
    }
    return 0;
}

void selected_nodes::end() {
    for (ff_node* each : nodes_)
        each->svc_end();
}

}  // namespace ff::detail

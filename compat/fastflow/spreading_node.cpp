#include "spreading_node.hpp"

#include <ff/multinode.hpp>

#include "access.hpp"

namespace ff::detail {
namespace {

struct spreading_node : ff_monode {
    spreading_node(ff_node* inner, bool own) : node(inner), owned(own) {
        access::on_send(*node, &send, this);
    }
    ~spreading_node() override {
        if (owned) delete node;
    }
    void* svc(void* task) override { return node->svc(task); }
    int svc_init() override { return node->svc_init(); }
    void svc_end() override { node->svc_end(); }
    void eosnotify(ssize_t id) override { node->eosnotify(id); }
    void set_id(ssize_t id) override {
        ff_monode::set_id(id);
        access::id(*node, id);
    }
    static bool send(void* item, int id, unsigned long retry, unsigned long ticks, void* self) {
        return static_cast<spreading_node*>(self)->ff_send_out(item, id, retry, ticks);
    }
    ff_node* node;
    bool owned;
};

}  // namespace

ff_node* with_several_outputs(ff_node* node, bool own) {
    return node->isMultiOutput() ? node : new spreading_node(node, own);
}

}  // namespace ff::detail

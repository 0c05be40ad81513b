#include "wiring.hpp"

#include <algorithm>

namespace ff::detail {
namespace {

/// What a plain node sends, which knows of one output only.
bool send_any(void* item, int, unsigned long retry, unsigned long, void* lb) {
    auto& outputs = *static_cast<ff_loadbalancer*>(lb);
    if (item == nullptr || !access::schedule(outputs, item, retry)) return false;
    access::call_back_out(outputs);
    return true;
}

}  // namespace

void refuse(const char* why) {
    error("%s\n", why);
    throw cannot_connect();
}

void wiring::link(runner& from, runner& to, bool feedback, queue_size size, bool internal) {
    auto queue =
        std::make_shared<channel>(static_cast<std::size_t>(std::max(size.entries, 1)), size.fixed);
    queue->wakes(&to.in.news, &from.room);
    give_output(from, queue, to.node, feedback);
    add_input(to, queue, feedback);
    if (distributed_) net_.edges.push_back({&from, &to, std::move(queue), feedback, internal});
}
void wiring::connect(const ends& before, const ends& after, bool feedback, queue_size size) {
    if (before.outs.empty() || after.ins.empty())
        refuse("a stage that has no output stands before another one");
    if (distributed_) widen(before, after);
    const bool several_in = after.ins.front()->multi_in;
    if (!after.ins_are_a_set) {
        if (!several_in && before.outs.size() > 1)
            refuse(
                "several nodes cannot send to a plain node, expected one with several inputs "
                "(ff_minode)");
        for (runner* from : before.outs)
            link(*from, *after.ins.front(), feedback, on_demand(*from, size));
    } else if (before.outs.size() == 1 && before.outs.front()->multi_out) {
        for (runner* to : after.ins)
            link(*before.outs.front(), *to, feedback, on_demand(*before.outs.front(), size));
    } else if (before.outs_are_a_set && several_in && before.outs.front()->multi_out) {
        for (runner* to : after.ins)
            for (runner* from : before.outs)
                link(*from, *to, feedback, on_demand(*from, size));
    } else {
        if (before.outs.size() != after.ins.size())
            refuse(
                "two sets of nodes can only be connected if they have the same number of "
                "nodes, or the first have several outputs (ff_monode) and the second several "
                "inputs (ff_minode)");
        for (std::size_t i = 0; i != after.ins.size(); ++i)
            link(*before.outs[i], *after.ins[i], feedback, on_demand(*before.outs[i], size));
    }
}

namespace {

/// Of `of_inner` feedback channels, of which the first `kept` stay, and those after them, which an
/// outer block has added.
template <typename Channels>
void outer_first(Channels& all, std::size_t kept, std::size_t of_inner, std::size_t feedback) {
    const auto at = [&all](std::size_t index) {
        return all.begin() + static_cast<std::ptrdiff_t>(index);
    };
    std::rotate(at(kept), at(of_inner), at(feedback));
}

}  // namespace

void wiring::wrap(const ends& last, const ends& first) {
    std::vector<std::size_t> outs, ins;
    for (runner* from : last.outs)
        outs.push_back(from->multi_out ? access::feedback(*from->lb) : 0);
    for (const runner* to : first.ins)
        ins.push_back(to->in.count(true));
    connect(last, first, true, {});
    for (std::size_t i = 0; i != outs.size(); ++i) {
        runner& from = *last.outs[i];
        if (!from.multi_out) continue;
        const std::size_t now = access::feedback(*from.lb);
        outer_first(access::outs(*from.lb), from.own_feedback, outs[i], now);
        outer_first(access::targets(*from.lb), from.own_feedback, outs[i], now);
    }
    for (std::size_t i = 0; i != ins.size(); ++i) {
        runner& to = *first.ins[i];
        if (to.gt == nullptr) continue;  // An emitter's workers come first.
        const std::size_t now = to.in.count(true);
        outer_first(to.in.inputs, 0, ins[i], now);
        for (std::size_t at = 0; at != now; ++at)
            to.in.inputs[at].id = static_cast<ssize_t>(at);
    }
}

void wiring::give_output(runner& from, const std::shared_ptr<channel>& queue, ff_node* target,
                         bool feedback) {
    if (from.multi_out) {
        auto& outs = access::outs(*from.lb);
        auto& targets = access::targets(*from.lb);
        auto& count = access::feedback(*from.lb);
        const auto at = static_cast<std::ptrdiff_t>(feedback ? count++ : outs.size());
        outs.insert(outs.begin() + at, queue);
        targets.insert(targets.begin() + at, target);
    } else {
        if (from.out != nullptr)
            refuse(
                "a plain node would have two outputs, expected one with several outputs "
                "(ff_monode)");
        from.out = queue;
        ff_node* last = from.node;
        if (last != nullptr && last->isComp()) last = static_cast<ff_comb*>(last)->getLast();
        if (last != nullptr) access::direct(*last) = queue.get();
    }
}
void wiring::add_input(runner& to, const std::shared_ptr<channel>& queue, bool feedback) {
    const auto id = static_cast<ssize_t>(to.in.count(feedback));
    const auto at =
        static_cast<std::ptrdiff_t>(feedback ? id : static_cast<ssize_t>(to.in.inputs.size()));
    to.in.inputs.insert(to.in.inputs.begin() + at, inlet::input{queue, feedback, id});
}

/// Distributed programs of FastFlow connect what others may not: plain nodes get as many
/// outputs or inputs as they need.
void wiring::widen(const ends& before, const ends& after) {
    if (before.outs.size() == after.ins.size()) return;
    if (after.ins.size() > 1)
        for (runner* from : before.outs)
            if (!from->multi_out && from->out == nullptr) several_outputs(*from);
    if (before.outs.size() > 1)
        for (runner* to : after.ins)
            if (to->in.inputs.empty()) several_inputs(*to);
}
queue_size wiring::on_demand(const runner& from, queue_size size) {
    const int entries = from.node != nullptr && from.multi_out ? from.node->ondemand_buffer() : 0;
    return entries > 0 ? queue_size{entries, true} : size;
}

ff_node* wiring::first(const runner& thread) {
    return thread.node->isComp() ? static_cast<ff_comb*>(thread.node)->getFirst() : thread.node;
}
ff_node* wiring::last(const runner& thread) {
    return thread.node->isComp() ? static_cast<ff_comb*>(thread.node)->getLast() : thread.node;
}

void wiring::use(runner& thread, ff_loadbalancer& lb) {
    thread.lb = &lb;
    thread.multi_out = true;
    access::outs(lb).clear();
    access::targets(lb).clear();
    access::shown(lb).clear();
    access::feedback(lb) = 0;
    access::order(lb) = nullptr;
    access::channel_id(lb) = -2;
    access::filter(lb) = thread.node;
    access::thread(lb) = thread.shared_from_this();
    if (thread.node != nullptr && last(thread)->isMultiOutput())
        access::bind(static_cast<ff_monode&>(*last(thread)), &lb);
}
void wiring::use(runner& thread, ff_gatherer& gt) {
    thread.gt = &gt;
    thread.multi_in = true;
    thread.how = runner::kind::gather;
    access::filter(gt) = thread.node;
    access::thread(gt) = thread.shared_from_this();
    access::running(gt) = 0;
    if (thread.node != nullptr && first(thread)->isMultiInput())
        access::bind(static_cast<ff_minode&>(*first(thread)), &gt);
}

void wiring::several_outputs(runner& thread) {
    if (thread.multi_out) return;
    thread.own_lb = std::make_unique<ff_loadbalancer>();
    use(thread, *thread.own_lb);
    if (thread.node == nullptr) return;
    if (!thread.node->isComp() && !thread.multi_in) thread.how = runner::kind::spread;
    send_to_any(thread);
}
void wiring::several_inputs(runner& thread) {
    if (thread.multi_in) return;
    thread.own_gt = std::make_unique<ff_gatherer>();
    use(thread, *thread.own_gt);
    thread.notify_once = true;
}

void wiring::send_to_any(runner& thread) {
    access::on_send(*last(thread), &send_any, thread.lb);
}

void wiring::take_plain(std::vector<runner*>& outs) {
    outs.erase(
        std::remove_if(outs.begin(), outs.end(), [](runner* each) { return !each->multi_out; }),
        outs.end());
}

}  // namespace ff::detail

#include <algorithm>

#include "wiring.hpp"

namespace ff::detail {
namespace {

/// Blocks made into threads and queues, from the outermost one inwards.
class expansion : public wiring {
public:
    expansion(network& net, const placement& group_of)
        : wiring(net, static_cast<bool>(group_of)), group_of_(group_of) {}

    ends block(ff_node& node, ssize_t id) {
        for (const ff_node* around : path_)
            if (around == &node) refuse("a block contains itself, expected other nodes in it");
        path_.push_back(&node);
        if (node.isComp()) check(static_cast<const ff_comb&>(node));
        access::id(node, id);
        const std::string* const outer = group_;
        if (const std::string* own = group_of_ ? group_of_(node) : nullptr) group_ = own;
        const std::size_t before = net_.runners.size();
        ends result = node.isPipe()      ? pipeline(static_cast<ff_pipeline&>(node), id)
                      : node.isFarm()    ? farm(static_cast<ff_farm&>(node))
                      : node.isAll2All() ? all_to_all(static_cast<ff_a2a&>(node))
                                         : leaf(node);
        auto& threads = access::threads(node);
        threads.assign(net_.runners.begin() + static_cast<std::ptrdiff_t>(before),
                       net_.runners.end());
        group_ = outer;
        path_.pop_back();
        return result;
    }

private:
    /// Its parts are nodes, or combinations of nodes.
    static void check(const ff_comb& comb) {
        for (const ff_node* each : {comb.getLeft(), comb.getRight()}) {
            if (each == nullptr || each->isFarm() || each->isAll2All() || each->isPipe())
                refuse(
                    "a combination has a farm, pipeline, all-to-all or null pointer in it, "
                    "expected nodes or combinations of nodes");
            if (each->isComp()) check(static_cast<const ff_comb&>(*each));
        }
    }

    runner& thread_of(ff_node* node) {
        if (node != nullptr && node->isComp()) check(static_cast<const ff_comb&>(*node));
        net_.runners.push_back(std::make_shared<runner>(node));
        runner& made = *net_.runners.back();
        if (group_ != nullptr) made.group = *group_;
        if (node == nullptr) return made;
        access::threads(*node).assign(1, net_.runners.back());
        access::direct(*node) = nullptr;
        if (node->isComp()) {
            auto& comb = static_cast<ff_comb&>(*node);
            access::connect(comb);
            access::direct(*comb.getLast()) = nullptr;
            access::on_send(*comb.getLast(), nullptr, nullptr);
            for (ff_node* each : access::chain(comb)) {
                access::threads(*each).assign(1, net_.runners.back());
                place(made, *each);
            }
        }
        place(made, *node);
        return made;
    }
    void place(runner& thread, const ff_node& node) const {
        if (const std::string* own = group_of_ ? group_of_(node) : nullptr) thread.group = *own;
    }
    ends leaf(ff_node& node) {
        runner& made = thread_of(&node);
        if (node.isMultiOutput()) {
            use(made, *static_cast<ff_monode*>(last(made))->getlb());
            made.how = node.isComp() ? runner::kind::plain : runner::kind::spread;
        }
        if (node.isMultiInput()) use(made, *static_cast<ff_minode*>(first(made))->getgt());
        return {{&made}, {&made}};
    }

    ends pipeline(ff_pipeline& pipe, ssize_t id) {
        const auto& stages = pipe.getStages();
        if (stages.empty()) refuse("a pipeline has no stages, expected one or more");
        const queue_size size{std::max(access::in_entries(pipe), 1),
                              access::fixed_in(pipe) || access::fixed_out(pipe)};
        ssize_t next_id = std::max<ssize_t>(id, 0);
        ends whole;
        ends before;
        for (std::size_t i = 0; i != stages.size(); ++i) {
            ends stage = block(*stages[i], next_id);
            next_id += stages[i]->cardinality();
            if (i == 0) {
                whole.ins = stage.ins;
                whole.ins_are_a_set = stage.ins_are_a_set;
            } else {
                connect(before, stage, false, size);
            }
            before = std::move(stage);
        }
        if (access::wrapped(pipe)) {
            if (stages.size() < 2)
                refuse("wrap_around: a pipeline of one stage, expected two or more");
            wrap(before, whole);
            take_plain(before.outs);
        }
        whole.outs = before.outs;
        whole.outs_are_a_set = before.outs_are_a_set;
        return whole;
    }
    ends all_to_all(ff_a2a& all) {
        if (all.getFirstSet().empty() || all.getSecondSet().empty())
            refuse("an all-to-all has an empty set of nodes");
        ends left;
        ends right;
        std::vector<runner*> left_outs;
        std::vector<runner*> right_ins;
        ssize_t id = 0;
        for (ff_node* node : all.getFirstSet()) {
            const ends part = block(*node, id++);
            left.ins.insert(left.ins.end(), part.ins.begin(), part.ins.end());
            left_outs.insert(left_outs.end(), part.outs.begin(), part.outs.end());
        }
        id = 0;
        for (ff_node* node : all.getSecondSet()) {
            const ends part = block(*node, id++);
            right_ins.insert(right_ins.end(), part.ins.begin(), part.ins.end());
            right.outs.insert(right.outs.end(), part.outs.begin(), part.outs.end());
        }
        left.ins_are_a_set = right.outs_are_a_set = true;
        if (access::wrapped(all)) wrap(right, left);
        for (runner* each : left_outs)
            several_outputs(*each);
        for (runner* each : right_ins) {
            several_inputs(*each);
            skip_if_told(*each);
        }
        queue_size size{access::in_entries(all), access::fixed_in(all) || access::fixed_out(all)};
        if (all.ondemand_buffer() > 0) size = {all.ondemand_buffer(), true};
        for (runner* to : right_ins)
            for (runner* from : left_outs)
                link(*from, *to, false, on_demand(*from, size), true);
        if (access::wrapped(all)) take_plain(right.outs);
        return {left.ins, right.outs, true, true};
    }

    ends farm(ff_farm& farm) {
        if (farm.getWorkers().empty()) refuse("a farm has no workers, expected one or more");
        runner& emitter = thread_of(farm.getEmitter());
        use(emitter, *farm.getlb());
        emitter.how = runner::kind::spread;
        emitter.multi_in = true;
        emitter.master_worker = access::workers_back(farm);
        access::master_worker(*farm.getlb()) = emitter.master_worker;
        if (emitter.node != nullptr) adapt_emitter(emitter);

        queue_size in{access::in_entries(farm), access::fixed_in(farm)};
        if (farm.ondemand_buffer() > 0) in = {farm.ondemand_buffer(), true};
        ends result;
        result.ins = {&emitter};
        ssize_t id = 0;
        for (ff_node* worker : farm.getWorkers()) {
            const ends part = block(*worker, id++);
            for (runner* to : part.ins) {
                link(emitter, *to, false, in, true);
                // A thread of the farm stands for the whole worker: what is frozen is that.
                access::targets(*emitter.lb).back() = part.ins.size() == 1 ? worker : to->node;
            }
            result.outs.insert(result.outs.end(), part.outs.begin(), part.outs.end());
        }
        // A default emitter goes with its workers.
        if (emitter.node == nullptr && emitter.group.empty() && !result.outs.empty())
            emitter.group = result.outs.front()->group;
        if (emitter.master_worker) {
            for (runner* from : result.outs)
                link(*from, emitter, true, {}, true);
            take_plain(result.outs);
        }
        if (ff_node* manager = access::manager(*farm.getlb()))
            add_manager(emitter, static_cast<ff_buffernode&>(*manager));
        result.outs_are_a_set = true;
        if (!farm.hasCollector()) return result;
        return {{&emitter}, {&collector(farm, emitter, result.outs)}};
    }
    void adapt_emitter(runner& emitter) {
        ff_node& node = *last(emitter);
        if (!node.isMultiOutput()) send_to_any(emitter);
        if (first(emitter)->isMultiInput()) {
            // It asks a gatherer of its own for its channels; the emitter's loop tells it.
            emitter.own_gt = std::make_unique<ff_gatherer>();
            access::thread(*emitter.own_gt) = emitter.shared_from_this();
            access::bind(static_cast<ff_minode&>(*first(emitter)), emitter.own_gt.get());
        }
    }
    static void add_manager(runner& emitter, ff_buffernode& manager) {
        manager.queue()->wakes(&emitter.in.news, nullptr);
        add_input(emitter, manager.queue(), true);
        inlet::input& made = emitter.in.inputs[emitter.in.count(true) - 1];
        made.id = manager.get_my_id();
        made.outside = true;
    }
    /// Of skipfirstpop().
    static void skip_if_told(runner& thread) {
        if (thread.gt != nullptr && access::skip_first(*thread.gt)) thread.skip_first = true;
    }
    runner& collector(ff_farm& farm, runner& emitter, const std::vector<runner*>& workers) {
        if (workers.empty())
            refuse(
                "a farm whose workers send back to its emitter has a collector that nothing "
                "reaches");
        runner& made = thread_of(access::collector(farm));
        if (made.node != nullptr && made.node->isMultiOutput())
            use(made, *static_cast<ff_monode*>(last(made))->getlb());
        use(made, *farm.getgt());
        skip_if_told(made);
        const queue_size size{access::out_entries(farm), access::fixed_out(farm)};
        if (made.node == nullptr && made.group.empty()) made.group = workers.front()->group;
        for (runner* from : workers)
            link(*from, made, false, on_demand(*from, size), true);
        if (farm.isOFarm()) {
            if (emitter.group != made.group)
                refuse(
                    "the emitter and the collector of an ordered farm are in different groups, "
                    "expected one, since the first tells the second the order");
            for (runner* worker : workers) {
                if (worker->multi_out || worker->multi_in || worker->node->isComp() ||
                    worker->how != runner::kind::plain)
                    refuse(
                        "a worker of an ordered farm is a block or has several inputs or outputs, "
                        "expected a plain node");
                worker->ordered_worker = true;
            }
            made.in.turns = std::make_shared<turn_order>(workers.size());
            access::order(*emitter.lb) = made.in.turns;
        }
        if (access::collector_back(farm)) {
            link(made, emitter, true, {});
            made.own_feedback = 1;
        }
        return made;
    }

    const placement& group_of_;
    const std::string* group_ = nullptr;  // of what is being expanded
    std::vector<const ff_node*> path_;    // the blocks around it
};

}  // namespace

namespace {

/// Of the queue that the program offloads to.
queue_size input_queue(ff_node& whole) {
    if (whole.isFarm()) {
        const auto& farm = static_cast<ff_farm&>(whole);
        return {access::in_entries(farm), access::fixed_in(farm)};
    }
    if (whole.isPipe()) {
        const auto& pipe = static_cast<ff_pipeline&>(whole);
        return {access::in_entries(pipe), access::fixed_in(pipe)};
    }
    return {};
}

}  // namespace

std::shared_ptr<network> expand(ff_node& whole, bool input_channel, const placement& group_of) {
    auto net = std::make_shared<network>();
    try {
        expansion all(*net, group_of);
        const ends open = all.block(whole, whole.get_my_id());
        if (input_channel) {
            if (open.ins.size() != 1)
                refuse("a block with an input channel starts with several nodes, expected one");
            const queue_size size = input_queue(whole);
            net->offloaded = std::make_shared<channel>(
                static_cast<std::size_t>(std::max(size.entries, 1)), size.fixed);
            net->offloaded->wakes(&open.ins.front()->in.news, &net->offload_room);
            expansion::add_input(*open.ins.front(), net->offloaded, false);
            open.ins.front()->in.inputs.back().outside = true;
            for (runner* from : open.outs) {
                if (!from->multi_out && from->out != nullptr) continue;
                if (whole.isFarm() && !static_cast<ff_farm&>(whole).hasCollector()) continue;
                auto queue = std::make_shared<channel>();
                queue->wakes(&net->results.news, &from->room);
                from->end_bell = &net->results.news;
                net->results_from.push_back(from);
                all.give_output(*from, queue, nullptr, false);
                net->results.inputs.push_back({queue, false, 0});
            }
            net->has_results = !net->results.inputs.empty();
        } else {
            for (runner* first : open.ins)
                first->skip_first = true;
        }
    } catch (const cannot_connect&) {
        return nullptr;
    }
    for (const auto& thread : net->runners) {
        if (thread->lb != nullptr) {
            const auto feedback = access::feedback(*thread->lb);
            access::running(*thread->lb) =
                feedback > 0 ? feedback : access::outs(*thread->lb).size();
        }
    }
    return net;
}

}  // namespace ff::detail

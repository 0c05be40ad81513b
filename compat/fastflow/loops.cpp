#include <stdexcept>
#include <string>
#include <utility>

#include "runner.hpp"

namespace ff::detail {
namespace {

/// Marks that svc() returns to say that there is nothing to send.
bool is_nothing(const void* item) {
    return item == FF_GO_ON || item == FF_FLUSH || item == FF_BLK || item == FF_NBLK;
}

}  // namespace

ff_minode* runner::inlet_node() const {
    if (node == nullptr) return nullptr;
    ff_node* first = node->isComp() ? static_cast<ff_comb*>(node)->getFirst() : node;
    return first->isMultiInput() ? static_cast<ff_minode*>(first) : nullptr;
}

void runner::set_channel(ssize_t channel, bool forward) {
    if (inlet_ != nullptr) access::set_channel(*inlet_, channel, forward);
}

void runner::notify(ssize_t id) {
    if (node != nullptr) node->eosnotify(id);
}

/// What svc() returned. Not of usual_loops.cpp, where no node is called back.
void runner::send(void* item) {
    emit(item);
    if (calls_back_) call_back_out();
}
void runner::call_back_in() {
    if (how == kind::spread)
        lb->callbackIn(lb);
    else
        node->callbackIn(how == kind::gather ? gt : nullptr);
}
void runner::call_back_out() {
    if (how == kind::spread) return lb->callbackOut(lb);
    if (out != nullptr) {
        sent_on();
        if (how == kind::plain) sent_on();  // Twice for what svc() returned, as in FastFlow.
    } else if (how == kind::gather && lb == nullptr) {
        node->callbackOut(gt);
    }
}
/// To the one output.
void runner::sent_on() {
    if (calls_back_ && out != nullptr) node->callbackOut();
}

/// Waits for an item, unless the node's input is off. Returns its input, or none.
std::size_t runner::wait_plain(void** item) {
    if (!active()) return inlet::none;  // It is called with nothing.
    const auto takes = [](const inlet::input&) { return true; };
    std::size_t from = in.take(takes, item);
    if (from != inlet::none) return from;
    in.news.sleep_until([&] { return (from = in.next(takes)) != inlet::none || abandoned_; });
    if (from != inlet::none) in.inputs[from].queue->try_pop(item);
    return from;
}

void* runner::plain_loop() {
    bool skip = skip_first;
    const bool comb = node->isComp();
    channel* const only = in.inputs.size() == 1 ? in.inputs.front().queue.get() : nullptr;
    for (;;) {
        void* item = nullptr;
        void* result = nullptr;
        std::size_t sent = 0;
        if (only == nullptr || skip || calls_back_ || !usual_plain(*only, item, result, sent)) {
            if (!in.inputs.empty() && !skip) {
                const std::size_t from = item != nullptr ? 0 : wait_plain(&item);
                if (from == inlet::none && abandoned_) return FF_EOS;
                if (is_end(item)) {
                    // A feedback channel beside an input: either ends it, as in FastFlow.
                    in.inputs[from].ended = true;
                    notify(-1);
                    if (item == FF_EOS) end_early(in.inputs.size());
                    if (item != FF_EOS_NOFREEZE) {
                        emit_end(item);
                        sent_on();
                    }
                    return item;
                }
                if (item == FF_GO_OUT) return item;
                if (item == FF_BLK || item == FF_NBLK) {
                    if (out != nullptr) out->push(item);
                    continue;
                }
            }
            if (abandoned_) return FF_EOS;
            skip = false;
            if (ordered_worker) sent = out->sent();
            result = call(item);
        }
        if (result != nullptr && !is_mark(result)) {
            send(result);
            continue;
        }
        if (result == FF_GO_OUT || result == FF_EOS_NOFREEZE) return result;
        if (result == nullptr || result == FF_EOS || result == FF_EOSW) {
            end_early(in.inputs.size());
            if (!comb) emit_end(result == nullptr ? FF_EOS : result);
            if (calls_back_) call_back_out();
            return FF_EOS;
        }
        if (!is_nothing(result)) {
            send(result);
        } else if (ordered_worker && out->sent() == sent) {
            out->push(FF_GO_ON);  // Its turn has passed without a result.
        }
    }
}

/// An item for a node with several outputs. `channel`: -1 from the stage before.
void* runner::wait_one(ssize_t& channel, bool& forward) {
    const auto takes = [this](const inlet::input& each) { return each.feedback || active(); };
    void* item = nullptr;
    std::size_t from = in.take(takes, &item);
    if (from == inlet::none) {
        const auto ready = [&] { return (from = in.next(takes)) != inlet::none || abandoned_; };
        if (active())
            in.news.sleep_until(ready);
        else
            in.news.nap_until(ready);
        if (from == inlet::none) {
            channel = -2;
            last_forward = -1;
            return abandoned_ ? FF_EOS_NOFREEZE : nullptr;
        }
        in.inputs[from].queue->try_pop(&item);
    }
    const inlet::input& source = in.inputs[from];
    forward = !source.feedback;
    channel = forward ? -1 : source.id;
    last_forward = forward ? source.id : -1;
    set_channel(source.id, forward);
    return item;
}

/// After an emitter has ended its workers: takes what they had still on the way to it, so that the
/// next stream begins with empty queues.
void runner::absorb_ends() {
    for (inlet::input& each : in.inputs) {
        if (!each.feedback || each.ended) continue;
        void* item = nullptr;
        while (!is_end(item) && !abandoned_) {
            if (!each.queue->try_pop(&item))
                in.news.sleep_until([&] { return !each.queue->empty() || abandoned_; });
        }
        each.ended = true;
    }
}

void* runner::spread_loop() {
    bool skip = skip_first;
    const bool loops = master_worker || in.count(true) != 0;
    std::size_t left = in.inputs.size();
    if (node == nullptr && left == 0) {
        lb->broadcast_task(FF_GO_ON);
        emit_end(FF_EOS);
        return FF_EOS;
    }
    const bool one_input = left == 1 && in.count(false) == 1;
    for (;;) {
        if (left == 0 && !in.inputs.empty()) {  // The last ends were met in all_gather().
            if (!loops) emit_end(FF_EOS);
            return FF_EOS;
        }
        void* item = nullptr;
        void* result = nullptr;
        const bool usual = one_input && !skip && !calls_back_ && usual_spread(item, result);
        if (!usual && !in.inputs.empty() && !skip) {
            ssize_t channel = -1;
            bool forward = true;
            if (item == nullptr) item = wait_one(channel, forward);
            access::channel_id(*lb) = channel;
            if (item == FF_GO_OUT) return item;
            if (item == FF_EOSW || item == FF_BLK || item == FF_NBLK) continue;
            if (is_end(item)) {
                if (abandoned_) return FF_EOS;
                if (item == FF_EOS) in.inputs[in.last].ended = true;
                notify(channel);
                in.check_silent();
                if (--left != 0) continue;
                if (!loops && item == FF_EOS) emit_end(item);
                return item;
            }
        } else if (abandoned_) {
            return FF_EOS;
        }
        skip = false;
        if (!usual) result = node != nullptr ? call(item) : item;
        left -= std::exchange(in.met_ends, 0);
        if (result != nullptr && !is_mark(result)) {
            send(result);
            continue;
        }
        if (is_nothing(result)) continue;
        if (result == FF_GO_OUT || result == FF_EOS_NOFREEZE) return result;
        if (result == nullptr || result == FF_EOS || result == FF_EOSW) {
            if (node == nullptr || !node->isComp() || !access::ended(static_cast<ff_comb&>(*node)))
                emit_end(result == nullptr ? FF_EOS : result);
            if (frozen_asked()) absorb_ends();
            end_early(in.inputs.size());
            return FF_EOS;
        }
        send(result);
    }
}

/// While the input of a node with several is off. Below 0: there is nothing for now.
ssize_t runner::take_feedback(void** item) {
    const auto takes = [](const inlet::input& each) { return each.feedback; };
    std::size_t from = in.next(takes);
    if (from == inlet::none)
        in.news.nap_until([&] { return (from = in.next(takes)) != inlet::none || abandoned_; });
    if (from == inlet::none) return -1;
    in.inputs[from].queue->try_pop(item);
    return static_cast<ssize_t>(from);
}

void* runner::gather_loop() {
    bool skip = skip_first;
    void* last_end = FF_EOS;
    const std::size_t all = gt->get_num_inchannels();
    std::size_t ended = 0;
    while (ended < all || all == 0) {
        void* item = nullptr;
        void* result = nullptr;
        ssize_t from = -1;
        const bool reads = !skip && all != 0;
        if (!reads || !gt->usual_ || calls_back_ || !usual_gather(item, from, result)) {
            if (reads) {
                const bool open = active();
                if (from < 0) from = open ? gt->gather_task(&item) : take_feedback(&item);
                if (from < 0 && abandoned_) return FF_EOS;
                if (open || from >= 0) {
                    if (from < 0 || static_cast<std::size_t>(from) >= in.inputs.size())
                        throw std::out_of_range("input " + std::to_string(from) +
                                                " does not exist, expected one below " +
                                                std::to_string(in.inputs.size()));
                    inlet::input& source = in.inputs[static_cast<std::size_t>(from)];
                    if (is_mark(item) && is_nothing(item)) continue;
                    read_from(source);
                    if (is_end(item)) {
                        source.ended = true;
                        last_end = item;
                        ++ended;
                        if (!notify_once) notify(source.id);
                        gt->notifyeos(static_cast<int>(source.id));
                        in.check_silent();
                        continue;
                    }
                }
            }
            if (abandoned_) return FF_EOS;
            skip = false;
            result = node != nullptr ? call(item) : item;
        }
        ended += std::exchange(in.met_ends, 0);
        if (result == FF_GO_ON) continue;
        if (result != nullptr && !is_mark(result)) {
            send(result);
            continue;
        }
        if (is_nothing(result)) continue;
        if (result == FF_GO_OUT || result == FF_EOS_NOFREEZE) return result;
        if (result == nullptr || result == FF_EOS || result == FF_EOSW) {
            end_early(all);
            if (result == FF_EOSW) return FF_EOS;
            last_end = FF_EOS;
            if (node != nullptr && node->isComp() && access::ended(static_cast<ff_comb&>(*node)))
                return FF_EOS;
            break;
        }
        send(result);
    }
    if (last_end == FF_EOS) {
        if (notify_once) notify(-1);
        emit_end(FF_EOS);
        sent_on();
    }
    return last_end == FF_EOSW ? FF_EOS : last_end;
}

}  // namespace ff::detail

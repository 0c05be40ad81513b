#include "runner.hpp"

// What a node's thread does with nearly all items. Everything else ends up in loops.cpp.
namespace ff::detail {

void* runner::svc(void* item) {
    items.store(items.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return node->svc(item);
}

void* runner::returned(void* result) {
    if (result == FF_FLUSH) flush();
    // A combination that ended has told those after it already.
    if (result == FF_GO_OUT && node->isComp() && access::ended(static_cast<ff_comb&>(*node)))
        return FF_EOS;
    return result;
}

void* runner::call(void* item) {
    if (calls_back_) call_back_in();
    void* const result = svc(item);
    return is_mark(result) ? returned(result) : result;
}

/// svc() of what has come to a node with one input, until something special does, or is returned.
/// True: `result` is that. Else `item` is a mark, or null: nothing is there. `sent`: how many were,
/// before svc() of the last one.
template <bool Ordered>
bool runner::usual_items(channel& queue, void*& item, void*& result, std::size_t& sent) {
    channel* const one = lb == nullptr ? out.get() : nullptr;
    void* came = nullptr;
    while (!abandoned_ && access::active(*node) && queue.try_pop(&came)) {
        if (is_mark(came)) {
            item = came;
            return false;
        }
        if (Ordered) sent = one->sent();
        void* const made = svc(came);
        if (made == FF_GO_ON && (!Ordered || one->sent() != sent)) continue;
        if (made == nullptr || is_mark(made)) {
            result = returned(made);
            return true;
        }
        if (one != nullptr && one->simple())
            one->push_simple(made);
        else
            emit(made);
    }
    return false;
}

bool runner::usual_plain(channel& queue, void*& item, void*& result, std::size_t& sent) {
    return ordered_worker ? usual_items<true>(queue, item, result, sent)
                          : usual_items<false>(queue, item, result, sent);
}

/// The same for a node with several outputs, or an emitter, that has one input.
bool runner::usual_spread(void*& item, void*& result) {
    const inlet::input& source = in.inputs.front();
    in.last = 0;
    access::channel_id(*lb) = -1;
    last_forward = source.id;
    set_channel(source.id, true);
    std::size_t sent = 0;
    if (node != nullptr) return usual_items<false>(*source.queue, item, result, sent);
    void* came = nullptr;
    while (!abandoned_ && source.queue->try_pop(&came)) {
        if (is_mark(came)) {
            item = came;
            return false;
        }
        emit(came);
    }
    return false;
}

/// The same for a node with several inputs, which `next` gives. `from`: of the last item.
template <typename Next>
bool runner::usual_inputs(Next next, void*& item, ssize_t& from, void*& result) {
    channel* const one = lb == nullptr ? out.get() : nullptr;
    void* came = nullptr;
    while (!abandoned_ && active()) {
        const inlet::input* const source = next(&came);
        if (source == nullptr) return false;
        if (is_mark(came)) {
            item = came;
            from = source - in.inputs.data();
            return false;
        }
        read_from(*source);
        void* const made = node != nullptr ? svc(came) : came;
        if (in.met_ends) {
            result = is_mark(made) ? returned(made) : made;
            return true;
        }
        if (made == FF_GO_ON) continue;
        if (made == nullptr || is_mark(made)) {
            result = returned(made);
            return true;
        }
        if (one != nullptr && one->simple())
            one->push_simple(made);
        else
            emit(made);
    }
    return false;
}

bool runner::usual_gather(void*& item, ssize_t& from, void*& result) {
    auto& inputs = in.inputs;
    if (in.turns != nullptr) {
        turn_order& turns = *in.turns;
        const auto in_turn = [&](void** came) -> const inlet::input* {
            if (!turns.here() || turns.worker() >= inputs.size()) return nullptr;
            const inlet::input& each = inputs[turns.worker()];
            if (each.ended || !each.queue->try_pop(came)) return nullptr;
            turns.take();
            return &each;
        };
        return usual_inputs(in_turn, item, from, result);
    }
    const std::size_t all = gt->get_num_inchannels();
    const auto next_one = [&](void** came) -> const inlet::input* {
        auto at = static_cast<std::size_t>(gt->next_);
        for (std::size_t tried = all; tried != 0; --tried) {
            if (++at >= all) at = 0;
            const inlet::input& each = inputs[at];
            if (each.ended || !each.queue->try_pop(came)) continue;
            gt->next_ = static_cast<ssize_t>(at);
            return &each;
        }
        return nullptr;
    };
    return usual_inputs(next_one, item, from, result);
}

/// For get_channel_id() of a node with several inputs, or a collector.
void runner::read_from(const inlet::input& source) {
    gt->channel_ = source.id;
    gt->from_input_ = !source.feedback;
    set_channel(source.id, !source.feedback);
}

}  // namespace ff::detail

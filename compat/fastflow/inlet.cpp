#include "inlet.hpp"

namespace ff::detail {

std::size_t inlet::left() const {
    std::size_t open = 0;
    for (const input& each : inputs)
        open += each.ended ? 0 : 1;
    return open;
}
void inlet::check_silent() const {
    const input* silent = nullptr;
    for (const input& each : inputs) {
        if (!each.ended && !each.silent) return;
        if (!each.ended) silent = &each;
    }
    if (silent != nullptr) silent->queue->deserted();
}
std::size_t inlet::count(bool feedback) const {
    std::size_t found = 0;
    for (const input& each : inputs)
        found += each.feedback == feedback ? 1 : 0;
    return found;
}

bool inlet::input::drop_stale() {
    void* item = nullptr;
    while (stale && queue->try_pop(&item))
        stale = !is_end(item);
    return !stale;
}
void inlet::input::end_stale() {
    void* item = nullptr;
    while (stale && queue->taken() < until && queue->try_pop(&item))
        stale = !is_end(item);
    stale = ended = false;
}

void inlet::reopen() {
    for (input& each : inputs) {
        each.stale = false;
        if (!each.outside) each.queue->discard();
        each.queue->reopen();
    }
    if (turns != nullptr) turns->reopen();
}
void inlet::close() {
    for (input& each : inputs) {
        each.queue->close();
        each.queue->discard();
    }
    if (turns != nullptr) turns->close();
}
bool inlet::stale() const {
    for (const input& each : inputs)
        if (each.stale) return true;
    return turns != nullptr && turns->stale();
}
bool inlet::drop_stale() {
    bool all = turns == nullptr || turns->drop_stale();
    for (input& each : inputs)
        all = each.drop_stale() && all;
    return all;
}
void inlet::mark_stale() {
    for (input& each : inputs)
        each.until = each.queue->sent();
    if (turns != nullptr) turns->mark();
}
void inlet::begin_stream() {
    met_ends = 0;
    for (input& each : inputs)
        each.end_stale();
    if (turns != nullptr) turns->begin_stream();
}

}  // namespace ff::detail

#include <algorithm>

#include <fmt/format.h>

#include "model_check/checker/explorer.hpp"

namespace amalgam::model {
namespace {

std::uint64_t kept_bytes(std::uint64_t value, std::size_t bytes) noexcept {
    return bytes == 8 ? value : value & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

const char* name_of(kind what) noexcept {
    constexpr const char* names[] = {
        "load",  "store",  "change", "compare-exchange", "fence",        "fence in all threads",
        "yield", "strike", "wait",   "futex: look",      "futex: sleep", "lock",
        "unlock"};
    return names[static_cast<std::size_t>(what)];
}

const char* name_of(std::memory_order order) noexcept {
    switch (order) {
        case std::memory_order_relaxed:
            return "relaxed";
        case std::memory_order_release:
            return "release";
        case std::memory_order_acq_rel:
            return "acq_rel";
        case std::memory_order_seq_cst:
            return "seq_cst";
        default:
            return "acquire";
    }
}

}  // namespace

bool step::writes() const noexcept {
    switch (what) {
        case kind::store:
        case kind::change:
        case kind::compare:
        case kind::strike:
        case kind::wait:
        case kind::futex_sleep:
        case kind::lock:
        case kind::unlock:
            return true;
        default:
            return false;
    }
}

void explorer::perform(std::size_t who) {
    thread& me = threads_[who];
    event now;
    now.thread = who;
    now.what = me.next;
    now.node = at_ - 1;
    now.number = me.after[who] + 1;
    for (const event& earlier : events_) {
        if (earlier.thread != who && !depends(earlier.what, now.what)) continue;
        for (std::size_t i = 0; i < count_; ++i)
            now.after[i] = std::max(now.after[i], earlier.after[i]);
    }
    now.after[who] = now.number;
    if (now.what.writes() || now.what.what == kind::fence_all) {
        rounds_without_store_ = 0;
    } else {
        ++rounds_without_store_;
    }
    const bool same_look =
        now.what.what == kind::load && me.looked_at == now.what.where && me.looks != 0;
    if (!same_look) me.looks = 0;
    switch (now.what.what) {
        case kind::load:
            load(who, now);
            break;
        case kind::store:
            store(who, now);
            break;
        case kind::change:
        case kind::compare:
            change(who, now, now.what.what == kind::compare);
            break;
        case kind::fence:
            memory_.fence(who, now.what.order);
            break;
        case kind::fence_all:
            memory_.fence_all();
            break;
        case kind::yield:
            for (const auto& each : me.watched)
                memory_.see_newest(who, each.first);
            me.watched.clear();
            break;
        case kind::strike:
            if (now.what.operand == 0) {
                ++*reinterpret_cast<int*>(now.what.address);
            } else {
                wake_futex(now);
            }
            break;
        case kind::wait:
            *reinterpret_cast<int*>(now.what.address) = 0;
            break;
        case kind::futex_look: {
            const place& there = memory_.of(now.what.where);
            now.got = kept_bytes(there.stores[there.order.back()].value, now.what.bytes);
            memory_.see_newest(who, now.what.where);
            me.is_woken = false;
            break;
        }
        case kind::futex_sleep:
            me.is_woken = false;
            break;
        case kind::lock:
        case kind::unlock:
            change_mutex(who, now);
            break;
    }
    memory_.tick(who);
    me.got = now.got;
    me.after = now.after;
    events_.push_back(now);
}

void explorer::wake_futex(const event& what) {
    std::vector<std::size_t> asleep;
    for (std::size_t i = 0; i < count_; ++i) {
        const thread& each = threads_[i];
        if (each.is == thread::state::ready && each.next.what == kind::futex_sleep &&
            each.next.address == what.what.address && !each.is_woken)
            asleep.push_back(i);
    }
    if (!asleep.empty()) threads_[asleep[choose(asleep.size())]].is_woken = true;
}

std::memory_order explorer::weakened(const step& what, act as,
                                     std::memory_order order) const noexcept {
    for (const auto& each : program_->weaker_) {
        if (reinterpret_cast<std::uintptr_t>(each.at) == what.address && each.what == as)
            return each.to;
    }
    return order;
}

std::vector<std::size_t> explorer::not_repeated(std::size_t who, std::size_t where,
                                                std::vector<std::size_t> positions,
                                                bool reads) const {
    if (!how_.reduce) return positions;
    const place& there = const_cast<memory&>(memory_).of(where);
    const auto& after = threads_[who].after;
    const auto raced = [&](std::size_t position) {
        const int by = there.stores[there.order[position]].event;
        return by >= 0 && after[events_[static_cast<std::size_t>(by)].thread] <
                              events_[static_cast<std::size_t>(by)].number;
    };
    std::size_t first = there.order.size();
    for (std::size_t i = 0; i < there.order.size() && first == there.order.size(); ++i) {
        if (raced(i)) first = i;
    }
    if (first == there.order.size()) return positions;
    std::erase_if(positions, [&](std::size_t position) {
        return reads ? !raced(position) : position < first;
    });
    return positions;
}

/// Of these positions, those by which the seq_cst accesses still have an order.
void explorer::keep_ordered(std::size_t who, std::size_t where, std::memory_order order,
                            std::vector<std::size_t>& positions, bool writes) const {
    if (order != std::memory_order_seq_cst) return;
    std::erase_if(positions,
                  [&](std::size_t each) { return !memory_.has_order(who, where, each, writes); });
}

void explorer::load(std::size_t who, event& what) {
    thread& me = threads_[who];
    const std::size_t where = what.what.where;
    const std::memory_order order = weakened(what.what, act::load, what.what.order);
    if (const char* why = memory_.plain_before_atomic(who, memory_.of(where), false)) {
        failure_ = why;
        return;
    }
    place& there = memory_.of(where);
    std::size_t low = memory_.floor(who, where, order == std::memory_order_seq_cst);
    if (me.looks >= most_looks && me.looked_at == where)
        low = std::max(low, std::min(me.looked_position + 1, there.order.size() - 1));
    std::vector<std::size_t> ways;
    for (std::size_t i = there.order.size(); i-- > low;)
        ways.push_back(i);
    keep_ordered(who, where, order, ways, false);
    if (auto fewer = not_repeated(who, where, ways, true); !fewer.empty()) ways = fewer;
    const std::size_t position = ways[choose(ways.size())];
    const std::size_t store = there.order[position];
    memory_.read(who, where, store, order);
    if (order == std::memory_order_seq_cst) memory_.put_in_order(who, where, store, false);
    what.got = kept_bytes(there.stores[store].value, what.what.bytes);
    me.looks = me.looked_at == where && me.looked_position == position ? me.looks + 1 : 1;
    me.looked_at = where;
    me.looked_position = position;
    me.watched.emplace_back(where, position);
    what.what.order = order;
}

void explorer::store(std::size_t who, event& what) {
    const std::size_t where = what.what.where;
    const std::memory_order order = weakened(what.what, act::store, what.what.order);
    if (const char* why = memory_.plain_before_atomic(who, memory_.of(where), true)) {
        failure_ = why;
        return;
    }
    place& there = memory_.of(where);
    std::vector<std::size_t> ways;
    const std::size_t low = memory_.floor(who, where, order == std::memory_order_seq_cst);
    for (std::size_t i = there.order.size(); i-- > low;) {
        if (!there.stores[there.order[i]].is_taken) ways.push_back(i);
    }
    keep_ordered(who, where, order, ways, true);
    if (auto fewer = not_repeated(who, where, ways, false); !fewer.empty()) ways = fewer;
    const std::size_t position = ways[choose(ways.size())];
    what.got = what.what.operand;
    memory_.write(who, where, what.what.operand, position, -1, order,
                  static_cast<int>(events_.size()));
    if (order == std::memory_order_seq_cst)
        memory_.put_in_order(who, where, there.stores.size() - 1, true);
    what.what.order = order;
}

void explorer::change(std::size_t who, event& what, bool compares) {
    const std::size_t where = what.what.where;
    const std::memory_order order = weakened(what.what, act::change, what.what.order);
    if (const char* why = memory_.plain_before_atomic(who, memory_.of(where), true)) {
        failure_ = why;
        return;
    }
    place& there = memory_.of(where);
    const auto value_at = [&](std::size_t position) {
        return kept_bytes(there.stores[there.order[position]].value, what.what.bytes);
    };
    const auto succeeds = [&](std::size_t position) {
        return !compares || value_at(position) == what.what.expected;
    };
    std::vector<std::size_t> ways;
    const std::size_t low = memory_.floor(who, where, order == std::memory_order_seq_cst);
    for (std::size_t i = there.order.size(); i-- > low;) {
        if (!succeeds(i) || !there.stores[there.order[i]].is_taken) ways.push_back(i);
    }
    keep_ordered(who, where, order, ways, true);
    if (auto fewer = not_repeated(who, where, ways, true); !fewer.empty()) ways = fewer;
    const std::size_t position = ways[choose(ways.size())];
    const std::size_t store = there.order[position];
    what.got = value_at(position);
    const bool wins = succeeds(position);
    const std::memory_order used = wins ? order : std::min(order, what.what.on_failure);
    memory_.read(who, where, store, used);
    what.what.order = used;
    if (!wins) {
        if (used == std::memory_order_seq_cst) memory_.put_in_order(who, where, store, false);
        threads_[who].watched.emplace_back(where, position);
        return;
    }
    const std::uint64_t made =
        compares ? what.what.operand : what.what.combine(what.got, what.what.operand);
    memory_.write(who, where, kept_bytes(made, what.what.bytes), position, static_cast<int>(store),
                  order, static_cast<int>(events_.size()));
    if (order == std::memory_order_seq_cst)
        memory_.put_in_order(who, where, there.stores.size() - 1, true);
    if (compares) return;
    // As loops that wait for a lock look by an exchange.
    auto& watched = threads_[who].watched;
    std::erase_if(watched, [&](const auto& each) { return each.first == where; });
    watched.emplace_back(where, position + 1);
}

// A mutex has one order of its owners, so that there is no choice.
void explorer::change_mutex(std::size_t who, event& what) {
    const std::size_t where = what.what.where;
    place& there = memory_.of(where);
    const bool locks = what.what.what == kind::lock;
    const std::size_t newest = there.order.back();
    const std::memory_order order = weakened(
        what.what, act::change, locks ? std::memory_order_acquire : std::memory_order_release);
    what.what.order = order;
    memory_.read(who, where, newest, order);
    memory_.write(who, where, locks ? 1 : 0, there.order.size() - 1, static_cast<int>(newest),
                  order, static_cast<int>(events_.size()));
    // An execution may end while it is locked; the next one finds it free.
    *reinterpret_cast<int*>(what.what.address) = 0;
}

std::string explorer::told() const {
    std::string text;
    for (const event& each : events_) {
        std::string where;
        if (each.what.address != 0) {
            where = fmt::format("{:#x}", each.what.address);
            for (const auto& [at, name] : program_->names_) {
                if (reinterpret_cast<std::uintptr_t>(at) == each.what.address) where = name;
            }
        }
        text += fmt::format("  thread {}: {} {} ({}) {:#x}\n", each.thread, name_of(each.what.what),
                            where, name_of(each.what.order), each.got);
    }
    return text + fmt::format("  thread {}: here\n", running_);
}

}  // namespace amalgam::model

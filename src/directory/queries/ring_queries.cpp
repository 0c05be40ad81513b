#include <algorithm>
#include <iterator>
#include <utility>

#include "directory/membership/asking.hpp"
#include "directory/resources/store.hpp"

namespace amalgam::detail {

std::chrono::nanoseconds directory_ring::left() const {
    const call_context* const call = call_context::try_current();
    if (call == nullptr || !call->deadline()) return options_.answer_limit;
    return std::min<std::chrono::nanoseconds>(options_.answer_limit, *call->deadline() - on_.now());
}

part_answer directory_ring::find(resource_id id, const attribute_view& query) {
    if (id == resource_id::none) {
        std::vector<std::uint64_t> silent;
        const auto heard = ask_at_once(broadcast_packet::kind::find, query, silent);
        if (heard && !heard->empty()) {
            note_broadcast(false);
            return {heard->front().found, 0};
        }
        part_answer all = find_behind(all_others(), query);
        if (heard && all.found.id != resource_id::none) note_broadcast(true);
        return all;
    }
    std::vector<std::uint64_t> owners;  // More than one after a network partition.
    {
        const std::lock_guard one(lock_);
        const auto range = static_cast<std::uint32_t>(id) / resource_store::ids_per_range;
        for (const member* each : others_.claimants_of(range))
            owners.push_back(each->key);
    }
    std::sort(owners.begin(), owners.end());
    part_answer all;
    std::vector<future<found_values>> answers;
    const clock::time_point until = on_.now() + left();
    for (const std::uint64_t each : owners) {
        const auto there = on_.now() < until ? reach(each, (until - on_.now()) / 2) : std::nullopt;
        if (there) {
            answers.push_back(find_there_.on(*there).within(until - on_.now()).start(id, query));
        } else {
            ++all.silent;
        }
    }
    for (auto& each : answers) {
        if (!each.wait().ok()) {
            ++all.silent;
            continue;
        }
        all.found = each.get();
        if (all.found.id != resource_id::none) break;
    }
    return all;
}

part_answer directory_ring::find_in(ring_part part, attribute_view query) {
    check_is_in(part);
    if (const auto here = here_.lock()) {
        found_values found = here->find_here(query);
        if (found.id != resource_id::none) return {std::move(found), 0};
    }
    return find_behind(part, query);
}

part_answer directory_ring::find_behind(const ring_part& part, const attribute_view& query) {
    part_answer all;
    asking parts(*this, part, left(),
                 [&](const peer& there, const ring_part& its, std::chrono::nanoseconds within) {
                     return find_.on(there).within(within).start(its, query);
                 });
    while (auto answer = parts.next()) {
        all.silent += answer->silent;
        all.found = std::move(answer->found);
        if (all.found.id != resource_id::none) break;  // Cancels the rest.
    }
    all.silent += parts.silent();
    return all;
}

first_answers directory_ring::search_in(ring_part part, attribute_view query) {
    check_is_in(part);
    std::optional<first_answer> mine;
    if (const auto here = here_.lock()) mine = here->search_here(query);
    first_answers all;
    all.silent = search_behind(part, query, [&](std::vector<first_answer>&& some) {
        std::move(some.begin(), some.end(), std::back_inserter(all.found));
    });
    if (mine) {
        mine->server = self_key();
        all.found.push_back(std::move(*mine));
    }
    return all;
}

std::uint32_t directory_ring::search_behind(const ring_part& part, const attribute_view& query,
                                            const taker& take) {
    asking parts(*this, part, left(),
                 [&](const peer& there, const ring_part& its, std::chrono::nanoseconds within) {
                     return search_.on(there).within(within).start(its, query);
                 });
    std::uint32_t silent = 0;
    while (auto answer = parts.next()) {
        silent += answer->silent;
        take(std::move(answer->found));
    }
    return silent + parts.silent();
}

next_answer directory_ring::next_of(std::uint64_t search) {
    const auto here = here_.lock();
    return here ? here->next_here(search) : next_answer{true, {}, 1};
}

void directory_ring::stop_here(std::uint64_t search) {
    if (const auto here = here_.lock()) here->stop_here(search);
}

std::uint32_t directory_ring::search(const attribute_view& query, const taker& take) {
    if (const auto silent = search_by_broadcast(query, take)) return *silent;
    return search_behind(all_others(), query, take);
}

next_answer directory_ring::next(const first_answer& of) {
    const auto there = reach(of.server);
    if (!there) return {true, {}, 1};
    auto answer = next_.on(*there).within(options_.answer_limit).try_call(of.search);
    const bool is_one = answer && (answer->over || answer->found.id != resource_id::none);
    return is_one ? std::move(*answer) : next_answer{true, {}, 1};
}

void directory_ring::stop(const first_answer& what) noexcept {
    try {
        if (const auto there = reach(what.server)) stop_.on(*there).post(what.search);
    } catch (const std::exception&) {
        // It expires after a while.
    }
}

}  // namespace amalgam::detail

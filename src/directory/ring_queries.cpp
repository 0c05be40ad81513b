#include <algorithm>
#include <iterator>
#include <utility>

#include "directory/resource_store.hpp"
#include "directory/ring_asking.hpp"

namespace amalgam::detail {

std::chrono::nanoseconds directory_ring::left() const {
    const call_context* const call = call_context::try_current();
    if (call == nullptr || !call->deadline()) return options_.answer_limit;
    return std::min<std::chrono::nanoseconds>(options_.answer_limit, *call->deadline() - on_.now());
}

found_values directory_ring::find(resource_id id, const attribute_view& query) {
    if (id == resource_id::none) {
        std::vector<std::uint64_t> silent;
        const auto heard = ask_at_once(broadcast_packet::kind::find, query, silent);
        if (heard && !heard->empty()) {
            note_broadcast(false);
            return heard->front().found;
        }
        found_values found = find_behind(all_others(), query).found;
        if (heard && found.id != resource_id::none) note_broadcast(true);
        return found;
    }
    std::vector<std::uint64_t> owners;  // More than one after the network was parted.
    {
        const std::lock_guard one(lock_);
        const auto range = static_cast<std::uint32_t>(id) / resource_store::ids_per_range;
        for (const member* each : others_.claimants_of(range))
            owners.push_back(each->key);
    }
    std::sort(owners.begin(), owners.end());
    std::vector<future<found_values>> answers;
    for (const std::uint64_t each : owners)
        if (const auto there = reach(each))
            answers.push_back(find_there_.on(*there).within(left()).start(id, query));
    for (auto& each : answers) {
        if (!each.wait().ok()) continue;
        found_values found = each.get();
        if (found.id != resource_id::none) return found;
    }
    return {};
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
        part_answer one = answer->get();
        all.silent += one.silent;
        all.found = std::move(one.found);
        if (all.found.id != resource_id::none) break;  // The rest is called off.
    }
    all.silent += parts.silent();
    return all;
}

first_answers directory_ring::search_in(ring_part part, attribute_view query) {
    check_is_in(part);
    std::optional<first_answer> mine;
    if (const auto here = here_.lock()) mine = here->search_here(query);
    first_answers all = search_behind(part, query);
    if (mine) {
        mine->server = self_key();
        all.found.push_back(std::move(*mine));
    }
    return all;
}

first_answers directory_ring::search_behind(const ring_part& part, const attribute_view& query) {
    first_answers all;
    asking parts(*this, part, left(),
                 [&](const peer& there, const ring_part& its, std::chrono::nanoseconds within) {
                     return search_.on(there).within(within).start(its, query);
                 });
    while (auto answer = parts.next()) {
        first_answers one = answer->get();
        all.silent += one.silent;
        std::move(one.found.begin(), one.found.end(), std::back_inserter(all.found));
    }
    all.silent += parts.silent();
    return all;
}

next_answer directory_ring::next_of(std::uint64_t search) {
    const auto here = here_.lock();
    return here ? here->next_here(search) : next_answer{true, {}};
}

void directory_ring::stop_here(std::uint64_t search) {
    if (const auto here = here_.lock()) here->stop_here(search);
}

std::vector<first_answer> directory_ring::search(const attribute_view& query) {
    if (auto heard = search_by_broadcast(query)) return std::move(*heard);
    return search_behind(all_others(), query).found;
}

next_answer directory_ring::next(const first_answer& of) {
    const auto there = reach(of.server);
    if (!there) return {true, {}};
    auto answer = next_.on(*there).within(options_.answer_limit).try_call(of.search);
    return answer ? std::move(*answer) : next_answer{true, {}};
}

void directory_ring::stop(const first_answer& what) noexcept {
    try {
        if (const auto there = reach(what.server)) stop_.on(*there).post(what.search);
    } catch (const std::exception&) {
        // It ends by itself after a while.
    }
}

}  // namespace amalgam::detail

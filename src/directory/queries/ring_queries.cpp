#include "directory/queries/ring_queries.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "directory/limits.hpp"
#include "directory/membership/tree_call.hpp"
#include "directory/resources/store.hpp"

namespace amalgam::detail {

ring_queries::ring_queries(ring_runtime& runtime, membership_view& view, ring_peers& peers,
                           broadcast_queries& broadcasts)
    : runtime_(runtime),
      view_(view),
      peers_(peers),
      broadcasts_(broadcasts),
      find_(runtime.on.procedure<in_ring::find>(in_ring::find_name)),
      search_(runtime.on.procedure<in_ring::search>(in_ring::search_name)),
      next_(runtime.on.procedure<in_ring::next>(in_ring::next_name)),
      stop_(runtime.on.procedure<in_ring::stop>(in_ring::stop_name)),
      find_there_(runtime.on.procedure<at_directory::find>(at_directory::find_name)) {}

void ring_queries::start() {
    runtime_.serve(*this, in_ring::find_name, &ring_queries::find_in, handler::ult);
    runtime_.serve(*this, in_ring::search_name, &ring_queries::search_in, handler::ult);
    runtime_.serve(*this, in_ring::next_name, &ring_queries::next_here, handler::ult);
    runtime_.serve(*this, in_ring::stop_name, &ring_queries::stop_here);
}

part_answer ring_queries::find(resource_id id, const attribute_view& query) {
    if (id != resource_id::none) return find_by_id(id, query);
    auto heard = broadcasts_.find(query);
    if (heard && heard->id != resource_id::none) {
        broadcasts_.note(false);
        return {std::move(*heard), 0};
    }
    part_answer all = find_behind(view_.all_others(), query);
    if (heard && all.found.id != resource_id::none) broadcasts_.note(true);
    return all;
}

part_answer ring_queries::find_by_id(resource_id id, const attribute_view& query) {
    // More than one after a network partition.
    std::vector<std::uint64_t> owners =
        view_.claimants_of(static_cast<std::uint32_t>(id) / limits::ids_per_range);
    std::sort(owners.begin(), owners.end());
    part_answer all;
    std::vector<future<found_values>> answers;
    const clock::time_point until = runtime_.now() + runtime_.time_left();
    for (const std::uint64_t each : owners) {
        const clock::time_point now = runtime_.now();
        const auto there = now < until ? peers_.reach(each, (until - now) / 2) : std::nullopt;
        if (there) {
            answers.push_back(
                find_there_.on(*there).within(until - runtime_.now()).start(id, query));
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

part_answer ring_queries::find_in(ring_part part, attribute_view query) {
    view_.check_is_in(part);
    if (const auto here = runtime_.here.lock()) {
        found_values found = here->find_here(query);
        if (found.id != resource_id::none) return {std::move(found), 0};
    }
    return find_behind(part, query);
}

part_answer ring_queries::find_behind(const ring_part& part, const attribute_view& query) {
    part_answer all;
    tree_call parts(runtime_, view_, peers_, part, runtime_.time_left(),
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

first_answers ring_queries::search_in(ring_part part, attribute_view query) {
    view_.check_is_in(part);
    std::optional<first_answer> mine;
    if (const auto here = runtime_.here.lock()) mine = here->search_here(query);
    first_answers all;
    all.silent = search_behind(part, query, [&](std::vector<first_answer>&& some) {
        std::move(some.begin(), some.end(), std::back_inserter(all.found));
    });
    if (mine) {
        mine->server = view_.key();
        all.found.push_back(std::move(*mine));
    }
    return all;
}

std::uint32_t ring_queries::search_behind(const ring_part& part, const attribute_view& query,
                                          const taker& take) {
    tree_call parts(runtime_, view_, peers_, part, runtime_.time_left(),
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

next_answer ring_queries::next_here(std::uint64_t search) {
    const auto here = runtime_.here.lock();
    return here ? here->next_here(search) : next_answer{true, {}, 1};
}

void ring_queries::stop_here(std::uint64_t search) {
    if (const auto here = runtime_.here.lock()) here->stop_here(search);
}

std::uint32_t ring_queries::search(const attribute_view& query, const taker& take) {
    if (const auto silent = broadcasts_.search(query, take)) return *silent;
    return search_behind(view_.all_others(), query, take);
}

next_answer ring_queries::next(const first_answer& of) {
    const auto there = peers_.reach(of.server);
    if (!there) return {true, {}, 1};
    auto answer = next_.on(*there).within(runtime_.options.answer_limit).try_call(of.search);
    const bool is_one = answer && (answer->over || answer->found.id != resource_id::none);
    return is_one ? std::move(*answer) : next_answer{true, {}, 1};
}

void ring_queries::stop(const first_answer& what) noexcept {
    try {
        if (const auto there = peers_.reach(what.server)) stop_.on(*there).post(what.search);
    } catch (const std::exception&) {
        // It expires after a while.
    }
}

}  // namespace amalgam::detail

#include "rpc/serve/procedure_table.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>

#include "rpc/limits.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

void procedure_table::add(std::unique_ptr<served_procedure> fresh) {
    if (fresh->name.empty() || fresh->name.size() > limits::max_name_bytes) {
        throw error(
            errc::invalid,
            fmt::format("the procedure name has {} bytes, expected 1 to {}; example: \"sum\"",
                        fresh->name.size(), limits::max_name_bytes));
    }
    if (fresh->signature.size() > limits::max_signature_bytes) {
        throw error(
            errc::invalid,
            fmt::format("the signature of \"{}\" is {} bytes long as text, expected at most {}: "
                        "give its types short names with amalgam_type_name",
                        printable_name(fresh->name), fresh->signature.size(),
                        limits::max_signature_bytes));
    }
    const std::uint16_t provider = fresh->options.provider;
    for (const auto& other : all_) {
        if (!other->defined || other->learned) continue;
        if (other->name == fresh->name && other->options.provider == provider) {
            throw error(errc::invalid,
                        fmt::format("\"{}\" is defined already, as {}: undefine() it first, or "
                                    "choose another name or provider",
                                    printable_name(other->name), other->signature));
        }
        if (other->name == fresh->name && other->signature != fresh->signature) {
            throw error(errc::invalid,
                        fmt::format("\"{}\" is {} at provider {}, so it cannot be {} at provider "
                                    "{}: rename one of them",
                                    printable_name(other->name), other->signature,
                                    other->options.provider, fresh->signature, provider));
        }
        if (other->name != fresh->name && other->id == fresh->id) {
            throw error(errc::invalid,
                        fmt::format("\"{}\" and \"{}\" hash to the same id: rename one of them",
                                    printable_name(fresh->name), printable_name(other->name)));
        }
    }
    // Allocations come first, so that a name is either present and findable, or neither.
    std::vector<entry> larger(std::bit_ceil(2 * (all_.size() + 1) + 2));
    fresh->number = ++numbers_;
    fresh->plain = fresh->form == answer_form::result && !fresh->streams_values &&
                   !fresh->learned && !fresh->restricted;
    const std::size_t flat = fresh->run->flat_bytes();
    if (fresh->plain && flat != not_flat) fresh->flat_request = request_bytes + flat;
    if (!fresh->library && !fresh->learned && all_.size() < limits::max_measured_procedures) {
        fresh->took = std::make_unique<latency_histogram>();
        fresh->until_measured = fresh->counted_to = 1;
    }
    all_.push_back(std::move(fresh));
    const served_procedure& last = *all_.back();
    for (const auto& other : all_) {  // Whoever defines a name is served by it from now on.
        const bool same = other->name == last.name || other->id == last.id;
        if (!last.learned && other->learned && same) other->defined = false;
    }
    table_ = std::move(larger);
    fill();
    collect();
}

served_procedure& procedure_table::learn(std::unique_ptr<served_procedure> fresh,
                                         known_peers& peers) {
    served_procedure& added = *fresh;
    added.learned = true;
    make_room_for_learned(peers);
    add(std::move(fresh));
    return added;
}

std::size_t procedure_table::learned_from(const peer& who) const noexcept {
    return static_cast<std::size_t>(std::count_if(all_.begin(), all_.end(), [&](const auto& each) {
        return each->learned && each->defined && each->named_by == who;
    }));
}

void procedure_table::share(served_procedure& learned, const peer& with) const noexcept {
    if (learned.named_by == with || learned_from(with) >= learned_from(learned.named_by)) return;
    learned.named_by = with;
}

void procedure_table::make_room_for_learned(known_peers& peers) {
    std::unordered_map<peer, std::size_t> names;
    std::size_t all = 0;
    const auto owner = [&](const served_procedure& each) {
        return peers.find(each.named_by) != nullptr ? each.named_by : peer();
    };
    const auto is_learned = [](const auto& each) { return each->learned && each->defined; };
    for (const auto& each : all_)
        all += is_learned(each);
    if (all < limits::max_learned_names) return;
    for (const auto& each : all_) {
        if (is_learned(each)) ++names[owner(*each)];
    }
    // A quarter at once, so that not every new name costs a pass.
    constexpr std::size_t kept = limits::max_learned_names - limits::max_learned_names / 4;
    const auto with_at_most = [&](std::size_t share) {
        std::size_t sum = 0;
        for (const auto& each : names)
            sum += std::min(each.second, share);
        return sum;
    };
    std::size_t share = 0;
    while (with_at_most(share + 1) <= kept)
        ++share;
    for (const auto& each : all_) {
        if (all <= kept) break;
        if (!is_learned(each)) continue;
        std::size_t& left = names[owner(*each)];
        if (left <= share) continue;
        each->defined = false;
        --left;
        --all;
    }
    fill();
    collect();
}

void procedure_table::forget_learned() noexcept {
    for (const auto& each : all_) {
        if (each->learned) each->defined = false;
    }
    fill();
    collect();
}

bool procedure_table::remove(std::string_view name, std::uint16_t provider) noexcept {
    const auto known = std::find_if(all_.begin(), all_.end(), [&](const auto& each) {
        return each->defined && !each->learned && each->name == name &&
               each->options.provider == provider;
    });
    if (known == all_.end()) return false;
    (*known)->defined = false;
    fill();  // First, so that it cannot find what is freed next.
    collect();
    return true;
}

namespace {

// Ids are spread over all 64 bits; providers are few and small.
std::uint64_t key_of(std::uint64_t id, std::uint16_t provider) noexcept {
    return id + provider * 0x9E3779B97F4A7C15u;
}

}  // namespace

served_procedure* procedure_table::find(std::uint64_t id, std::uint16_t provider) const noexcept {
    if (table_.empty()) return nullptr;
    const std::uint64_t key = key_of(id, provider);
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = key & mask; table_[at].what != nullptr; at = (at + 1) & mask) {
        served_procedure* const what = table_[at].what;
        if (table_[at].key == key && what->id == id && what->options.provider == provider) {
            return what;
        }
    }
    return nullptr;
}

served_procedure* procedure_table::find(std::string_view name) const noexcept {
    const auto at = std::find_if(all_.begin(), all_.end(), [name](const auto& each) {
        return each->defined && !each->learned && each->name == name;
    });
    return at == all_.end() ? nullptr : at->get();
}

served_procedure* procedure_table::find(std::string_view name,
                                        std::uint16_t provider) const noexcept {
    const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& each) {
        return each->defined && !each->learned && each->name == name &&
               each->options.provider == provider;
    });
    return at == all_.end() ? nullptr : at->get();
}

std::string procedure_table::providers_of(std::uint64_t id) const {
    std::string all;
    for (const auto& each : all_) {
        if (!each->defined || each->learned || each->id != id) continue;
        all += all.empty() ? "" : ", ";
        all += std::to_string(each->options.provider);
    }
    return all;
}

void procedure_table::release(served_procedure& used) noexcept {
    --used.running;
    if (!used.defined && used.running == 0) collect();
}

void procedure_table::fill() noexcept {
    last_ = nullptr;
    std::fill(table_.begin(), table_.end(), entry{});
    const std::size_t mask = table_.size() - 1;
    for (const auto& each : all_) {
        if (!each->defined) continue;
        const std::uint64_t key = key_of(each->id, each->options.provider);
        std::size_t at = key & mask;
        while (table_[at].what != nullptr)
            at = (at + 1) & mask;
        table_[at] = {key, each.get()};
    }
}

void procedure_table::collect() noexcept {
    // One by one, each out of the vector first: what a handler owns may undefine others.
    const auto is_gone = [](const auto& each) { return !each->defined && each->running == 0; };
    std::stable_partition(all_.begin(), all_.end(),
                          [&](const auto& each) { return !is_gone(each); });
    while (!all_.empty() && is_gone(all_.back())) {
        const std::unique_ptr<served_procedure> gone = std::move(all_.back());
        all_.pop_back();
    }
}

}  // namespace amalgam::detail

#include "rpc/statistics/statistics_table.hpp"

#include <functional>
#include <map>
#include <new>
#include <tuple>
#include <utility>

#include <amalgam/core/hash.hpp>

namespace amalgam::detail {

namespace {

std::uint64_t nanoseconds(clock::duration time) noexcept {
    const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    return count > 0 ? static_cast<std::uint64_t>(count) : 0;
}

/// A row as it is read.
struct read_row {
    std::uint64_t failures = 0;
    value_sums took;
    value_sums before;
};

/// The row of the others comes last.
struct by_path {
    bool operator()(const call_path& a, const call_path& b) const noexcept {
        const auto order = [](const call_path& each) {
            return std::tuple(each.peer.empty(), std::string_view(each.procedure), each.provider,
                              std::string_view(each.peer), std::string_view(each.parent),
                              each.parent_provider);
        };
        return order(a) < order(b);
    }
};

std::map<call_path, read_row, by_path> read_rows(const counted_rows& from) {
    std::map<call_path, read_row, by_path> all;
    from.for_each([&](const counted_row& each) {
        read_row& to = all[each.path];
        to.failures += each.failures.load(std::memory_order_relaxed);
        to.took.add(each.took.read());
        to.before.add(each.before.read());
    });
    std::erase_if(all, [](const auto& each) { return each.second.took.num == 0; });
    return all;
}

}  // namespace

void counted_row::add_call(status how, clock::duration whole) noexcept {
    if (!how.ok()) failures.fetch_add(1, std::memory_order_relaxed);
    took.add(nanoseconds(whole));
}

void counted_row::add_handler(status how, clock::duration waited, clock::duration ran) noexcept {
    before.add(nanoseconds(waited));
    add_call(how, ran);
}

void counted_row::add_transfer(status how, std::uint64_t bytes, clock::duration whole) noexcept {
    before.add(bytes);
    add_call(how, whole);
}

std::size_t counted_rows::hash::operator()(const row_key& key) const noexcept {
    const std::hash<std::string_view> of_text;
    std::uint64_t all = of_text(key.procedure);
    all = mix(all ^ (std::uint64_t{key.provider} << 16 | key.parent.provider));
    all = mix(all ^ std::hash<peer>{}(key.who));
    return static_cast<std::size_t>(mix(all ^ of_text(key.parent.procedure)));
}

counted_row& counted_rows::of(const row_key& key, peer_addresses& addresses) noexcept {
    const auto found = rows_.find(key);
    if (found != rows_.end()) return *found->second;
    if (rows_.size() >= most_) return others_;
    try {
        return add(key, addresses);
    } catch (const std::bad_alloc&) {
        return others_;
    }
}

counted_row& counted_rows::add(const row_key& key, peer_addresses& addresses) {
    auto fresh = std::make_unique<counted_row>();
    counted_row& row = *fresh;
    row.path = {std::string(key.procedure), key.provider, addresses.text_of(key.who),
                std::string(key.parent.procedure), key.parent.provider};
    rows_.emplace(
        row_key{row.path.procedure, key.provider, key.who, {row.path.parent, key.parent.provider}},
        std::move(fresh));
    return row;
}

void statistics_table::called(const row_key& key, status how, clock::duration whole) noexcept {
    if (!closed_) calls_.of(key, addresses_).add_call(how, whole);
}

void statistics_table::transferred(const row_key& key, status how, std::uint64_t bytes,
                                   clock::duration whole) noexcept {
    if (!closed_) transfers_.of(key, addresses_).add_transfer(how, bytes, whole);
}

engine_statistics statistics_table::read() const {
    engine_statistics all;
    for (const auto& [path, row] : read_rows(calls_))
        all.calls.push_back({path, row.failures, row.took.told()});
    for (const auto& [path, row] : read_rows(handlers_))
        all.handlers.push_back({path, row.failures, row.before.told(), row.took.told()});
    for (const auto& [path, row] : read_rows(transfers_))
        all.transfers.push_back({path, row.failures, row.before.told(), row.took.told()});
    return all;
}

}  // namespace amalgam::detail

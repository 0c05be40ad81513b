#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/rpc/call_statistics.hpp>

namespace amalgam {

namespace {

constexpr std::size_t max_counted = 4096;
constexpr std::string_view all_others = "…";

using counted_name = std::pair<std::string, std::uint16_t>;
/// Finds without making a string.
struct by_name {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const noexcept {
        const int order = std::string_view(a.first).compare(b.first);
        return order < 0 || (order == 0 && a.second < b.second);
    }
};
using table = std::map<counted_name, procedure_statistics, by_name>;

procedure_statistics& entry_of(table& in, std::string_view name, std::uint16_t provider) {
    const auto found = in.find(std::pair(name, provider));
    if (found != in.end()) return found->second;
    if (in.size() >= max_counted) {
        name = all_others;
        provider = 0;
    }
    procedure_statistics& fresh = in[counted_name(name, provider)];
    fresh.name = name;
    fresh.provider = provider;
    return fresh;
}

void count(procedure_statistics& to, status how, clock::duration took) noexcept {
    to.min = to.calls == 0 ? took : std::min(to.min, took);
    to.max = std::max(to.max, took);
    to.total += took;
    ++to.calls;
    if (!how.ok()) ++to.failures;
}

std::vector<procedure_statistics> list_of(const table& from) {
    std::vector<procedure_statistics> all;
    all.reserve(from.size());
    for (const auto& [name, each] : from)
        all.push_back(each);
    return all;
}

nlohmann::ordered_json json_of(const table& from, bool with_provider) {
    const auto ns = [](clock::duration time) {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    };
    auto all = nlohmann::ordered_json::array();
    for (const auto& [name, each] : from) {
        nlohmann::ordered_json one{{"name", each.name}};
        if (with_provider) one["provider"] = each.provider;
        one["calls"] = each.calls;
        one["failures"] = each.failures;
        one["ns"] = {{"min", ns(each.min)},
                     {"mean", ns(each.mean())},
                     {"max", ns(each.max)},
                     {"total", ns(each.total)}};
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace

struct call_statistics::tables {
    std::mutex lock;
    table called;
    table served;
};

call_statistics::call_statistics() : all_(std::make_unique<tables>()) {}
call_statistics::~call_statistics() = default;

std::vector<procedure_statistics> call_statistics::called_so_far() const {
    const std::lock_guard hold(all_->lock);
    return list_of(all_->called);
}

std::vector<procedure_statistics> call_statistics::served_so_far() const {
    const std::lock_guard hold(all_->lock);
    return list_of(all_->served);
}

std::string call_statistics::to_json() const {
    const std::lock_guard hold(all_->lock);
    const nlohmann::ordered_json both{{"called", json_of(all_->called, false)},
                                      {"served", json_of(all_->served, true)}};
    // Names are any bytes.
    return both.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void call_statistics::clear() {
    const std::lock_guard hold(all_->lock);
    all_->called.clear();
    all_->served.clear();
}

void call_statistics::called(std::string_view procedure, const peer&, status how,
                             clock::duration took) {
    const std::lock_guard hold(all_->lock);
    count(entry_of(all_->called, procedure, 0), how, took);
}

void call_statistics::served(call_context& call, status how, clock::duration took) {
    const std::lock_guard hold(all_->lock);
    count(entry_of(all_->served, call.procedure(), call.provider()), how, took);
}

}  // namespace amalgam

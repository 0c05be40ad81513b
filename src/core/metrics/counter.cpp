#include <map>
#include <mutex>

#include <fmt/format.h>

#include <amalgam/core/counter.hpp>
#include <amalgam/core/detail/json_text.hpp>

namespace amalgam {

struct counter_set::state {
    struct exposed {
        std::string name;
        std::function<std::uint64_t()> read;
    };

    mutable std::mutex lock;
    std::map<std::string, counter, std::less<>> counters;  // Nodes never move.
    std::map<std::uint64_t, exposed> watched;
    std::uint64_t last_id = 0;
};

counter_set::counter_set() : state_(std::make_shared<state>()) {}
counter_set::~counter_set() = default;

counter& counter_set::get(std::string_view name) {
    std::lock_guard hold(state_->lock);
    auto at = state_->counters.find(name);
    if (at == state_->counters.end()) at = state_->counters.try_emplace(std::string(name)).first;
    return at->second;
}

counter_set::watch counter_set::expose(std::string name, std::function<std::uint64_t()> read) {
    std::lock_guard hold(state_->lock);
    std::uint64_t id = ++state_->last_id;
    state_->watched.emplace(id, state::exposed{std::move(name), std::move(read)});
    return watch(state_, id);
}

std::vector<counter_value> counter_set::snapshot() const {
    std::map<std::string, std::uint64_t> sum;
    {
        std::lock_guard hold(state_->lock);
        for (const auto& [name, number] : state_->counters)
            sum[name] += number.value();
        for (const auto& [id, one] : state_->watched)
            sum[one.name] += one.read();
    }
    std::vector<counter_value> out;
    out.reserve(sum.size());
    for (const auto& [name, value] : sum)
        out.push_back({name, value});
    return out;
}

counter_set::watch& counter_set::watch::operator=(watch&& other) noexcept {
    reset();
    set_ = std::move(other.set_);
    id_ = other.id_;
    return *this;
}

void counter_set::watch::reset() noexcept {
    auto set = std::exchange(set_, {}).lock();
    if (!set) return;
    decltype(set->watched)::node_type gone;  // Freed after unlocking: captures may call the set.
    std::lock_guard hold(set->lock);
    gone = set->watched.extract(id_);
}

std::string to_text(const std::vector<counter_value>& values) {
    std::string out;
    for (const auto& [name, value] : values)
        out += fmt::format("{} {}\n", name, value);
    return out;
}

std::string to_json(const std::vector<counter_value>& values) {
    std::string out = "{";
    for (const auto& [name, value] : values) {
        if (out.size() > 1) out += ", ";
        detail::append_json_string(out, name);
        out += fmt::format(": {}", value);
    }
    return out + '}';
}

}  // namespace amalgam

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/metrics.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam {

namespace {

bool is_name(std::string_view text, bool colons) {
    const auto fits = [&](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || (colons && c == ':');
    };
    return !text.empty() && !(text[0] >= '0' && text[0] <= '9') &&
           std::all_of(text.begin(), text.end(), fits);
}

void check(const metric_description& what) {
    const std::string shown = detail::printable_name(what.name);
    if (!is_name(what.name, true)) {
        throw error(errc::invalid,
                    fmt::format("\"{}\" is not a metric's name, expected letters, digits and "
                                "underscores; example: amalgam_rpc_calls_total",
                                shown));
    }
    if (what.kind == metric_kind::counter && !what.name.ends_with("_total")) {
        throw error(errc::invalid,
                    fmt::format("the counter \"{}\" does not end in \"_total\"; example: {}_total",
                                shown, shown));
    }
    if (what.kind == metric_kind::latency && !what.name.ends_with("_seconds")) {
        throw error(errc::invalid, fmt::format("the latency histogram \"{}\" does not end in "
                                               "\"_seconds\"; example: {}_seconds",
                                               shown, shown));
    }
}

void check(const std::vector<metric_label>& sorted) {
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        const std::string& name = sorted[i].name;
        if (!is_name(name, false) || name.starts_with("__")) {
            throw error(errc::invalid,
                        fmt::format("\"{}\" is not a label's name, expected letters, digits and "
                                    "underscores, without two of these in front; example: peer",
                                    detail::printable_name(name)));
        }
        if (i > 0 && sorted[i - 1].name == name) {
            throw error(errc::invalid, fmt::format("the label \"{}\" is given twice, expected each "
                                                   "once; example: {{\"peer\", \"node7\"}}",
                                                   name));
        }
    }
}

}  // namespace

const metric_family* metric_snapshot::find(std::string_view name) const noexcept {
    for (const metric_family& each : families)
        if (each.what.name == name) return &each;
    return nullptr;
}

double metric_snapshot::value(std::string_view name, std::vector<metric_label> labels) const {
    std::sort(labels.begin(), labels.end());
    const metric_family* const all = find(name);
    if (all == nullptr) return 0;
    for (const metric_sample& each : all->samples)
        if (each.labels == labels) return each.value;
    return 0;
}

struct metric_writer::state {
    struct family {
        metric_description what;
        std::map<std::vector<metric_label>, metric_sample> samples;
    };

    metric_limits limits;
    std::map<std::string, family, std::less<>> families;
    std::size_t samples = 0;
    std::uint64_t left_out = 0;
    std::uint64_t failed = 0;
};

metric_writer::metric_writer(metric_limits limits) : state_(std::make_unique<state>()) {
    state_->limits = limits;
}
metric_writer::~metric_writer() = default;

metric_sample* metric_writer::sample(const metric_description& what,
                                     std::vector<metric_label> labels) {
    std::sort(labels.begin(), labels.end());
    check(labels);
    auto at = state_->families.find(what.name);
    if (at == state_->families.end()) {
        check(what);
        at = state_->families.emplace(what.name, state::family{what, {}}).first;
    } else if (at->second.what.kind != what.kind) {
        throw error(errc::invalid,
                    fmt::format("\"{}\" is a metric of another kind already; give this one a name "
                                "of its own",
                                what.name));
    }
    auto& samples = at->second.samples;
    const auto known = samples.find(labels);
    if (known != samples.end()) return &known->second;
    if (samples.size() >= state_->limits.label_sets || state_->samples >= state_->limits.samples) {
        ++state_->left_out;
        return nullptr;
    }
    metric_sample& fresh = samples[labels];
    ++state_->samples;
    fresh.labels = std::move(labels);
    return &fresh;
}

void metric_writer::add(const metric_description& what, std::vector<metric_label> labels,
                        double value) {
    if (metric_sample* const to = sample(what, std::move(labels))) to->value += value;
}

void metric_writer::add(const metric_description& what, std::vector<metric_label> labels,
                        const latency_distribution& latency) {
    if (metric_sample* const to = sample(what, std::move(labels))) to->latency.merge(latency);
}

void metric_writer::add_failure() noexcept {
    ++state_->failed;
}

metric_snapshot metric_writer::take() {
    metric_snapshot all;
    all.left_out = state_->left_out;
    all.failed = state_->failed;
    for (auto& [name, from] : state_->families) {
        metric_family& family = all.families.emplace_back();
        family.what = std::move(from.what);
        for (auto& [labels, one] : from.samples)
            family.samples.push_back(std::move(one));
    }
    auto fresh = std::make_unique<state>();
    fresh->limits = state_->limits;
    state_ = std::move(fresh);
    return all;
}

struct metric_registry::state {
    explicit state(metric_limits most) : limits(most) {}

    /// In a child of fork() another thread of the parent may hold the lock, forever.
    bool of_parent() const noexcept { return forked.is_in_child(); }

    registration add(const std::shared_ptr<state>& self,
                     std::function<void(metric_writer&)> write) {
        if (of_parent()) return {};
        const std::lock_guard hold(lock);
        const std::uint64_t id = ++last_id;
        all.emplace(id, std::move(write));
        return registration(self, id);
    }

    const metric_limits limits;
    const detail::fork_check forked;
    mutable std::mutex lock;
    std::map<std::uint64_t, std::function<void(metric_writer&)>> all;
    std::uint64_t last_id = 0;
};

metric_registry::metric_registry(metric_limits limits) : state_(std::make_shared<state>(limits)) {}
metric_registry::~metric_registry() = default;

metric_registry::registration metric_registry::add(metric_description what,
                                                   std::vector<metric_label> labels,
                                                   std::function<double()> read) {
    if (!read) {
        throw error(errc::invalid, fmt::format("the metric \"{}\" was given no function to read it",
                                               detail::printable_name(what.name)));
    }
    metric_writer(state_->limits).add(what, labels, 0);  // Whether it could.
    return state_->add(
        state_, [what = std::move(what), labels = std::move(labels),
                 read = std::move(read)](metric_writer& into) { into.add(what, labels, read()); });
}

metric_registry::registration metric_registry::add(metric_description what,
                                                   std::vector<metric_label> labels,
                                                   const latency_histogram& recorded) {
    metric_writer(state_->limits).add(what, labels, 0);
    return state_->add(
        state_, [what = std::move(what), labels = std::move(labels),
                 &recorded](metric_writer& into) { into.add(what, labels, recorded.snapshot()); });
}

metric_registry::registration metric_registry::add_group(
    std::function<void(metric_writer&)> write) {
    if (!write) throw error(errc::invalid, "a group of metrics was given no function to write it");
    return state_->add(state_, std::move(write));
}

void metric_registry::write_to(metric_writer& into) const {
    if (state_->of_parent()) return;
    const std::lock_guard hold(state_->lock);
    for (const auto& [id, write] : state_->all) {
        try {
            write(into);
        } catch (...) {
            into.add_failure();
        }
    }
}

metric_snapshot metric_registry::snapshot() const {
    metric_writer all(state_->limits);
    write_to(all);
    return all.take();
}

metric_registry::registration& metric_registry::registration::operator=(
    registration&& other) noexcept {
    reset();
    of_ = std::move(other.of_);
    id_ = other.id_;
    return *this;
}

void metric_registry::registration::reset() noexcept {
    const auto of = std::exchange(of_, {}).lock();
    if (!of || of->of_parent()) return;
    decltype(of->all)::node_type gone;  // Freed after unlocking: captures may use the registry.
    const std::lock_guard hold(of->lock);
    gone = of->all.extract(id_);
}

}  // namespace amalgam

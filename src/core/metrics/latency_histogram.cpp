#include <algorithm>
#include <cmath>
#include <numeric>

#include <amalgam/core/latency_histogram.hpp>

namespace amalgam {

std::uint64_t latency_distribution::count() const noexcept {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::uint64_t latency_distribution::count_below(unsigned bits) const noexcept {
    const std::size_t end = bits >= latency_buckets::max_bits
                                ? counts.size()
                                : latency_buckets::index_of(std::uint64_t{1} << bits);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < std::min(end, counts.size()); ++i)
        sum += counts[i];
    return sum;
}

clock::duration latency_distribution::mean() const noexcept {
    const std::uint64_t all = count();
    if (all == 0) return {};
    return std::chrono::nanoseconds(static_cast<std::int64_t>(total_ns / all));
}

clock::duration latency_distribution::quantile(double q) const noexcept {
    const std::uint64_t all = count();
    if (all == 0) return {};
    const double wanted = std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(all));
    const auto rank = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(wanted));
    std::uint64_t seen = 0;
    std::size_t at = 0;
    for (; at < counts.size(); ++at) {
        seen += counts[at];
        if (seen >= rank) break;
    }
    at = std::min(at, latency_buckets::count - 1);
    const std::uint64_t first = latency_buckets::first_of(at);
    const std::uint64_t last = latency_buckets::first_of(at + 1) - 1;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(first + (last - first) / 2));
}

void latency_distribution::merge(const latency_distribution& other) {
    // Those of a peer may be any number.
    const std::size_t theirs = std::min(other.counts.size(), latency_buckets::count);
    if (counts.size() < theirs) counts.resize(theirs);
    for (std::size_t i = 0; i < theirs; ++i)
        counts[i] += other.counts[i];
    total_ns += other.total_ns;
}

latency_distribution latency_histogram::snapshot() const {
    latency_distribution now;
    now.total_ns = total_ns_.load(std::memory_order_relaxed);
    std::size_t end = latency_buckets::count;
    while (end > 0 && counts_[end - 1].load(std::memory_order_relaxed) == 0)
        --end;
    now.counts.reserve(end);
    for (std::size_t i = 0; i < end; ++i)
        now.counts.push_back(counts_[i].load(std::memory_order_relaxed));
    return now;
}

}  // namespace amalgam

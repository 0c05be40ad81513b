#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace amalgam {

/// The seeds of a randomized test, one run each:
///
///     for (const std::uint64_t seed : seeded_runs(20)) { ... }
///
/// By default the seeds are 1 to `runs`, so that CI is reproducible. AMALGAM_SEED=n runs only that
/// seed; AMALGAM_SOAK_SECONDS=n runs fresh seeds for that long (`make soak`). The loop ends at the
/// first run with a failed expectation, and prints its seed.
class seeded_runs {
public:
    explicit seeded_runs(std::uint64_t runs) : last_(runs) {
        if (const char* one = std::getenv("AMALGAM_SEED")) {
            first_ = last_ = std::strtoull(one, nullptr, 10);
        } else if (const char* seconds = std::getenv("AMALGAM_SOAK_SECONDS")) {
            first_ = (std::uint64_t{std::random_device{}()} << 16) + 1;
            last_ = ~std::uint64_t{};
            until_ = clock::now() + std::chrono::seconds(std::strtol(seconds, nullptr, 10));
        }
    }

    class iterator {
    public:
        std::uint64_t operator*() const noexcept { return seed_; }
        iterator& operator++() {
            if (::testing::Test::HasFailure()) {
                std::fprintf(stderr, "failed with AMALGAM_SEED=%llu\n",
                             static_cast<unsigned long long>(seed_));
                ended_ = true;
            }
            ended_ = ended_ || seed_ == of_->last_ || clock::now() >= of_->until_;
            ++seed_;
            if (!ended_) of_->announce(seed_);
            return *this;
        }
        bool operator!=(const iterator& other) const noexcept { return ended_ != other.ended_; }

    private:
        friend seeded_runs;
        iterator(const seeded_runs& of, std::uint64_t seed, bool ended)
            : of_(&of), seed_(seed), ended_(ended) {}

        const seeded_runs* of_;
        std::uint64_t seed_;
        bool ended_;
    };

    iterator begin() const {
        announce(first_);
        return {*this, first_, false};
    }
    iterator end() const { return {*this, last_, true}; }

private:
    using clock = std::chrono::steady_clock;

    /// In a soak, a crash or a hang must leave its seed behind, too.
    void announce(std::uint64_t seed) const {
        if (until_ != clock::time_point::max()) {
            std::fprintf(stderr, "AMALGAM_SEED=%llu\n", static_cast<unsigned long long>(seed));
        }
    }

    std::uint64_t first_ = 1;
    std::uint64_t last_;
    clock::time_point until_ = clock::time_point::max();
};

}  // namespace amalgam

#pragma once

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace amalgam::bench {

/// A symmetric matrix in square tiles, to be factored into L times its transpose, in place. The
/// tiles above the diagonal are not used.
class tiled_matrix {
public:
    static constexpr std::size_t tiles = 16;
    static constexpr std::size_t side = 48;  // A tile's update takes some 20 us.
    static constexpr std::size_t n = tiles * side;
    using tile = double*;

    tiled_matrix() : values_(n * n) { fill(); }
    /// Not from tasks: a matrix that is far from singular.
    void fill() {
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < n; ++j)
                at(i, j) = i == j ? static_cast<double>(n)
                                  : 1.0 / static_cast<double>(1 + (i > j ? i - j : j - i));
    }
    tile at_tile(std::size_t row, std::size_t column) {
        return &values_[(row * tiles + column) * side * side];
    }
    /// Throws unless the first column and the last element are those of the factor.
    void check() {
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j)
            sum += at(n - 1, j) * at(n - 1, j);
        if (std::abs(sum - static_cast<double>(n)) > 1e-6 * static_cast<double>(n))
            throw std::runtime_error("the factor is wrong");
    }

    static void factor(tile a) {
        for (std::size_t k = 0; k < side; ++k) {
            const double root = a[k * side + k] = std::sqrt(a[k * side + k]);
            for (std::size_t i = k + 1; i < side; ++i)
                a[i * side + k] /= root;
            for (std::size_t i = k + 1; i < side; ++i)
                for (std::size_t j = k + 1; j <= i; ++j)
                    a[i * side + j] -= a[i * side + k] * a[j * side + k];
        }
        for (std::size_t i = 0; i < side; ++i)
            for (std::size_t j = i + 1; j < side; ++j)
                a[i * side + j] = 0;
    }
    /// The tile below `factored`.
    static void solve(const double* factored, tile a) {
        for (std::size_t i = 0; i < side; ++i) {
            for (std::size_t j = 0; j < side; ++j) {
                double sum = a[i * side + j];
                for (std::size_t k = 0; k < j; ++k)
                    sum -= a[i * side + k] * factored[j * side + k];
                a[i * side + j] = sum / factored[j * side + j];
            }
        }
    }
    static void update(const double* left, const double* right, tile a) {
        for (std::size_t i = 0; i < side; ++i) {
            for (std::size_t j = 0; j < side; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < side; ++k)
                    sum += left[i * side + k] * right[j * side + k];
                a[i * side + j] -= sum;
            }
        }
    }

    /// Calls `factor(tile)`, `solve(factored, tile)` and `update(left, right, tile)` in the order
    /// of the sequential algorithm.
    template <typename Factor, typename Solve, typename Update>
    void for_each_step(Factor factor_one, Solve solve_one, Update update_one) {
        for (std::size_t k = 0; k < tiles; ++k) {
            factor_one(at_tile(k, k));
            for (std::size_t i = k + 1; i < tiles; ++i)
                solve_one(at_tile(k, k), at_tile(i, k));
            for (std::size_t i = k + 1; i < tiles; ++i)
                for (std::size_t j = k + 1; j <= i; ++j)
                    update_one(at_tile(i, k), at_tile(j, k), at_tile(i, j));
        }
    }

private:
    double& at(std::size_t i, std::size_t j) {
        return at_tile(i / side, j / side)[i % side * side + j % side];
    }
    std::vector<double> values_;
};

/// What the loops of the benchmarks compute: cheap, and in the caches.
struct cheap_loop {
    static constexpr long iterations = 10'000'000;
    std::vector<unsigned char> values = std::vector<unsigned char>(iterations);
    void step(long i) { values[static_cast<std::size_t>(i)] = static_cast<unsigned char>(i * 7); }
    void check() {
        for (long i = 0; i < iterations; i += 997) {
            if (values[static_cast<std::size_t>(i)] != static_cast<unsigned char>(i * 7))
                throw std::runtime_error("the loop has lost iterations");
        }
    }
};

}  // namespace amalgam::bench

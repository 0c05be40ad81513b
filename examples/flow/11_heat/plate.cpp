#include "plate.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <amalgam/core.hpp>

namespace heat {
namespace {

constexpr double hottest = 100;

/// The multiplication comes last: so no compiler can fuse it with an addition in one place and not
/// in another, which would make bands differ.
void relax_row(const double* above, const double* row, const double* below, double* into,
               std::size_t columns) {
    into[0] = row[0];
    for (std::size_t c = 1; c + 1 < columns; ++c)
        into[c] = 0.25 * ((above[c] + below[c]) + (row[c - 1] + row[c + 1]));
    into[columns - 1] = row[columns - 1];
}

}  // namespace

std::vector<double> temperatures_at_start(const plate& of, std::size_t first, std::size_t rows) {
    std::vector<double> values(rows * of.columns, 0.0);
    const auto middle_row = static_cast<double>(of.rows) / 2;
    const auto middle_column = static_cast<double>(of.columns) / 2;
    const double radius = std::min(middle_row, middle_column) / 2;
    for (std::size_t r = 0; r < rows; ++r) {
        const double down = static_cast<double>(first + r) - middle_row;
        for (std::size_t c = 0; c < of.columns; ++c) {
            const double right = static_cast<double>(c) - middle_column;
            const bool in_disc = down * down + right * right < radius * radius;
            if (first + r == 0 || in_disc) values[r * of.columns + c] = hottest;
        }
    }
    return values;
}

band::band(std::vector<double> temperatures, std::size_t columns)
    : columns_(columns),
      rows_(temperatures.size() / columns),
      now_(std::move(temperatures)),
      next_(now_.size()) {}

void band::step(const double* above, const double* below) {
    for (std::size_t r = 0; r < rows_; ++r) {
        const double* row = now_.data() + r * columns_;
        const double* before = r > 0 ? row - columns_ : above;
        const double* behind = r + 1 < rows_ ? row + columns_ : below;
        double* into = next_.data() + r * columns_;
        if (before == nullptr || behind == nullptr)
            std::copy(row, row + columns_, into);
        else
            relax_row(before, row, behind, into, columns_);
    }
    now_.swap(next_);
}

std::vector<double> band::first_row() const {
    return {now_.begin(), now_.begin() + static_cast<std::ptrdiff_t>(columns_)};
}

std::vector<double> band::last_row() const {
    return {now_.end() - static_cast<std::ptrdiff_t>(columns_), now_.end()};
}

std::uint64_t checksum(const std::vector<double>& temperatures) {
    return amalgam::fnv1a(bytes_of(temperatures));
}

std::string picture_of(const plate& what, const std::vector<double>& temperatures) {
    std::string bytes =
        "P5\n" + std::to_string(what.columns) + " " + std::to_string(what.rows) + "\n255\n";
    for (const double value : temperatures)
        bytes += static_cast<char>(std::lround(value * 255 / hottest));
    return bytes;
}

std::string_view bytes_of(const std::vector<double>& temperatures) {
    return {reinterpret_cast<const char*>(temperatures.data()),
            temperatures.size() * sizeof(double)};
}

}  // namespace heat

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heat {

/// A metal plate as a grid of temperatures, row by row. Its edges are constant.
struct plate {
    std::size_t rows = 0;
    std::size_t columns = 0;
};

/// The temperatures, from 0 to 100, of the rows [first, first + rows) before the first step: the
/// upper edge is hot, and so is a disc in the middle.
std::vector<double> temperatures_at_start(const plate& of, std::size_t first, std::size_t rows);

/// Adjacent rows of a plate, and how heat spreads in them.
class band {
public:
    /// `temperatures` of at least one row.
    band(std::vector<double> temperatures, std::size_t columns);

    /// One step of Jacobi's method: each point becomes the mean of its four neighbors. `above` and
    /// `below` are the rows next to the band; null at an edge of the plate. The result is the same
    /// however the plate is cut into bands, to the last bit.
    void step(const double* above, const double* below);

    std::vector<double> first_row() const;
    std::vector<double> last_row() const;
    const std::vector<double>& temperatures() const { return now_; }

private:
    std::size_t columns_;
    std::size_t rows_;
    std::vector<double> now_;
    std::vector<double> next_;
};

/// A number that changes with any bit of the temperatures.
std::uint64_t checksum(const std::vector<double>& temperatures);

/// A picture (PGM) of the temperatures; white is hot.
std::string picture_of(const plate& what, const std::vector<double>& temperatures);
/// The temperatures as bytes, row by row, in this machine's format of double.
std::string_view bytes_of(const std::vector<double>& temperatures);

}  // namespace heat

// Counts the solutions of a Sudoku: a search whose branches differ greatly in size. Every branch
// near the root is a ULT, and idle streams steal from the others.
//   tree_search PUZZLE [STREAMS]      PUZZLE: 81 characters, row by row; . or 0 for a free field
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <amalgam/tasks.hpp>

namespace {

/// A partly filled grid. Bits 1 to 9 are the digits not yet used in a row, column or box.
class grid {
public:
    void set(std::size_t field, unsigned digit) {
        digit_[field] = static_cast<unsigned char>(digit);
        const unsigned bit = 1u << digit;
        rows_[field / 9] |= bit;
        columns_[field % 9] |= bit;
        boxes_[box_of(field)] |= bit;
    }
    unsigned possible(std::size_t field) const {
        return 0x3feu & ~(rows_[field / 9] | columns_[field % 9] | boxes_[box_of(field)]);
    }
    /// The free field with the fewest digits left; empty if all are set.
    std::optional<std::size_t> hardest() const {
        std::optional<std::size_t> best;
        int fewest = 10;
        for (std::size_t field = 0; field < 81; ++field) {
            if (digit_[field] != 0) continue;
            const int left = std::popcount(possible(field));
            if (left < fewest) best = field, fewest = left;
        }
        return best;
    }

private:
    static std::size_t box_of(std::size_t field) { return field / 27 * 3 + field % 9 / 3; }
    std::array<unsigned char, 81> digit_{};
    std::array<unsigned, 9> rows_{}, columns_{}, boxes_{};
};

constexpr int forking_depth = 8;  // deeper branches are too small for a ULT

void search(const grid& here, int depth, std::atomic<long>& solutions) {
    const auto field = here.hardest();
    if (!field) {
        ++solutions;
        return;
    }
    std::vector<am::ult> branches;
    for (unsigned left = here.possible(*field); left != 0; left &= left - 1) {
        grid next = here;
        next.set(*field, static_cast<unsigned>(std::countr_zero(left)));
        if (depth < forking_depth) {
            branches.push_back(
                am::spawn([next, depth, &solutions] { search(next, depth + 1, solutions); }));
        } else {
            search(next, depth + 1, solutions);
        }
    }
    for (am::ult& each : branches)
        each.join();  // parks; the stream goes on with another branch
}

std::optional<grid> parse(std::string_view puzzle) {
    if (puzzle.size() != 81) return std::nullopt;
    grid start;
    for (std::size_t field = 0; field < 81; ++field) {
        const char c = puzzle[field];
        if (c == '.' || c == '0') continue;
        if (c < '1' || c > '9') return std::nullopt;
        const auto digit = static_cast<unsigned>(c - '0');
        if ((start.possible(field) >> digit & 1) == 0) return std::nullopt;
        start.set(field, digit);
    }
    return start;
}

}  // namespace

int main(int argc, char** argv) {
    const auto start = argc >= 2 ? parse(argv[1]) : std::nullopt;
    const long streams =
        argc >= 3 ? std::atol(argv[2]) : static_cast<long>(std::thread::hardware_concurrency());
    if (!start || streams < 1) {
        std::cerr << "tree_search needs a puzzle of 81 digits or dots, none twice in a row, column "
                     "or box, and a number of streams, as in: tree_search 53..7.... 2\n";
        return 2;
    }
    std::atomic<long> solutions = 0;
    am::work_stealing_team team(static_cast<std::size_t>(streams));
    am::spawn(team.main_pool(), [&] { search(*start, 0, solutions); }).join();
    std::cout << solutions << '\n';
}

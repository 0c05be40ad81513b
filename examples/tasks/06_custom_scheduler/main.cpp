// A custom scheduler: two kinds of work share a stream, and one gets three turns for each turn of
// the other. Prints the order of execution.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/tasks.hpp>

namespace {

/// Three units of the first pool, then one of the second; an empty pool loses its turn.
class three_to_one final : public am::scheduler {
public:
    three_to_one(am::pool& often, am::pool& seldom) : pools_{&often, &seldom} {}

    am::work_unit* next() noexcept override {
        const bool turn_of_seldom = turn_ == 3;
        turn_ = turn_of_seldom ? 0 : turn_ + 1;
        if (am::work_unit* const unit = pools_[turn_of_seldom ? 1 : 0]->pop()) return unit;
        return pools_[turn_of_seldom ? 0 : 1]->pop();
    }
    std::span<am::pool* const> pools() const noexcept override { return pools_; }

private:
    std::vector<am::pool*> pools_;
    int turn_ = 0;
};

}  // namespace

int main() {
    am::fifo_pool interactive, batch;
    std::string order;
    // Driven: it runs inside run_ready(), so the order is always the same.
    am::execution_stream stream(std::make_unique<three_to_one>(interactive, batch),
                                {.name = "shares", .driven = true});
    for (int i = 0; i < 6; ++i)
        am::post(interactive, [&] { order += 'i'; });
    for (int i = 0; i < 4; ++i)
        am::post(batch, [&] { order += 'b'; });
    stream.run_ready();
    std::cout << order << '\n';
}

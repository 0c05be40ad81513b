#include "tasks_queens.hpp"

#include <array>
#include <memory>
#include <vector>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/ult.hpp>

#include "perf/pair.hpp"
#include "queens.hpp"

namespace amalgam::bench {

namespace {

/// Streams, one per processor, that steal from each other.
class stealing_streams {
public:
    explicit stealing_streams(int many) : pools_(static_cast<std::size_t>(many)) {
        for (int i = 0; i < many; ++i) {
            std::vector<pool*> own_first;
            for (int k = 0; k < many; ++k)
                own_first.push_back(&pools_[static_cast<std::size_t>((i + k) % many)]);
            perf::pin_to_processor(i);
            streams_.push_back(std::make_unique<execution_stream>(
                std::make_unique<work_stealing_scheduler>(own_first)));
        }
    }
    pool& first() { return pools_.front(); }

private:
    std::vector<work_stealing_pool> pools_;
    std::vector<std::unique_ptr<execution_stream>> streams_;
};

int count(board here) {
    if (!here.forks()) return here.count();
    std::array<int, board::size> found{};
    std::array<ult, board::size> parts;
    std::size_t n = 0;
    for (std::uint32_t free = here.free_columns(); free != 0; free &= free - 1, ++n)
        parts[n] =
            spawn([next = here.with(free & -free), into = &found[n]] { *into = count(next); });
    int all = 0;
    for (std::size_t i = 0; i < n; ++i) {
        parts[i].join();
        all += found[i];
    }
    return all;
}

}  // namespace

double queens(int streams, const length& how_long) {
    stealing_streams all(streams);
    return how_long.nanoseconds_each(1, [&] {
        int found = 0;
        spawn(all.first(), [&] { found = count(board{}); }).join();
        check_queens(found);
    }) / 1e6;
}

}  // namespace amalgam::bench

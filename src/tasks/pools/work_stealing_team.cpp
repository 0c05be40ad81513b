#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

namespace amalgam {

work_stealing_team::work_stealing_team(std::size_t streams, execution_stream_options options) {
    if (streams == 0) {
        throw error(errc::invalid,
                    "a work-stealing team of 0 streams, expected at least 1; example: "
                    "std::thread::hardware_concurrency()");
    }
    std::vector<pool*> all;
    for (std::size_t i = 0; i < streams; ++i)
        all.push_back(&pools_.emplace_back());
    for (std::size_t i = 0; i < streams; ++i) {
        std::vector<pool*> mine_first = all;
        std::swap(mine_first[0], mine_first[i]);
        execution_stream_options own = options;
        own.name += "-" + std::to_string(i);
        if (own.cpu >= 0) own.cpu += static_cast<int>(i);
        if (own.rank >= 0) own.rank += static_cast<int>(i);
        streams_.emplace_back(std::make_unique<work_stealing_scheduler>(std::move(mine_first)),
                              std::move(own));
    }
}

work_stealing_team::~work_stealing_team() = default;

void work_stealing_team::stop() {
    for (auto& each : streams_)
        each.stop();
}

}  // namespace amalgam

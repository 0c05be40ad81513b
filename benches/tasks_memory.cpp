#include "tasks_memory.hpp"

#include <cstddef>
#include <vector>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

#include "perf/pair.hpp"
#include "questions.hpp"

namespace amalgam::bench {

double parked_memory() {
    execution_stream stream;
    std::size_t grown = 0;
    spawn(stream, [&] {
        event over;
        std::size_t arrived = 0;
        std::vector<ult> waiting(parked);
        struct releaser {
            event& what;
            ~releaser() { what.set(); }
        } const at_end{over};

        const std::size_t before = resident_bytes();
        for (ult& each : waiting) {
            each = spawn(stream, [&] {
                ++arrived;
                over.wait();
            });
        }
        while (arrived != parked)
            this_task::yield();
        grown = resident_bytes() - before;
    }).join();
    return static_cast<double>(grown) / (1 << 20);
}

double creation_growth() {
    constexpr std::size_t batch = 1000;
    constexpr std::size_t warm_up = 200;
    constexpr std::size_t batches = 10'000;
    execution_stream here;
    perf::pin_to_processor(1);
    execution_stream there;
    double grown = 0;
    spawn(here, [&] {
        std::vector<ult> made(batch);
        std::size_t before = 0;
        for (std::size_t done = 0; done < warm_up + batches; ++done) {
            if (done == warm_up) before = resident_bytes();
            for (ult& each : made)
                each = spawn(done % 2 == 0 ? here : there, [] {});
            for (ult& each : made)
                each.join();
        }
        grown = static_cast<double>(resident_bytes()) - static_cast<double>(before);
    }).join();
    return grown / 1024;
}

}  // namespace amalgam::bench

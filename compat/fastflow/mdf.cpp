#include <exception>

#include <ff/mdf.hpp>

namespace ff {

int ff_mdf::run_then_freeze(ssize_t workers) {
    if (workers > 0) workers_ = workers;
    int done = graph_.start(workers_);
    if (done == 0) {
        try {
            adds_tasks_();
        } catch (const std::exception& failure) {
            error("an exception out of the function that adds tasks: %s\n", failure.what());
            done = -1;
        } catch (...) {
            error("an exception out of the function that adds tasks\n");
            done = -1;
        }
    }
    return std::min(done, graph_.wait());
}

}  // namespace ff

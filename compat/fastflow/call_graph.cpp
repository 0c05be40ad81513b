#include <deque>
#include <exception>
#include <optional>

#include <ff/config.hpp>
#include <ff/task_internals.hpp>
#include <ff/utils.hpp>

#include <amalgam/tasks/task_graph.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

namespace ff::detail {

namespace {

/// FastFlow's tasks run on the stack of a thread. This is address space, not memory.
constexpr std::size_t stack_of_call = std::size_t{1} << 20;

using use = amalgam::task_graph::use;

}  // namespace

struct call_graph::state {
    struct call {
        std::vector<use> uses;
        std::function<void()> what;
    };
    explicit state(std::size_t most) : most_calls(most) {}

    void add(call&& one) { graph->add(one.uses, std::move(one.what)); }

    const std::size_t most_calls;
    std::optional<amalgam::work_stealing_team> team;
    std::optional<amalgam::task_graph> graph;
    bool running = false;
    unsigned long begun = 0;  // microseconds
    double took = 0;
    std::deque<call> kept;  // while it does not run
};

call_graph::call_graph(std::size_t most_calls)
    : state_(std::make_unique<state>(std::max<std::size_t>(most_calls, 1))) {}

call_graph::~call_graph() {
    if (state_->running) wait();
    state_->graph.reset();
}

int call_graph::start(ssize_t threads) {
    const auto streams = static_cast<std::size_t>(std::max<ssize_t>(threads, 1));
    state_->begun = getusec();
    try {
        if (!state_->team || !state_->graph || state_->team->size() != streams) {
            state_->graph.reset();
            state_->team.reset();
            state_->team.emplace(streams);
            state_->graph.emplace(*state_->team,
                                  amalgam::task_graph_options{.most_tasks = state_->most_calls,
                                                              .stack_bytes = stack_of_call});
        }
        state_->running = true;
        for (; !state_->kept.empty(); state_->kept.pop_front())
            state_->add(state::call(state_->kept.front()));  // It stays kept if that fails.
        return 0;
    } catch (const std::exception& failure) {
        if (!state_->graph) state_->running = false;
        error("tasks cannot run on %zu threads: %s\n", streams, failure.what());
        return -1;
    }
}

void call_graph::add(const std::vector<param_info>& uses, std::function<void()> call) {
    state::call one{{}, std::move(call)};
    for (const param_info& each : uses) {
        if (each.dir != VALUE)
            one.uses.push_back({reinterpret_cast<const void*>(each.tag), each.dir == OUTPUT});
    }
    if (state_->running) {
        state_->add(std::move(one));
    } else {
        state_->kept.push_back(std::move(one));
    }
}

int call_graph::wait() {
    if (!state_->running) return 0;
    state_->running = false;
    int result = -1;
    try {
        state_->graph->wait();
        result = 0;
    } catch (const std::exception& failure) {
        error("an exception out of a task: %s\n", failure.what());
    } catch (...) {
        error("an exception out of a task, which is no std::exception\n");
    }
    state_->took = static_cast<double>(getusec() - state_->begun) / 1000;
    return result;
}
double call_graph::took() const {
    return state_->took;
}

}  // namespace ff::detail

#include <exception>
#include <optional>

#include <ff/dc.hpp>
#include <ff/utils.hpp>

#include <amalgam/tasks/divide_and_conquer.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

namespace ff::detail {

namespace {

/// One problem, and the parts that it was split into. The result is written in its place; what
/// amalgam::divide_and_conquer() combines says nothing more.
struct problem {
    const void* operand;
    void* result;
    std::unique_ptr<split_problem> parts = {};
};
struct solved {};

bool is_base(const dc_functions& how, const problem& p) {
    return how.is_base(p.operand);
}
std::vector<problem> split(const dc_functions& how, problem& p) {
    p.parts = how.split(p.operand);
    std::vector<problem> smaller;
    for (std::size_t i = 0; i < p.parts->size(); ++i)
        smaller.push_back({p.parts->operand(i), p.parts->result(i)});
    return smaller;
}
solved solve(const dc_functions& how, problem& p) {
    how.solve(p.operand, p.result);
    return {};
}
solved combine(problem& p) {
    p.parts->combine(p.result);
    p.parts.reset();
    return {};
}

void solve_alone(const dc_functions& how, problem& whole) {
    if (is_base(how, whole)) {
        solve(how, whole);
        return;
    }
    for (problem& each : split(how, whole))
        solve_alone(how, each);
    combine(whole);
}

}  // namespace

struct dc_team::state {
    ssize_t threads = 1;
    std::optional<amalgam::work_stealing_team> others = {};
};

dc_team::dc_team(ssize_t threads) : state_(std::make_unique<state>()) {
    state_->threads = threads;
}
dc_team::~dc_team() = default;

void dc_team::resize(ssize_t threads) {
    if (threads == state_->threads) return;
    state_->threads = threads;
    state_->others.reset();
}

int dc_team::solve(const dc_functions& how, const void* operand, void* result) {
    try {
        problem whole{operand, result};
        if (state_->threads < 2) {
            solve_alone(how, whole);
            return 0;
        }
        if (!state_->others) state_->others.emplace(static_cast<std::size_t>(state_->threads - 1));
        amalgam::divide_and_conquer(
            *state_->others, std::move(whole), [&](const problem& p) { return is_base(how, p); },
            [&](problem& p) { return detail::solve(how, p); },
            [&](problem& p) { return split(how, p); },
            [](problem& p, std::vector<solved>&) { return combine(p); });
        return 0;
    } catch (const std::exception& failure) {
        error("an exception out of divide and conquer: %s\n", failure.what());
    } catch (...) {
        error("an exception out of divide and conquer, which is no std::exception\n");
    }
    return -1;
}

}  // namespace ff::detail

#include "flow/launcher/run_watch.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/status.hpp>

#include "flow/status/status_codec.hpp"

namespace amalgam::detail {

run_watch::run_watch(std::string command)
    : command_(std::move(command)), wanted_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!wanted_)
        throw error(status{errc::no_memory, errno}, "cannot create a descriptor for the launcher");
}

void run_watch::add(const std::string& label, const std::string& where) {
    const std::lock_guard hold(lock_);
    process& fresh = processes_.emplace_back();
    fresh.known.label = label;
    fresh.known.where = where;
    fresh.known.running = true;
}

void run_watch::start_over() {
    const std::lock_guard hold(lock_);
    processes_.clear();
    news_.notify_all();
}

void run_watch::is_ready(std::size_t which, const std::string& address, bool answers_queries) {
    const std::lock_guard hold(lock_);
    processes_[which].known.address = address;
    processes_[which].answers_queries = answers_queries;
}

void run_watch::has_ended(std::size_t which) {
    const std::lock_guard hold(lock_);
    processes_[which].known.running = false;
    news_.notify_all();
}

std::vector<run_watch::question> run_watch::take_asked() {
    std::uint64_t times = 0;
    (void)!::read(wanted_.get(), &times, sizeof times);
    const std::lock_guard hold(lock_);
    std::vector<question> ask;
    for (std::size_t i = 0; i < processes_.size(); ++i)
        if (!processes_[i].asked)
            if (const auto next = next_question(processes_[i], i, queries_)) ask.push_back(*next);
    return ask;
}

std::optional<run_watch::question> run_watch::next_question(process& of, std::size_t which,
                                                            std::uint64_t query) {
    if (!of.owes(query) && !of.wants_ults) return std::nullopt;
    of.asked = true;
    of.asked_in = query;
    return question{which, std::exchange(of.wants_ults, false)};
}

std::optional<run_watch::question> run_watch::take(std::size_t which,
                                                   const control_message& report) {
    if (!report.answers_queries) return std::nullopt;  // It comes by itself, at an interval.
    auto said = parse_run_report(report.report);
    auto metrics = decode_metrics(report.metrics);
    const std::lock_guard hold(lock_);
    auto& from = processes_[which];
    if (said) from.known.report = std::move(said).value();
    if (metrics) from.known.metrics = *std::move(metrics);
    if (!report.drawing.empty()) graph_ = report.drawing;
    if (auto ults = decode_ults(report.ults)) {
        from.ults = std::move(*ults);
        ++from.ults_answers;
    }
    from.asked = false;
    from.answered = from.asked_in;
    news_.notify_all();
    return next_question(from, which, queries_);
}

result<run_watch::process*> run_watch::find_running(std::string_view label) {
    for (process& each : processes_) {
        if (each.known.label != label) continue;
        if (!each.known.running)
            return {errc::closed, fmt::format("{} has ended, so it has no ULTs", label)};
        if (!each.answers_queries)
            return {errc::closed,
                    fmt::format("{} has not begun its part of the graph; ask later", label)};
        return &each;
    }
    return {errc::not_found, fmt::format("the run has no process \"{}\"", printable_name(label))};
}

void run_watch::wake_supervisor() const noexcept {
    const std::uint64_t one = 1;
    (void)!::write(wanted_.get(), &one, sizeof one);
}

result<void> run_watch::ask_ults(std::string_view label) {
    const std::lock_guard hold(lock_);
    const auto found = find_running(label);
    if (!found) return found.why();
    found.value()->wants_ults = true;
    wake_supervisor();
    return {};
}

result<ult_report> run_watch::query_ults(std::string_view label, std::chrono::milliseconds limit) {
    std::unique_lock hold(lock_);
    const auto found = find_running(label);
    if (!found) return found.why();
    // What was asked before this is as good only if it comes later.
    const std::uint64_t before = found.value()->ults_answers;
    found.value()->wants_ults = true;
    wake_supervisor();
    // Looked up again: meanwhile all processes may have been started again.
    const auto now = [&]() -> process* {
        const auto again = find_running(label);
        return again ? again.value() : nullptr;
    };
    const auto has_answered = [&](const process* of) {
        return of != nullptr && of->ults_answers != before;
    };
    news_.wait_for(hold, limit, [&] { return now() == nullptr || has_answered(now()); });
    process* const of = now();
    if (has_answered(of)) return of->ults;
    if (of == nullptr) return {errc::closed, fmt::format("{} has ended", label)};
    return {errc::timed_out,
            fmt::format("{} does not answer: it is stopped, or computes without a wait", label)};
}

bool run_watch::all_have_answered(std::uint64_t query) const noexcept {
    return std::none_of(processes_.begin(), processes_.end(),
                        [query](const process& each) { return each.owes(query); });
}

run_status run_watch::query(std::chrono::milliseconds limit) {
    std::unique_lock hold(lock_);
    const std::uint64_t own = ++queries_;
    wake_supervisor();
    news_.wait_for(hold, limit, [&] { return all_have_answered(own); });
    run_status now;
    now.command = command_;
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start_;
    now.seconds = since.count();
    now.graph = graph_;
    for (const process& each : processes_) {
        process_status& status = now.processes.emplace_back(each.known);
        status.answered = each.known.running && each.answered >= own;
    }
    return now;
}

}  // namespace amalgam::detail

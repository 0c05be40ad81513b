#include "flow/launcher/run_watch.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "flow/launcher/status_codec.hpp"

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

std::vector<std::size_t> run_watch::take_asked() {
    std::uint64_t times = 0;
    (void)!::read(wanted_.get(), &times, sizeof times);
    const std::lock_guard hold(lock_);
    std::vector<std::size_t> ask;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
        process& each = processes_[i];
        if (each.asked || !each.owes(queries_)) continue;
        each.asked = true;
        each.asked_in = queries_;
        ask.push_back(i);
    }
    return ask;
}

bool run_watch::take(std::size_t which, const control_message& report) {
    if (!report.answers_queries) return false;  // It comes by itself, at an interval.
    auto said = parse_run_report(report.report);
    auto metrics = decode_metrics(report.metrics);
    const std::lock_guard hold(lock_);
    auto& from = processes_[which];
    if (said) from.known.report = std::move(said).value();
    if (metrics) from.known.metrics = *std::move(metrics);
    if (!report.drawing.empty()) graph_ = report.drawing;
    from.asked = false;
    from.answered = from.asked_in;
    news_.notify_all();
    if (!from.owes(queries_)) return false;
    from.asked = true;
    from.asked_in = queries_;
    return true;
}

bool run_watch::all_have_answered(std::uint64_t query) const noexcept {
    return std::none_of(processes_.begin(), processes_.end(),
                        [query](const process& each) { return each.owes(query); });
}

run_status run_watch::query(std::chrono::milliseconds limit) {
    std::unique_lock hold(lock_);
    const std::uint64_t own = ++queries_;
    const std::uint64_t one = 1;
    (void)!::write(wanted_.get(), &one, sizeof one);
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

#include "flow/nodes/samples.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "flow/nodes/local_nodes.hpp"

namespace amalgam::detail {
namespace {

using doing = busy_samples::doing;

/// The beginning of a file of the kernel's; empty if there is none.
std::string read_beginning(const std::string& path) {
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char text[512];
    const ssize_t got = file ? ::read(file.get(), text, sizeof text) : 0;
    return std::string(text, got > 0 ? static_cast<std::size_t>(got) : 0);
}

/// For list_ults()'s name of a wait.
doing reason_of(std::string_view waits_for) noexcept {
    return waits_for == "mutex" || waits_for == "shared mutex" || waits_for == "condition variable"
               ? doing::lock
               : doing::outside;
}

}  // namespace

void busy_samples::add(doing what, double seconds) noexcept {
    std::atomic<double>& all = seconds_[static_cast<std::size_t>(what)];
    all.store(all.load(std::memory_order_relaxed) + seconds, std::memory_order_relaxed);
}

void busy_samples::divide(node_report& of) const noexcept {
    double seen = 0;
    for (const std::atomic<double>& each : seconds_)
        seen += each.load(std::memory_order_relaxed);
    if (seen == 0) return;
    const auto part = [&](doing what) {
        return of.busy_seconds() *
               seconds_[static_cast<std::size_t>(what)].load(std::memory_order_relaxed) / seen;
    };
    of.waited_for_core = part(doing::core);
    of.waited_for_lock = part(doing::lock);
    of.waited_outside = part(doing::outside);
}

std::optional<thread_times::use> thread_times::sample(pid_t thread) {
    const std::string of = fmt::format("/proc/self/task/{}/", thread);
    unsigned long long running = 0, ready = 0;
    if (std::sscanf(read_beginning(of + "schedstat").c_str(), "%llu %llu", &running, &ready) != 2)
        return std::nullopt;
    const std::string stat = read_beginning(of + "stat");
    const std::size_t name_end = stat.rfind(')');  // The name may contain anything.
    if (name_end == stat.npos || name_end + 2 >= stat.size()) return std::nullopt;
    use seen;
    seen.blocked = stat[name_end + 2] == 'S' || stat[name_end + 2] == 'D';
    if (seen.blocked) {
        long call = -1;
        seen.in_lock = std::sscanf(read_beginning(of + "syscall").c_str(), "%ld", &call) == 1 &&
                       call == SYS_futex;
    }
    spent& last = before_[thread];
    const double ran =
        static_cast<double>(running - std::min<std::uint64_t>(running, last.running));
    const double waited = static_cast<double>(ready - std::min<std::uint64_t>(ready, last.ready));
    if (ran + waited > 0) seen.core_share = waited / (ran + waited);
    last = {running, ready};
    return seen;
}

double processor_seconds() noexcept {
    ::rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const ::timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::uint64_t resident_bytes() noexcept {
    unsigned long long all = 0, resident = 0;
    char text[128] = {};
    const unique_fd file(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
    if (!file || ::read(file.get(), text, sizeof text - 1) <= 0 ||
        std::sscanf(text, "%llu %llu", &all, &resident) != 2)
        return 0;
    return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void local_nodes::sample() {
    if (!spawned_.load()) return;
    const auto now = std::chrono::steady_clock::now();
    const double passed = std::chrono::duration<double>(now - sampled_at_).count();
    const bool is_first = sampled_at_ == std::chrono::steady_clock::time_point{};
    sampled_at_ = now;
    std::map<pid_t, std::optional<thread_times::use>> threads;  // Read each once.
    std::vector<running_node*> parked;
    for (auto& each : nodes_) {
        running_node& node = *each;
        const pid_t thread = node.thread.load();
        if (thread == 0 || node.ended.load() != 0) continue;
        const auto [at, is_new] = threads.try_emplace(thread);
        if (is_new) at->second = threads_.sample(thread);
        if (is_first || node.ends.waits_for_input.is_waiting() ||
            node.ends.waits_for_output.is_waiting())
            continue;
        switch (node.task.state()) {
            case ult_state::ready:
            case ult_state::created:
                node.samples.add(doing::core, passed);
                break;
            case ult_state::parked:
                parked.push_back(&node);
                break;
            case ult_state::running:
                if (!at->second) {
                    node.samples.add(doing::work, passed);
                } else if (at->second->blocked) {
                    node.samples.add(at->second->in_lock ? doing::lock : doing::outside, passed);
                } else {
                    const double core = at->second->core_share;
                    node.samples.add(doing::core, passed * core);
                    node.samples.add(doing::work, passed * (1 - core));
                }
                break;
            case ult_state::ended:
                break;
        }
    }
    if (parked.empty()) return;
    std::unordered_map<std::string, doing> reasons;
    for (const ult_info& each : list_ults())
        if (each.state == ult_state::parked) reasons.emplace(each.name, reason_of(each.waits_for));
    for (running_node* node : parked) {
        const auto found = reasons.find(graph_.nodes()[node->index].name);
        if (found != reasons.end()) node->samples.add(found->second, passed);
    }
}

sampler::sampler(local_nodes& of) {
    const blocked_signals not_ours;
    thread_ = std::jthread([&of](const std::stop_token& stop) {
        std::mutex lock;
        std::condition_variable_any ended;
        std::unique_lock hold(lock);
        std::chrono::steady_clock::duration pause = std::chrono::milliseconds(20);
        while (!ended.wait_for(hold, stop, pause, [] { return false; }) && !stop.stop_requested()) {
            const auto start = std::chrono::steady_clock::now();
            of.sample();
            // A program of many ULTs takes long to list them.
            pause = std::max<std::chrono::steady_clock::duration>(
                std::chrono::milliseconds(20), 50 * (std::chrono::steady_clock::now() - start));
        }
    });
}

}  // namespace amalgam::detail

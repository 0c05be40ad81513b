#include <algorithm>

#include <unistd.h>

#include <amalgam/core/log.hpp>

#include "runtime.hpp"

// Which CPUs streams are bound to.

namespace {

/// None: all.
cpu_set_t set_of(const std::vector<int>& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpus.empty() && cpu < CPU_SETSIZE; ++cpu)
        CPU_SET(cpu, &set);
    for (const int cpu : cpus)
        CPU_SET(cpu, &set);
    return set;
}

bool any_exists(const std::vector<int>& cpus) {
    const long number = ::sysconf(_SC_NPROCESSORS_CONF);
    return cpus.empty() ||
           std::any_of(cpus.begin(), cpus.end(), [number](int cpu) { return cpu < number; });
}

bool bind_thread(pthread_t thread, const std::vector<int>& cpus) {
    const cpu_set_t wanted = set_of(cpus);
    return ::pthread_setaffinity_np(thread, sizeof wanted, &wanted) == 0;
}

std::vector<int> affinity_of(pthread_t thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::pthread_getaffinity_np(thread, sizeof set, &set) != 0)
        throw amalgam::argobots::failure{ABT_ERR_CPUID};
    std::vector<int> all;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) all.push_back(cpu);
    }
    return all;
}

}  // namespace

using namespace amalgam::argobots;

/// By the thread, which then can be bound by others.
void ABT_xstream_opaque::note_thread() noexcept {
    // Streams of Amalgam block all signals; Argobots' do not.
    ::pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
    const std::lock_guard hold(thread_lock_);
    thread_ = ::pthread_self();
    if (!affinity_.empty() && !bind_thread(thread_, affinity_)) {
        log(amalgam::log_level::warn, "argobots",
            "a stream runs on any CPU, as the process may not use those set for it; see "
            "`taskset -p $$`");
    }
    known_.store(true, std::memory_order_release);
}

/// Before the thread ends; it does not look any more.
void ABT_xstream_opaque::forget_thread() noexcept {
    const std::lock_guard hold(thread_lock_);
    known_.store(false, std::memory_order_release);
}

/// Unless the stream has ended, its thread is known then.
void ABT_xstream_opaque::wait_for_thread() {
    runtime::refuse_in_child();
    while (!known_.load(std::memory_order_acquire) && !ended())
        runtime::let_others_run();
}

int ABT_xstream_opaque::set_affinity(std::vector<int> cpus) {
    wait_for_thread();
    const std::lock_guard hold(thread_lock_);
    const bool possible = known_ ? bind_thread(thread_, cpus) : any_exists(cpus);
    if (!possible) return ABT_ERR_CPUID;
    affinity_ = std::move(cpus);
    return ABT_SUCCESS;
}

std::vector<int> ABT_xstream_opaque::affinity() {
    wait_for_thread();
    const std::lock_guard hold(thread_lock_);
    if (!affinity_.empty()) return affinity_;
    return affinity_of(known_ ? thread_ : ::pthread_self());  // a next one would have the caller's
}

int ABT_xstream_set_cpubind(ABT_xstream xstream, int cpuid) {
    return ABT_xstream_set_affinity(xstream, 1, &cpuid);
}

int ABT_xstream_get_cpubind(ABT_xstream xstream, int* cpuid) {
    int number = 0;
    return ABT_xstream_get_affinity(xstream, 1, cpuid, &number);
}

int ABT_xstream_set_affinity(ABT_xstream xstream, int num_cpuids, int* cpuids) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    if (num_cpuids < 0) return ABT_ERR_INV_ARG;
    const auto possible = [](int cpu) { return cpu >= 0 && cpu < CPU_SETSIZE; };
    if (!std::all_of(cpuids, cpuids + num_cpuids, possible)) return ABT_ERR_CPUID;
    return guarded([=] { return xstream->set_affinity({cpuids, cpuids + num_cpuids}); });
}

int ABT_xstream_get_affinity(ABT_xstream xstream, int max_cpuids, int* cpuids, int* num_cpuids) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    return guarded([=] {
        const std::vector<int> all = xstream->affinity();
        for (std::size_t i = 0; i < all.size() && static_cast<int>(i) < max_cpuids; ++i)
            cpuids[i] = all[i];
        if (num_cpuids != nullptr) *num_cpuids = static_cast<int>(all.size());
        return ABT_SUCCESS;
    });
}

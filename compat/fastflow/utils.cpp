#include <cstdarg>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <ff/mapper.hpp>
#include <ff/mapping_utils.hpp>
#include <ff/utils.hpp>
#include <sys/syscall.h>

namespace ff {

void error(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "ERROR: %s", text);
}

double ffTime(int tag) {
    static lock_t lock;
    static timeval started;
    static timeval stopped;
    spin_lock(lock);
    if (tag == START_TIME) gettimeofday(&started, nullptr);
    if (tag == STOP_TIME) gettimeofday(&stopped, nullptr);
    const double time = tag == START_TIME ? 0 : diffmsec(stopped, started);
    spin_unlock(lock);
    return time;
}

}  // namespace ff

namespace {

/// How many different answers the processors give that this process may use; -1: none.
ssize_t count_topology(const char* what) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
    std::set<std::string> found;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" +
                           what);
        std::string answer;
        if (std::getline(file, answer)) found.insert(answer);
    }
    return found.empty() ? ff_numCores() : static_cast<ssize_t>(found.size());
}

}  // namespace

ssize_t ff_numCores() {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : -1;
}
ssize_t ff_realNumCores() {
    return count_topology("thread_siblings_list");
}
ssize_t ff_numSockets() {
    return count_topology("physical_package_id");
}

unsigned long ff_getCpuFreq() {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    unsigned long kilohertz = 0;
    if (file >> kilohertz) return kilohertz * 1000;
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.compare(0, 7, "cpu MHz") == 0)
            return static_cast<unsigned long>(std::stod(line.substr(line.find(':') + 1)) * 1e6);
    return 0;
}

ssize_t ff_getMyCore() {
    return sched_getcpu();
}
size_t ff_getThreadID() {
    return static_cast<size_t>(syscall(SYS_gettid));
}

ssize_t ff_mapThreadToCpu(int cpu, int) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) return -1;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0 ? 0 : -1;
}
ssize_t ff_setPriority(ssize_t priority) {
    return setpriority(PRIO_PROCESS, static_cast<id_t>(ff_getThreadID()),
                       static_cast<int>(priority));
}

threadMapper* threadMapper::instance() {
    static threadMapper mapper;
    return &mapper;
}

threadMapper::threadMapper() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &allowed)) list_.push_back(cpu);
    if (list_.empty()) list_.push_back(0);
}

void threadMapper::setMappingList(const char* processors) {
    if (processors == nullptr) return;
    std::vector<ssize_t> list;
    std::istringstream text(processors);
    for (std::string each; std::getline(text, each, ',');) {
        char* end = nullptr;
        const long cpu = std::strtol(each.c_str(), &end, 10);
        if (end == each.c_str() || cpu < 0) {
            ff::error(
                "setMappingList: '%s' is no processor, expected numbers and commas; example: "
                "\"0,2,1,3\"\n",
                each.c_str());
            return;
        }
        list.push_back(cpu);
    }
    if (!list.empty()) list_ = list;
}

void threadMapper::setMappingList(const std::vector<size_t>& processors) {
    if (processors.empty())
        ff::error("setMappingList: no processors, expected numbers; example: {0, 2, 1, 3}\n");
    else
        list_.assign(processors.begin(), processors.end());
}

bool threadMapper::checkCPUId(int cpu) const {
    for (const ssize_t each : list_)
        if (each == cpu) return true;
    return false;
}

// Where does the time of ULTs go? A task_hook notes what each does and when. The program prints a
// table, one line a name, and writes a trace for chrome://tracing or Perfetto, one row a stream.
//
//     profile [TRACE_FILE]
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <amalgam/tasks.hpp>

namespace {

using steady = std::chrono::steady_clock;

class profiler {
public:
    /// The trace, in Chrome's trace event format.
    void write_trace(std::ostream& out) const {
        const char* comma = "";
        out << "[";
        for (const turn& each : turns_) {
            out << comma << "\n{\"ph\": \"X\", \"pid\": 1, \"tid\": \"" << each.stream
                << "\", \"name\": \"" << each.unit << "\", \"ts\": " << micros(each.began - start_)
                << ", \"dur\": " << micros(each.took) << "}";
            comma = ",";
        }
        out << "\n]\n";
    }
    void print_table(std::ostream& out) const {
        out << std::left << std::setw(10) << "name" << std::right << std::setw(8) << "ended"
            << std::setw(8) << "parked" << std::setw(9) << "yielded" << std::setw(12) << "ran us"
            << '\n';
        for (const auto& [name, sum] : sums_)
            out << std::left << std::setw(10) << name << std::right << std::setw(8) << sum.ended
                << std::setw(8) << sum.parked << std::setw(9) << sum.yielded << std::setw(12)
                << micros(sum.ran) << '\n';
    }

private:
    struct turn {
        std::string unit, stream;
        steady::time_point began;
        steady::duration took;
    };
    struct sum_of_name {
        int ended = 0, parked = 0, yielded = 0;
        steady::duration ran{};
    };

    static std::int64_t micros(steady::duration time) {
        return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    }

    // Called on the streams' threads: it takes a note and waits for no ULT.
    void note(const am::task_event_info& event) {
        const auto now = steady::now();
        if (event.kind == am::unit_kind::other || event.name.empty()) return;
        const std::lock_guard one(lock_);
        sum_of_name& sum = sums_[std::string(event.name)];
        switch (event.what) {
            case am::task_event::running:
                began_[event.id] = now;
                return;
            case am::task_event::ended:
                ++sum.ended;
                break;
            case am::task_event::parked:
                ++sum.parked;
                break;
            case am::task_event::yielded:
                ++sum.yielded;
                break;
            default:
                return;
        }
        const auto began = began_.find(event.id);
        if (began == began_.end()) return;
        sum.ran += now - began->second;
        turns_.push_back({std::string(event.name),
                          event.stream ? std::string(event.stream->name()) : "thread",
                          began->second, now - began->second});
        began_.erase(began);
    }

    steady::time_point start_ = steady::now();
    std::mutex lock_;
    std::map<const void*, steady::time_point> began_;
    std::map<std::string, sum_of_name> sums_;
    std::vector<turn> turns_;
    am::task_hook hook_{[this](const am::task_event_info& event) { note(event); }};
};

/// Some arithmetic that takes a while.
std::uint64_t work(int rounds) {
    std::uint64_t x = 88172645463325252u;
    for (int i = 0; i < rounds; ++i) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

/// A reader feeds two workers through a channel of two places, so that somebody has to wait.
std::uint64_t run() {
    am::execution_stream first({.name = "first"}), second({.name = "second"});
    am::channel<int> jobs(2);
    std::uint64_t sums[2] = {};
    am::ult reader = am::spawn(first,
                               [&] {
                                   for (int i = 0; i < 100; ++i)
                                       jobs.push(i);
                                   jobs.close();
                               },
                               {.name = "reader"});
    const auto worker = [&](std::uint64_t& sum) {
        while (const auto job = jobs.pop())
            sum += work(1000 * (*job % 10));
    };
    am::ult one = am::spawn(first, [&] { worker(sums[0]); }, {.name = "worker"});
    am::ult two = am::spawn(second, [&] { worker(sums[1]); }, {.name = "worker"});
    reader.join();
    one.join();
    two.join();
    return sums[0] + sums[1];
}

}  // namespace

int main(int argc, char** argv) {
    profiler all;
    const std::uint64_t sum = run();
    all.print_table(std::cout);
    std::cout << "sum " << sum << '\n';
    if (argc < 2) return 0;
    std::ofstream trace(argv[1]);
    all.write_trace(trace);
    if (trace.flush()) return 0;
    std::cerr << argv[1] << " cannot be written; expected a file, for example trace.json\n";
    return 1;
}

// The graphs of benches/flow.cpp on FastFlow with its defaults: one spinning thread per node,
// pinned to a core: `bench_fastflow flow-pipeline|flow-farm`. A thousand threads would be no answer
// to the third question. An item is the pointer itself: nothing is allocated.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <ff/ff.hpp>

namespace {

using clock_type = std::chrono::steady_clock;

constexpr std::uint64_t items = 20000000;

// Not 0, which ends a stream, and far from the special values at the end of the range.
void* to_item(std::uint64_t n) {
    return reinterpret_cast<void*>(n + 1);
}
std::uint64_t from_item(void* item) {
    return reinterpret_cast<std::uintptr_t>(item) - 1;
}

struct from : ff::ff_node {
    void* svc(void*) override {
        first = clock_type::now();
        for (std::uint64_t i = 0; i < items; ++i)
            ff_send_out(to_item(i));
        return EOS;
    }
    clock_type::time_point first;
};

struct plus_one : ff::ff_node {
    void* svc(void* item) override { return to_item(from_item(item) + 1); }
};

struct to : ff::ff_node {
    void* svc(void* item) override {
        sum += from_item(item);
        return GO_ON;
    }
    std::uint64_t sum = 0;
};

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc >= 2 ? argv[1] : "";
    from first;
    plus_one worker, other;
    to last;
    std::uint64_t stages = 0;
    int failed = -1;
    if (what == "flow-pipeline") {
        ff::ff_Pipe<> pipe(first, last);
        failed = pipe.run_and_wait_end();
    } else if (what == "flow-farm") {
        ff::ff_farm farm(std::vector<ff::ff_node*>{&worker, &other});
        farm.add_emitter(&first);
        farm.add_collector(&last);
        failed = farm.run_and_wait_end();
        stages = 1;
    } else {
        std::fprintf(stderr, "usage: %s flow-pipeline|flow-farm\n", argv[0]);
        return 2;
    }
    const double ns =
        std::chrono::duration<double, std::nano>(clock_type::now() - first.first).count();
    if (failed != 0 || last.sum != items * (items - 1) / 2 + items * stages) {
        std::fprintf(stderr, "%s: not every item arrived\n", argv[0]);
        return 1;
    }
    std::printf("{\"test\": \"%s\", \"value\": %.4g}\n", what.c_str(),
                ns / static_cast<double>(items));
    return 0;
}

// FastFlow's programs, compiled twice: bench_ff_ours on compat/fastflow, bench_ff_theirs on
// FastFlow. `bench_ff_ours hop|farm|ordered-farm|all-to-all|feedback-farm|parallel-for|mdf
// [blocking] [unmapped]` prints items per second, or milliseconds for a loop or a graph of tasks.
//
// FastFlow's threads spin by default, one pinned to each processor in turn. With more threads than
// processors they spin against each other; `blocking` asks for its other mode, `unmapped` for no
// pinning. Which of these is its best depends on the graph: run.py asks for all and takes the best.
// compat/fastflow has one mode, so there the words change nothing.
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ff/ff.hpp>

#include "fastflow/parallel.hpp"
#include "questions.hpp"

namespace {

using amalgam::bench::length;
using clock_type = std::chrono::steady_clock;

clock_type::time_point first;  // Of the first item of a stream.

// An item is the pointer itself, so that nothing is allocated.
long* to_item(long n) {
    return reinterpret_cast<long*>(n);
}
long from_item(const long* item) {
    return reinterpret_cast<long>(item);
}

template <typename Node>
struct source_as : Node {
    explicit source_as(long how_many) : items(how_many) {}
    long* svc(long*) override {
        first = clock_type::now();
        for (long i = 1; i <= items; ++i)
            this->ff_send_out(to_item(i));
        return this->EOS;
    }
    const long items;
};
using source = source_as<ff::ff_node_t<long>>;
using spreading_source = source_as<ff::ff_monode_t<long>>;

struct worker : ff::ff_node_t<long> {
    long* svc(long* item) override { return to_item(from_item(item) + 1); }
};

template <typename Node>
struct sink_as : Node {
    long* svc(long* item) override {
        sum += from_item(item);
        return this->GO_ON;
    }
    long sum = 0;
};
using sink = sink_as<ff::ff_node_t<long>>;
using gathering_sink = sink_as<ff::ff_minode_t<long>>;

/// Fails unless items come in order.
struct ordered_sink : sink {
    long* svc(long* item) override {
        if (from_item(item) != ++last + 1) in_order = false;
        return sink::svc(item);
    }
    long last = 0;
    bool in_order = true;
};

/// Has so many items on their way to the workers and back.
struct master : ff::ff_node_t<long> {
    explicit master(long how_many) : items(how_many) {}
    long* svc(long* item) override {
        if (item == nullptr) {
            first = clock_type::now();
            for (; sent != in_flight; ++sent)
                ff_send_out(to_item(sent + 1));
            return GO_ON;
        }
        sum += from_item(item);
        if (++back == items) return EOS;
        return sent != items ? to_item(++sent) : GO_ON;
    }
    static constexpr long in_flight = 64;
    const long items;
    long sent = 0;
    long back = 0;
    long sum = 0;
};

struct modes {
    bool blocking = false;
    bool unmapped = false;
};

template <typename Block>
double seconds(Block& block, const modes& how) {
    if (how.blocking) block.blocking_mode(true);
    if (how.unmapped) block.no_mapping();
    if (block.run_and_wait_end() < 0) throw std::runtime_error("the run has failed");
    return std::chrono::duration<double>(clock_type::now() - first).count();
}

/// `added`: by workers, to each item.
void check(long sum, long items, long added) {
    if (sum != items * (items + 1) / 2 + items * added)
        throw std::runtime_error("not every item arrived");
}

double hop(const modes& how) {
    constexpr long items = 10000000;
    source from(items);
    sink to;
    ff::ff_Pipe<> pipe(from, to);
    const double took = seconds(pipe, how);
    check(to.sum, items, 0);
    return items / took;
}

double farm(const modes& how) {
    constexpr long items = 2000000;
    source from(items);
    worker left, right;
    sink to;
    ff::ff_farm all(std::vector<ff::ff_node*>{&left, &right});
    all.add_emitter(&from);
    all.add_collector(&to);
    const double took = seconds(all, how);
    check(to.sum, items, 1);
    return items / took;
}

double ordered_farm(const modes& how) {
    constexpr long items = 1000000;
    source from(items);
    ordered_sink to;
    std::vector<std::unique_ptr<ff::ff_node>> workers;
    workers.push_back(std::make_unique<worker>());
    workers.push_back(std::make_unique<worker>());
    ff::ff_OFarm<long> all(std::move(workers));
    all.add_emitter(from);
    all.add_collector(to);
    const double took = seconds(all, how);
    check(to.sum, items, 1);
    if (!to.in_order) throw std::runtime_error("items came out of order");
    return items / took;
}

double all_to_all(const modes& how) {
    constexpr long items = 1000000;  // of each source
    spreading_source left(items), right(items);
    gathering_sink here, there;
    ff::ff_a2a all;
    all.add_firstset<spreading_source>({&left, &right});
    all.add_secondset<gathering_sink>({&here, &there});
    const double took = seconds(all, how);
    if (here.sum + there.sum != items * (items + 1))
        throw std::runtime_error("not every item arrived");
    return 2 * items / took;
}

double feedback_farm(const modes& how) {
    constexpr long items = 50000;
    master from(items);
    worker left, right;
    ff::ff_farm all(std::vector<ff::ff_node*>{&left, &right});
    all.add_emitter(&from);
    all.remove_collector();
    all.wrap_around();
    const double took = seconds(all, how);
    check(from.sum, items, 1);
    return items / took;
}

/// Of the median one.
template <typename Run>
double milliseconds(Run run) {
    return length::parse("0.3").nanoseconds_each(1, run) / 1e6;
}

double parallel_loop(const modes&) {
    return amalgam::bench::fastflow_loop([](auto run) { return milliseconds(run); });
}
double cholesky(const modes&) {
    return amalgam::bench::fastflow_cholesky([](auto run) { return milliseconds(run); });
}

struct program {
    const char* name;
    double (*run)(const modes&);
};
constexpr program programs[] = {
    {"hop", hop},
    {"farm", farm},
    {"ordered-farm", ordered_farm},
    {"all-to-all", all_to_all},
    {"feedback-farm", feedback_farm},
    {"parallel-for", parallel_loop},
    {"mdf", cholesky},
};

}  // namespace

int main(int argc, char** argv) {
    modes how;
    bool known = true;
    for (int i = 2; i < argc; ++i) {
        const std::string word = argv[i];
        how.blocking = how.blocking || word == "blocking";
        how.unmapped = how.unmapped || word == "unmapped";
        known = known && (word == "blocking" || word == "unmapped");
    }
    for (const program& each : programs) {
        if (!known || argc < 2 || argv[1] != std::string(each.name)) continue;
        try {
            std::printf("{\"test\": \"%s\", \"value\": %.6g}\n", each.name, each.run(how));
            return 0;
        } catch (const std::exception& failure) {
            std::fprintf(stderr, "%s %s: %s\n", argv[0], argv[1], failure.what());
            return 1;
        }
    }
    std::fprintf(stderr,
                 "usage: %s hop|farm|ordered-farm|all-to-all|feedback-farm|parallel-for|mdf "
                 "[blocking] [unmapped]\n",
                 argv[0]);
    return 2;
}

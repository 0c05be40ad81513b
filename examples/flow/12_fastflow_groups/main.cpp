// A FastFlow program in three groups, each a process: G1 makes numbers, G2 splits them into prime
// factors with two workers, G3 prints them. The file says where each group runs:
//
//     amalgam run -c groups.json -- fastflow_groups 1 100000
//
// where groups.json is FastFlow's, as docs/guide/fastflow.md has it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <ff/dff.hpp>

namespace {

struct job {
    std::uint64_t number = 0;
    std::vector<std::uint64_t> factors;

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(number, factors);
    }
};

struct make_numbers : ff::ff_monode_t<job> {
    make_numbers(std::uint64_t from, std::uint64_t to) : first(from), last(to) {}
    job* svc(job*) override {
        for (std::uint64_t n = first; n <= last; ++n)
            ff_send_out(new job{n, {}});
        return EOS;
    }
    std::uint64_t first, last;
};

struct split : ff::ff_node_t<job> {
    job* svc(job* what) override {
        std::uint64_t rest = what->number;
        for (std::uint64_t by = 2; by * by <= rest; ++by)
            for (; rest % by == 0; rest /= by)
                what->factors.push_back(by);
        if (rest > 1) what->factors.push_back(rest);
        return what;
    }
};

struct print : ff::ff_minode_t<job> {
    job* svc(job* what) override {
        std::printf("%llu:", static_cast<unsigned long long>(what->number));
        for (const std::uint64_t factor : what->factors)
            std::printf(" %llu", static_cast<unsigned long long>(factor));
        std::printf("\n");
        delete what;
        return GO_ON;
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (ff::DFF_Init(argc, argv) != 0) return 1;  // Takes its own options away.
    if (argc != 3) {
        std::fprintf(stderr, "usage: fastflow_groups FIRST LAST\n");
        return 2;
    }
    make_numbers numbers(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
    split one, other;
    ff::ff_farm workers(std::vector<ff::ff_node*>{&one, &other});
    workers.remove_collector();
    print printer;
    ff::ff_Pipe<> all(numbers, workers, printer);
    numbers.createGroup("G1");
    workers.createGroup("G2");
    printer.createGroup("G3");
    return all.run_and_wait_end() == 0 ? 0 : 1;
}

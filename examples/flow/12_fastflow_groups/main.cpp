// A FastFlow program in three groups, each a process: G1 makes numbers, G2 splits them into prime
// factors with two workers, G3 prints them. Only the nodes at the ends know of the other groups;
// another address means another transport.
//
//     fastflow_groups G3 tcp://127.0.0.1:7003
//     fastflow_groups G2 tcp://127.0.0.1:7002 tcp://127.0.0.1:7003
//     fastflow_groups G1 1 100000 tcp://127.0.0.1:7002
//
// in any order. G2 and G3 listen at every address of a list, as "shm://G2,tcp://127.0.0.1:7002",
// and expect one sending group each.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <amalgam/fastflow.hpp>

namespace {

struct job {
    std::uint64_t number = 0;
    std::vector<std::uint64_t> factors;

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(number, factors);
    }
};

struct make_numbers : ff::ff_node_t<job> {
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

struct print : ff::ff_node_t<job> {
    job* svc(job* what) override {
        std::printf("%llu:", static_cast<unsigned long long>(what->number));
        for (const std::uint64_t factor : what->factors)
            std::printf(" %llu", static_cast<unsigned long long>(factor));
        std::printf("\n");
        delete what;
        return GO_ON;
    }
};

int G1(std::uint64_t first, std::uint64_t last, const std::string& to) {
    make_numbers numbers(first, last);
    am::fastflow_sender<job> sender(to);
    ff::ff_Pipe<> group(numbers, sender);
    return group.run_and_wait_end();
}

int G2(std::vector<std::string> at, const std::string& to) {
    am::fastflow_receiver<job> receiver(std::move(at));
    split worker, other;
    ff::ff_farm workers(std::vector<ff::ff_node*>{&worker, &other});
    am::fastflow_sender<job> sender(to);
    workers.add_emitter(&receiver);
    workers.add_collector(&sender);
    return workers.run_and_wait_end();
}

int G3(std::vector<std::string> at) {
    am::fastflow_receiver<job> receiver(std::move(at));
    print printer;
    ff::ff_Pipe<> group(receiver, printer);
    return group.run_and_wait_end();
}

std::vector<std::string> list(const std::string& text) {
    std::vector<std::string> all;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        all.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return all;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    try {
        if (words.size() == 4 && words[0] == "G1")
            return G1(std::stoull(words[1]), std::stoull(words[2]), words[3]);
        if (words.size() == 3 && words[0] == "G2") return G2(list(words[1]), words[2]);
        if (words.size() == 2 && words[0] == "G3") return G3(list(words[1]));
    } catch (const std::exception& why) {
        std::fprintf(stderr, "fastflow_groups: %s\n", why.what());
        return 1;
    }
    std::fprintf(stderr,
                 "usage: fastflow_groups G1 FIRST LAST RECEIVER | G2 ADDRESSES RECEIVER | "
                 "G3 ADDRESSES\n");
    return 2;
}

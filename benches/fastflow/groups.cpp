// A distributed program of FastFlow, a source in one group and a sink in another, compiled twice:
// bench_ff_groups_ours on compat/fastflow, bench_ff_groups_theirs on FastFlow.
// `bench_ff_groups_ours TCP|shm 64|65536 [BATCH_SIZE]` writes a configuration file, starts itself
// as both groups, and prints items and bytes per second. What batches are is the file's: the source
// sends item by item. Each group's threads have a processor of their own, in either.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <ff/dff.hpp>

#if __has_include(<cereal/types/array.hpp>)  // FastFlow needs it.
#include <cereal/types/array.hpp>
#endif

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using clock_type = std::chrono::steady_clock;

constexpr double seconds_of_sending = 0.5;

double seconds_since(clock_type::time_point begin) {
    return std::chrono::duration<double>(clock_type::now() - begin).count();
}

template <std::size_t Words>
struct record {
    std::array<long, Words> words;
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(words);
    }
};

template <typename Item>
struct source : ff::ff_monode_t<Item> {
    Item* svc(Item*) override {
        const auto begin = clock_type::now();
        for (long i = 0; i % 64 != 0 || seconds_since(begin) < seconds_of_sending; ++i) {
            auto* const item = new Item;
            item->words.front() = item->words.back() = i;
            this->ff_send_out(item);
        }
        return this->EOS;
    }
};

template <typename Item>
struct sink : ff::ff_minode_t<Item> {
    Item* svc(Item* item) override {
        if (items == 0) begin = clock_type::now();
        in_order = in_order && item->words.front() == items && item->words.back() == items;
        ++items;
        delete item;
        return this->GO_ON;
    }
    void svc_end() override {
        const double took = seconds_since(begin);
        if (items == 0 || !in_order) {
            std::fprintf(stderr, "items are lost, or out of order\n");
        } else {
            const double rate = static_cast<double>(items) / took;
            std::printf("{\"test\": \"groups\", \"ops_per_s\": %.6g, \"bytes_per_s\": %.6g}\n",
                        rate, rate * sizeof(Item));
            std::fflush(stdout);
        }
    }
    clock_type::time_point begin;
    long items = 0;
    bool in_order = true;
};

template <typename Item>
int run_group(int argc, char** argv) {
    if (ff::DFF_Init(argc, argv) != 0) return 1;
    source<Item> from;
    sink<Item> to;
    ff::ff_pipeline pipe;
    pipe.add_stage(&from);
    pipe.add_stage(&to);
    from.createGroup("G1");
    to.createGroup("G2");
    return pipe.run_and_wait_end() < 0 ? 1 : 0;
}

pid_t start(const std::string& size, const std::string& file, const std::string& group) {
    std::string words[] = {"bench_ff_groups", size, "--DFF_Config=" + file, "--DFF_GName=" + group};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                         nullptr};
    pid_t child = -1;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) return -1;
    return child;
}

int run_both(const std::string& protocol, const std::string& size, const std::string& batch) {
    const std::string file = "/tmp/bench_ff_groups_" + std::to_string(::getpid()) + ".json";
    const int port = 20000 + ::getpid() % 6000 * 2;
    std::ofstream(file) << R"({"protocol": ")" << protocol << R"(", "groups": [)"
                        << R"({"name": "G1", "endpoint": "localhost:)" << port
                        << R"(", "batchSize": )" << batch << R"(, "threadMapping": "0"}, )"
                        << R"({"name": "G2", "endpoint": "localhost:)" << port + 1
                        << R"(", "batchSize": )" << batch << R"(, "threadMapping": "1"}]})" << '\n';
    const pid_t children[] = {start(size, file, "G2"), start(size, file, "G1")};
    int failed = 0;
    for (const pid_t each : children) {
        int status = 1;
        if (each > 0) ::waitpid(each, &status, 0);
        failed |= status;
    }
    std::remove(file.c_str());
    return failed != 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    const auto word = [&](int at) { return std::string(argc > at ? argv[at] : ""); };
    if (word(2).rfind("--DFF_", 0) == 0)
        return word(1) == "64" ? run_group<record<8>>(argc, argv)
                               : run_group<record<8192>>(argc, argv);
    if (argc < 3 || argc > 4 || (word(2) != "64" && word(2) != "65536")) {
        std::fprintf(stderr, "usage: %s TCP|shm 64|65536 [BATCH_SIZE]\n", argv[0]);
        return 2;
    }
    return run_both(word(1), word(2), argc == 4 ? word(3) : "1");
}

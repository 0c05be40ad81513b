#include <iostream>

#include <ff/dff.hpp>

struct source : ff::ff_monode_t<long> {
    long* svc(long*) override {
        for (long i = 1; i <= 100; ++i)
            ff_send_out(new long(i));
        return EOS;
    }
};
struct sink : ff::ff_minode_t<long> {
    long* svc(long* item) override {
        sum += *item;
        delete item;
        return GO_ON;
    }
    void svc_end() override { std::cout << "the sum of 1 to 100 is " << sum << '\n'; }
    long sum = 0;
};

/// A FastFlow program of two groups; exit code 0 when this process's group has ended as it should.
/// Without arguments, both run in this process.
int main(int count, char** words) {
    const bool alone = count == 1;
    if (!alone && ff::DFF_Init(count, words) != 0) return 1;
    source first;
    sink last;
    ff::ff_a2a graph;
    graph.add_firstset<ff::ff_node>({&first});
    graph.add_secondset<ff::ff_node>({&last});
    graph.createGroup("G1") << &first;
    graph.createGroup("G2") << &last;
    if (graph.run_and_wait_end() != 0) return 1;
    const bool has_last = alone || ff::DFF_getMyGroup() == "G2";
    return last.sum == (has_last ? 5050 : 0) ? 0 : 1;
}

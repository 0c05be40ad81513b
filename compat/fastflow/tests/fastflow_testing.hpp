#pragma once
// Nodes that tests of FastFlow's interface have in common.

#include <memory>
#include <numeric>
#include <vector>

#include <ff/ff.hpp>

namespace ff::testing_nodes {

constexpr long count = 2000;

/// 1, 2, ... count.
struct source : ff_node_t<long> {
    explicit source(long how_many = count) : last(how_many) {}
    long* svc(long*) override {
        for (long i = 1; i <= last; ++i)
            ff_send_out(new long(i));
        return EOS;
    }
    long last;
};
struct many_source : ff_monode_t<long> {
    long* svc(long*) override {
        for (long i = 1; i <= count; ++i)
            ff_send_out(new long(i));
        return EOS;
    }
};
struct twice : ff_node_t<long> {
    long* svc(long* item) override {
        *item *= 2;
        return item;
    }
};
struct sink : ff_node_t<long> {
    long* svc(long* item) override {
        got.push_back(*item);
        delete item;
        return GO_ON;
    }
    void eosnotify(ssize_t) override { ++ends; }
    long sum() const { return std::accumulate(got.begin(), got.end(), 0L); }
    std::vector<long> got;
    int ends = 0;
};
struct many_sink : ff_minode_t<long> {
    long* svc(long* item) override {
        got.push_back(*item);
        channels.push_back(get_channel_id());
        delete item;
        return GO_ON;
    }
    void eosnotify(ssize_t) override { ++ends; }
    long sum() const { return std::accumulate(got.begin(), got.end(), 0L); }
    std::vector<long> got;
    std::vector<ssize_t> channels;
    int ends = 0;
};
constexpr long sum_of_all = count * (count + 1) / 2;

inline std::vector<long> in_order(long factor = 1) {
    std::vector<long> expected;
    for (long i = 1; i <= count; ++i)
        expected.push_back(i * factor);
    return expected;
}
template <typename Node>
std::vector<std::unique_ptr<ff_node>> some(int how_many) {
    std::vector<std::unique_ptr<ff_node>> nodes;
    for (int i = 0; i < how_many; ++i)
        nodes.push_back(make_unique<Node>());
    return nodes;
}

}  // namespace ff::testing_nodes

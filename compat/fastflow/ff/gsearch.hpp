#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <unordered_set>
#include <vector>

#include <ff/ff.hpp>
#include <ff/parallel_for.hpp>

namespace ff {

/// A node of a graph, with a number that no other has and a value that is compared.
/// Owner: whoever makes it; it names others and does not own them.
template <typename T>
class gnode_t {
public:
    using node_type = T;
    gnode_t(long id, const T& value) : id_(static_cast<unsigned long>(id)), value_(value) {}
    bool operator==(const gnode_t& other) const { return value_ == other.value_; }
    void out_nodes(std::deque<gnode_t*>& nodes) const { nodes = next_; }
    void add_node(gnode_t* node) { next_.push_back(node); }
    const T& getElement() const { return value_; }
    unsigned long getId() const { return id_; }

private:
    unsigned long id_;
    T value_;
    std::deque<gnode_t*> next_;
};

/// Searches a graph for nodes that compare equal to one, breadth first; those of one distance are
/// compared in parallel. Alone, or as a node whose items are nodes to search for.
///
/// Threads: one search at a time.
/// Failure: as ff_node; an exception out of a comparison is thrown by search().
template <typename T, unsigned = 0>
class ff_graphsearch : public ff_node {
public:
    explicit ff_graphsearch(int threads = static_cast<int>(ff_realNumCores())) : loops_(threads) {}

    void setStart(T* start) { start_ = start; }
    /// True: `result` is one of the nodes found. `threads` -1: all.
    bool search(T* start, T* wanted, T*& result, int threads = -1) {
        std::deque<T*> found;
        if (!search_levels(start, *wanted, found, threads, false)) return false;
        result = found.front();
        return true;
    }
    /// True: all nodes found were added to `results`.
    bool search(T* start, T* wanted, std::deque<T*>& results, int threads = -1) {
        return search_levels(start, *wanted, results, threads, true);
    }

    int svc_init() override {
        if (start_ != nullptr) return 0;
        error("a graph search without a start, expected setStart() before it runs\n");
        return -1;
    }
    /// Sends a node that was found, or the item itself.
    void* svc(void* item) override {
        T* found = static_cast<T*>(item);
        search(start_, static_cast<T*>(item), found);
        return found;
    }

private:
    bool search_levels(T* start, const T& wanted, std::deque<T*>& found, int threads, bool all) {
        const size_t before = found.size();
        std::unordered_set<unsigned long> seen{start->getId()};
        std::vector<T*> level{start};
        while (!level.empty() && (all || found.size() == before)) {
            std::vector<char> equal(level.size());
            loops_.parallel_for(
                0, static_cast<long>(level.size()), 1, 0,
                [&](long i) {
                    const auto at = static_cast<size_t>(i);
                    equal[at] = *level[at] == wanted ? 1 : 0;
                },
                threads);
            std::vector<T*> next;
            for (size_t i = 0; i < level.size(); ++i) {
                if (equal[i] != 0) found.push_back(level[i]);
                std::deque<T*> out;
                level[i]->out_nodes(out);
                for (T* each : out)
                    if (seen.insert(each->getId()).second) next.push_back(each);
            }
            level.swap(next);
        }
        return found.size() != before;
    }

    ParallelFor loops_;
    T* start_ = nullptr;
};

}  // namespace ff

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include <amalgam/flow/detail/node_record.hpp>

namespace amalgam::detail {

/// Collects the records of a process's nodes until a checkpoint has all of them.
///
/// One checkpoint at a time: a mark of the next one may come only when this one is whole in every
/// process of the run.
/// Threads: any.
class snapshot {
public:
    /// Takes a whole one. Called with a lock held, by the last node: it should only pass it on.
    using taker = std::function<void(std::uint64_t number, std::vector<node_record> nodes)>;

    /// Of so many nodes, each with those that run inside it.
    snapshot(std::size_t nodes, taker whole) : whole_(std::move(whole)), saved_for_(nodes, 0) {}

    /// That checkpoint begins: nodes that have ended need no mark.
    void begin(std::uint64_t number);
    /// Node `which` has come to the mark of that checkpoint.
    void add(std::uint64_t number, std::size_t which, std::vector<node_record> records);
    /// Node `which` has ended: this is its part in the current checkpoint, unless it has given one,
    /// and in all that follow.
    void add_last(std::size_t which, std::vector<node_record> records);

private:
    // With the lock held:
    void begin_held(std::uint64_t number);
    void add_held(std::size_t which, std::vector<node_record> records);

    std::mutex lock_;
    const taker whole_;
    std::uint64_t number_ = 0;  // The latest checkpoint.
    std::vector<node_record> records_;
    std::size_t saved_ = 0;                 // Nodes in it.
    std::vector<std::uint64_t> saved_for_;  // The last checkpoint of each node.
    struct last_record {
        std::size_t which;
        std::vector<node_record> records;
    };
    std::vector<last_record> ended_;
};

}  // namespace amalgam::detail

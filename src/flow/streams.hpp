#pragma once

#include <memory>
#include <span>
#include <vector>

#include <amalgam/tasks/execution_stream.hpp>

namespace amalgam::detail {

/// How many streams `nodes` nodes get: `threads`, or as many as there are nodes and cores when
/// it is 0.
std::size_t streams_for(std::size_t threads, std::size_t nodes) noexcept;

/// The execution streams a run makes for its nodes.
///
/// Owner: owns them; they stop at its end, when nothing runs on them any more.
class node_streams {
public:
    node_streams(unsigned threads, std::size_t nodes);

    std::span<execution_stream* const> all() const noexcept { return all_; }

private:
    std::vector<std::unique_ptr<execution_stream>> owned_;
    std::vector<execution_stream*> all_;
};

}  // namespace amalgam::detail

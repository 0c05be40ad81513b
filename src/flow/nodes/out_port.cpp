#include <fmt/format.h>

#include <amalgam/flow/detail/node_body.hpp>
#include <amalgam/flow/detail/ordered.hpp>
#include <amalgam/flow/detail/out_port.hpp>

namespace amalgam::detail {

std::unique_ptr<fused_node> fuse(node_body& body, node_ends& ends) {
    return body.fuse(ends);
}

void throw_no_worker(std::size_t chosen, std::size_t workers) {
    throw error(errc::invalid,
                fmt::format("an item was sent to worker {}, expected a number from 0 to {}", chosen,
                            workers - 1));
}

void throw_twice(std::uint64_t number) {
    throw error(errc::internal,
                fmt::format("result number {} of an ordered farm arrived twice, expected each once",
                            number));
}

void throw_missing(std::uint64_t number, std::size_t held) {
    throw error(errc::internal,
                fmt::format("the items have ended, but result number {} of an ordered farm never "
                            "arrived; {} later results wait for it",
                            number, held));
}

void throw_loop_over() {
    throw error(errc::invalid,
                "an item was sent back into a loop that has ended, expected none from end()");
}

}  // namespace amalgam::detail

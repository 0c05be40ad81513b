#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/channel.hpp>

namespace amalgam::detail {

void refuse_capacity() {
    throw error(errc::invalid, "a channel's capacity is 0, expected at least 1");
}

void refuse_room(std::size_t items, std::size_t bytes_each) {
    throw error(errc::no_memory,
                fmt::format("cannot allocate a channel of {} items of {} bytes: use a smaller "
                            "capacity; all of it is allocated up front",
                            items, bytes_each));
}

void refuse_closed_channel() {
    throw error(errc::closed,
                "this channel is closed: push before close(), or use try_push(), which returns "
                "false instead");
}

}  // namespace amalgam::detail

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/channel.hpp>

namespace amalgam::detail {

void refuse_capacity() {
    throw error(errc::invalid,
                "a channel needs room for one item at least, or nothing could ever go through it: "
                "give a capacity of 1 or more");
}

void refuse_room(std::size_t items, std::size_t bytes_each) {
    throw error(errc::no_memory,
                fmt::format("no memory for a channel of {} items of {} bytes: give a smaller "
                            "capacity; it is taken at once, and bounds what waits",
                            items, bytes_each));
}

void refuse_closed_channel() {
    throw error(errc::closed,
                "this channel is closed, so nobody would take the item: push before close(), or "
                "use try_push(), which says no instead");
}

}  // namespace amalgam::detail

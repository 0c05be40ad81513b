#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/mutex.hpp>

#include "inject/procedures.hpp"

namespace amalgam::detail {

/// One-way messages whose image is not there yet, and has to be fetched from who sent them. How
/// many wait, and how many images are asked for at once, is bounded for all and for each peer, so
/// that numbers that nobody has heard of do not fill this process.
///
/// Owner:   shared with what waits.
/// Threads: any.
class waiting_messages : public std::enable_shared_from_this<waiting_messages> {
public:
    static constexpr std::size_t most_images = 64;
    static constexpr std::size_t most_images_of_a_peer = 8;

    /// A peer may have half of these.
    waiting_messages(std::size_t messages, std::size_t bytes) noexcept
        : most_messages_(messages), most_bytes_(bytes) {}

    /// An image that is asked for, once for all messages that wait for it.
    struct image_fetch {
        image_fetch(const peer& source, image_id id) : from(source), which(id) {}
        const peer from;
        const image_id which;
        mutex asking;
        std::optional<error> failed{};  ///< With `asking` held.
        std::size_t messages = 0, bytes = 0;
    };
    /// As long as it is there, a message waits.
    class place {
    public:
        place(place&&) noexcept = default;
        place& operator=(place&&) = delete;
        ~place();
        image_fetch& fetch() const noexcept { return *fetch_; }

    private:
        friend waiting_messages;
        place(std::shared_ptr<waiting_messages> of, std::shared_ptr<image_fetch> what,
              std::size_t bytes) noexcept;

        std::shared_ptr<waiting_messages> of_;
        std::shared_ptr<image_fetch> fetch_;
        std::size_t bytes_;
    };
    /// Failure: throws error{overloaded} when too much waits already.
    place enter(const peer& from, image_id which, std::size_t bytes);

private:
    void leave(const image_fetch& what, std::size_t bytes) noexcept;

    const std::size_t most_messages_, most_bytes_;
    std::mutex lock_;
    std::vector<std::shared_ptr<image_fetch>> all_;  // At most most_images.
};

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/mutex.hpp>

#include "inject/limits.hpp"
#include "inject/protocol/procedures.hpp"

namespace amalgam::detail {

/// One-way messages whose image must first be fetched from their sender. Bounds the waiting
/// messages and concurrent fetches, in total and per peer, so that unknown ids cannot fill this
/// process's memory.
///
/// Owner:   shared with waiting messages.
/// Threads: any.
class waiting_messages : public std::enable_shared_from_this<waiting_messages> {
public:
    /// One peer may use half of these.
    waiting_messages(std::size_t messages, std::size_t bytes) noexcept
        : most_messages_(messages), most_bytes_(bytes) {}

    /// An image being fetched, once for all messages that wait for it.
    struct image_fetch {
        image_fetch(const peer& source, image_id id) : from(source), which(id) {}
        const peer from;
        const image_id which;
        mutex asking;
        std::optional<error> failed{};  ///< Protected by `asking`.
        std::size_t messages = 0, bytes = 0;
    };
    /// A message waits while this lives.
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
    /// Failure: throws error{overloaded} if too much is waiting already.
    place enter(const peer& from, image_id which, std::size_t bytes);

private:
    void leave(const image_fetch& what, std::size_t bytes) noexcept;

    const std::size_t most_messages_, most_bytes_;
    std::mutex lock_;
    std::vector<std::shared_ptr<image_fetch>> all_;  // At most limits::max_fetched_images.
};

}  // namespace amalgam::detail

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/directory/resource_message.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam {

namespace detail {
class context_core;
}

/// A resource of this process: others can find it and send it messages. See context::add().
///
/// Owner:   destroying this object deletes the resource and its unreceived messages. It may outlive
///          its context; the resource ends with the context.
/// Threads: const members may run concurrently, including several receives: each message goes to
///          one. The context may end meanwhile: what fails because of that fails as `closed`. On an
///          engine of the user's, which goes on, a send that has begun still ends as it would have.
/// Failure: not_found (no such resource, or no longer), timed_out, overloaded, disconnected, closed
///          (the context has ended), canceled (the calling ULT), invalid (empty: moved from or
///          released).
class resource {
public:
    resource() noexcept = default;  ///< Empty.
    resource(resource&& other) noexcept
        : core_(std::move(other.core_)), id_(std::exchange(other.id_, resource_id::none)) {}
    resource& operator=(resource&& other) noexcept {
        resource taken(std::move(other));
        std::swap(core_, taken.core_);
        std::swap(id_, taken.id_);
        return *this;
    }
    ~resource();

    explicit operator bool() const noexcept { return id_ != resource_id::none; }
    resource_id id() const noexcept { return id_; }
    /// Detaches the resource: it lives until its context ends.
    resource_id release() noexcept;

    /// Sets these attributes, adding missing ones. All must have values. Watches are told that it
    /// changed, now matches, or no longer matches. A search in progress may match its old or its
    /// new attributes.
    /// Failure: throws error{invalid} for an open attribute, error{overloaded} and {too_large} at a
    ///          limit of the directory. On failure nothing changes.
    /// Cost:    a call to the directory, which copies all its attributes.
    void set(const attribute_list& changes) const;

    /// Sends a message to another resource, or to itself. Parks the ULT or thread until the message
    /// is stored at the receiver; waits while there is no room. Messages from one resource to
    /// another arrive in the order sent.
    /// Cost:    the first message to a resource looks it up in the directory.
    void send(resource_id to, std::int32_t tag, const_bytes content,
              std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const;
    void send(resource_id to, std::int32_t tag, std::string_view content,
              std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const {
        send(to, tag, as_bytes_of(content), within);
    }
    /// Starts a send, ordered after all earlier ones from this resource to that one; messages
    /// beyond the eager limit are sent one at a time. A registered buffer is not copied. Unsent
    /// messages fail with `closed` when the context ends.
    /// Cost:    as send(), for a message up to the eager limit that finds none queued before it.
    future<void> start_send(resource_id to, std::int32_t tag, message_buffer content) const;
    /// Fire and forget: see context_options::on_undelivered for failures. A message beyond the
    /// eager limit may be overtaken by later ones. Posts queued behind start_send() messages for
    /// which there is no room are limited to context_options::store_bytes; past it, throws
    /// error{overloaded}. A buffer from another context is copied if it is registered.
    void post(resource_id to, std::int32_t tag, const_bytes content) const;
    void post(resource_id to, std::int32_t tag, std::string_view content) const {
        post(to, tag, as_bytes_of(content));
    }
    void post(resource_id to, std::int32_t tag, message_buffer content) const;

    /// Parks the ULT or thread until a message arrives.
    resource_message receive(const message_choice& which = {}) const;
    /// The same; empty after that time.
    std::optional<resource_message> receive_within(std::chrono::nanoseconds time,
                                                   const message_choice& which = {}) const;
    /// Does not wait.
    std::optional<resource_message> try_receive(const message_choice& which = {}) const;

private:
    friend class context;
    resource(std::shared_ptr<detail::context_core> core, resource_id id) noexcept
        : core_(std::move(core)), id_(id) {}
    detail::context_core& whose() const;

    std::shared_ptr<detail::context_core> core_;
    resource_id id_ = resource_id::none;
};

}  // namespace amalgam

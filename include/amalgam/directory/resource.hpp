#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/directory/resource_message.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam {

namespace detail {
class context_core;
}

/// A resource of this process, which others can find, and send messages to. See context::add().
///
/// Owner:   whoever holds it: it is deleted when this ends, with the messages it has not received.
///          It may outlive its context, and is gone from there on.
/// Threads: const members may run concurrently, also several receives: each message goes to one.
/// Failure: not_found (there is no such resource, or not any more), timed_out, overloaded,
///          disconnected, closed (the context has ended), invalid (this one is none: it was moved
///          from, or released).
class resource {
public:
    resource() noexcept = default;  ///< None.
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
    /// It goes on without this, until its context ends.
    resource_id release() noexcept;

    /// Its attributes get these values; it gets those that it has not. All have values. Who watches
    /// is told that it has changed, or that it fits now, or does not any more. A search that is
    /// under way may find it by its old ones or its new ones.
    /// Failure: throws error{invalid} for an open attribute, error{overloaded} and {too_large} at a
    ///          limit of the directory, and then has changed nothing.
    /// Cost:    a call to the directory; a copy of all its attributes there.
    void set(const attribute_list& changes) const;

    /// Sends a message to another resource, or itself. Returns when it lies where that receives;
    /// parks the ULT or thread. Messages of one resource to another arrive in the order that
    /// they were sent in. Waits while there is no room.
    /// Cost: the first to a resource asks the directory where it is.
    void send(resource_id to, std::int32_t tag, const_bytes content,
              std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const;
    void send(resource_id to, std::int32_t tag, std::string_view content,
              std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) const {
        send(to, tag, as_bytes_of(content), within);
    }
    /// The same without waiting: behind all that was begun before, from this resource to that one;
    /// messages of more than the eager bytes are sent one after the other. A buffer that is
    /// registered is not copied. At the context's end what was not sent fails with `closed`.
    future<void> start_send(resource_id to, std::int32_t tag, message_buffer content) const;
    /// Sends it without knowing whether it arrives: see context_options::on_undelivered. It may
    /// be overtaken by later ones when it has more than the eager bytes. Behind messages of
    /// start_send() that find no room there, posts of context_options::store_bytes wait at most:
    /// then it throws error{overloaded}.
    void post(resource_id to, std::int32_t tag, const_bytes content) const;
    void post(resource_id to, std::int32_t tag, std::string_view content) const {
        post(to, tag, as_bytes_of(content));
    }
    void post(resource_id to, std::int32_t tag, message_buffer content) const;

    /// Waits for a message: parks the ULT or thread.
    resource_message receive(const message_choice& which = {}) const;
    /// The same; nothing after that time.
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

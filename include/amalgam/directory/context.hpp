#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/found_resource.hpp>
#include <amalgam/directory/resource.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/directory/resource_message.hpp>
#include <amalgam/directory/resource_search.hpp>
#include <amalgam/directory/resource_watch.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

namespace detail {
class context_core;
}

/// A posted message that was not delivered.
struct undelivered_message {
    resource_id from = resource_id::none;  ///< Sender; a resource of this context.
    resource_id to = resource_id::none;    ///< The receiver.
    std::int32_t tag = 0;                  ///< As it was sent.
    errc why = errc::ok;  ///< not_found: no such resource; overloaded: no room; disconnected …
};

/// Kinds of traffic between contexts.
enum class traffic : std::uint8_t {
    small,   ///< Messages of up to context_options::eager_bytes.
    bulk,    ///< Longer messages, and the transfers that carry them.
    control  ///< Flow control and delivery failures.
};

/// Chooses among several paths to another context; returns an index. Paths are sorted best first:
/// see engine::lookup().
using way_choice = std::function<std::size_t(traffic what, std::span<const peer_way> ways)>;

/// The default choice. Small messages use the best path. Bulk uses the second if it is equally near
/// and moves memory the same way (such as a second network), else the best. Control uses a path
/// that carries neither, if there is one.
std::size_t choose_way(traffic what, std::span<const peer_way> ways);

/// Options of a context. The defaults suit most programs.
struct context_options {
    /// Address of the directory to join, or "here" for one of this context's own, on its engine,
    /// which ends with it. Two contexts that say "here" do not find each other, even in one
    /// process: let the second one join the first one's, at context::where().address(). Empty:
    /// AMALGAM_DIRECTORY, or else this host's directory, which is started (`amalgam directory`) if
    /// it is not running.
    std::string directory{};
    attribute_list what{};  ///< Further attributes of the context's own resource.
    /// Limit for received messages that have not been taken yet. Past it, long messages wait at
    /// their senders, which block; short posted ones are refused.
    std::size_t store_bytes = std::size_t{256} << 20;
    /// Larger messages are sent by rendezvous: fetched into the receiver's own buffer.
    std::size_t eager_bytes = std::size_t{32} << 10;
    /// How long to look for a lost directory: at its address or, for this host's own, by starting
    /// it. Resources are then registered again under their old ids. 0: never. Never for "here".
    std::chrono::milliseconds reopen_within{10000};
    /// Called for each posted message that was not delivered. Runs on the engine's stream: it must
    /// not wait. What it throws is logged.
    std::function<void(const undelivered_message&)> on_undelivered{};
    /// Picks the path to each other context for each kind of traffic, when that context is first
    /// reached. If that path is lost, another is used. Empty: choose_way().
    ///
    /// What it throws surfaces from the call that needed the path; a start_send() ends with
    /// error{invalid} and its text, or with the code of an amalgam::error. If the path was needed
    /// to receive, it is logged, and the path that the message came by is used.
    way_choice choose{choose_way};
};

/// A process's membership in the system: registers resources, finds other resources, and stores
/// messages until this process's resources receive them.
///
///     context here;
///     resource server = here.add({{"type", "server"}});
///     resource_message asked = server.receive();
///
/// Owner:   owns its engine, unless given one, which must then outlive it, and calls of its
///          resources and searches that are under way. Its resources end with it, at once for
///          others too. A context's own engine ends with it; its memory is freed once its resources
///          and searches are gone, too. May be destroyed anywhere: on another engine's stream (in
///          its call_then() or an inline handler) and in a tasklet the end does not wait, and its
///          engine can have another context soon after. In a child of fork(), what sends,
///          waits or asks others throws error{closed}; what was being sent stays its parent's.
/// Threads: any. Inline handlers of the engine cannot wait, so they must not call members that do.
/// Failure: the constructor throws error{unreachable} if no directory is running or can be started,
///          error{denied} if its directory_roles do not let this process in, error{invalid} if the
///          engine already has a context. When the directory is lost, calls and searches in flight
///          throw error{disconnected}. Later calls and watches wait for it to return, up to
///          context_options::reopen_within; after that, calls throw error{disconnected} and watches
///          end. Meanwhile, messages still flow between contexts that know each other.
/// Cost:    one engine, with one thread; a copy of the attributes of its registered resources.
class context {
public:
    /// Creates an engine at the URIs in AMALGAM_PORTS (comma-separated); by default at "shm://",
    /// plus "tcp://" for outgoing calls only.
    explicit context(context_options options = {});
    explicit context(endpoints ports, context_options options = {});
    explicit context(engine& on, context_options options = {});
    context(const context&) = delete;
    context& operator=(const context&) = delete;
    ~context();

    /// The context's own resource: others can find it and send it messages.
    resource& self() noexcept { return self_; }
    resource_id id() const noexcept { return self_.id(); }
    engine& where() noexcept;

    /// Registers a resource. All attributes must have values.
    /// Failure: throws error{invalid} for an open attribute, error{overloaded} at a limit of the
    ///          directory.
    resource add(const attribute_list& what);

    /// A resource that matches all non-open attributes of `query`, with the open ones filled in:
    /// the first registered with this host's directory, or else any. Empty: none known to the
    /// directories that answered.
    std::optional<found_resource> find(attribute_list query);
    /// Like find(), but distinguishes `not_found` (all directories answered: none has one) from
    /// `timed_out` (some did not answer, the others have none). Other errors are returned, too, not
    /// thrown.
    result<found_resource> try_find(attribute_list query);
    /// The resource with that id, if it matches `query`. If two resources have the id, which takes
    /// a network partition: this host's, else always the same one.
    template <std::same_as<resource_id> Id>  // An id by its type: find({}) asks for any resource.
    std::optional<found_resource> find(Id id, attribute_list query = {}) {
        return find_by_id(id, std::move(query));
    }
    /// The engine that owns a resource, to call its procedures: looked up by all its addresses, or
    /// by one if it only makes calls. A peer of where().
    /// Failure: throws error{not_found} if the resource is gone, error{unreachable},
    ///          error{timed_out} if directories that may have it did not answer.
    /// Cost:    a query and connections the first time; a table lookup afterwards.
    peer lookup(resource_id which);
    peer lookup(const found_resource& which) { return lookup(which.id); }
    /// All matching resources, one at a time.
    resource_search search(attribute_list query);
    /// Calls `function` for each matching resource: for existing ones, and when one appears or
    /// goes, on any host. When a host is lost, its resources go. A watch outlives its directory
    /// within context_options::reopen_within: it is then told what appeared meanwhile and, some
    /// seconds later, what did not come back. Runs as a ULT of the engine; one call at a time per
    /// watch. What it throws is logged, and so is this_task::exit() in it; the watch goes on.
    /// Failure: throws error{invalid} for an empty function.
    [[nodiscard]] resource_watch watch(attribute_list query,
                                       std::function<void(const resource_change&)> function);

    /// A buffer for a message of that size; registered memory if larger than the eager limit.
    /// Failure: throws error{no_memory}.
    message_buffer take_buffer(std::size_t bytes);

    // For layers above.
    detail::context_core& core() noexcept { return *core_; }

private:
    std::optional<found_resource> find_by_id(resource_id id, attribute_list query);

    std::shared_ptr<detail::context_core> core_;
    resource self_;
};

}  // namespace amalgam

#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

/// A message that was posted and did not arrive.
struct undelivered_message {
    resource_id from = resource_id::none;
    resource_id to = resource_id::none;
    std::int32_t tag = 0;
    errc why = errc::ok;  ///< not_found: no such resource; overloaded: no room; disconnected …
};

/// What contexts send each other.
enum class traffic : std::uint8_t {
    small,   ///< Messages of up to context_options::eager_bytes.
    bulk,    ///< Longer ones, and the transfers that bring them.
    control  ///< Waiting for room, and news of what did not arrive.
};

/// Chooses one of the ways to another context, of which there are more than one: its index. The
/// best is the first: see engine::lookup().
using way_choice = std::function<std::size_t(traffic what, std::span<const peer_way> ways)>;

/// What is done without a choice of one's own: small messages go by the best way; bulk by the next
/// that is as near and moves memory by the same means, a second network say, else by the best, too;
/// control by a way that has neither, if there is one.
std::size_t choose_way(traffic what, std::span<const peer_way> ways);

/// How a context behaves. Every field has a default that suits most.
struct context_options {
    /// The directory that it opens at: an address; "here" for one of its own, which only this
    /// process knows. Empty: what AMALGAM_DIRECTORY says, or else this host's own, which is started
    /// (`amalgam directory`) when there is none.
    std::string directory{};
    std::string secret{};   ///< As directory_options::secret; other contexts must know it, too.
    attribute_list what{};  ///< It is a resource, too: more about it, for others to find.
    /// Received messages that nobody has taken yet may hold so much. Past it, long ones wait at
    /// their senders, who wait with them; posted short ones are refused.
    std::size_t store_bytes = std::size_t{256} << 20;
    /// Messages of more bytes are fetched by their receiver, into the memory that it gets them in.
    std::size_t eager_bytes = std::size_t{32} << 10;
    /// When the directory is lost, it is looked for so long: at its address, or, where it is this
    /// host's own, by starting it. What was registered is registered again then, under the old ids.
    /// 0: never. Of "here" never.
    std::chrono::milliseconds reopen_within{10000};
    /// Told of each message that was posted and did not arrive. On the engine's stream: it must not
    /// wait.
    std::function<void(const undelivered_message&)> on_undelivered{};
    /// By which of several ways each other context is sent what; asked when that is first reached.
    /// Where the chosen way is lost another is used.
    way_choice choose{choose_way};
};

/// A process's part in the system: it registers resources, finds those of others, and keeps the
/// messages that its own have not received yet.
///
///     context here;
///     resource server = here.add({{"type", "server"}});
///     resource_message asked = server.receive();
///
/// Owner:   owns its engine, unless it was given one, which outlives it then. Its resources end
///          with it, for others at once.
/// Threads: any. Handlers of the engine that are run inline cannot wait, and so not call what does.
/// Failure: the constructor throws error{unreachable} when no directory runs there, or can be
///          started; error{denied} when that has another secret, or none; error{invalid} when the
///          engine has a context already. When its directory is
///          lost calls that are under way throw error{disconnected}, as do searches; later calls,
///          and watches, wait until it is there again, as context_options::reopen_within says,
///          and from the end of that time on throw error{disconnected}; watches end then. Messages
///          go on meanwhile between those who know each other.
/// Cost:    one engine, with one thread; a copy of the attributes of what it has registered.
class context {
public:
    /// Makes an engine, at the URIs that AMALGAM_PORTS lists, with commas between them; else at
    /// "shm://", and "tcp://" to call others only.
    explicit context(context_options options = {});
    explicit context(endpoints ports, context_options options = {});
    explicit context(engine& on, context_options options = {});
    context(const context&) = delete;
    context& operator=(const context&) = delete;
    ~context();

    /// The context as a resource: it can be found, and get messages.
    resource& self() noexcept { return self_; }
    resource_id id() const noexcept { return self_.id(); }
    engine& where() noexcept;

    /// Registers a resource. All its attributes have values.
    /// Failure: throws error{invalid} for an open attribute, error{overloaded} at a limit of the
    ///          directory.
    resource add(const attribute_list& what);

    /// A resource that has all attributes of `query` that are not open, with the open ones filled:
    /// the first that was registered with this host's directory, or else any. Nothing: there is
    /// none, as far as those directories know that answered.
    std::optional<found_resource> find(attribute_list query);
    /// The same that tells the two apart: `not_found` when all directories have said that they have
    /// none, `timed_out` when some did not answer, and others have none. Throws nothing that
    /// find() does: that is the result's, too.
    result<found_resource> try_find(attribute_list query);
    /// That resource, if it has those attributes. Where two have the id, which takes a network that
    /// was parted: this host's, else always the same one.
    template <std::same_as<resource_id> Id>  // An id by its type: find({}) asks for any resource.
    std::optional<found_resource> find(Id id, attribute_list query = {}) {
        return find_by_id(id, std::move(query));
    }
    /// Who has that resource, to call procedures there: its engine, found by all addresses it has,
    /// and one address where it only calls. A peer of where().
    /// Failure: throws error{not_found} when the resource is gone, error{unreachable},
    ///          error{timed_out} when directories that may have it did not answer.
    /// Cost:    a query and connections the first time; then a look into a table.
    peer lookup(resource_id which);
    peer lookup(const found_resource& which) { return lookup(which.id); }
    /// All of them, one at a time.
    resource_search search(attribute_list query);
    /// `function` is called for each resource that fits: for those there are, and when one appears
    /// or goes, on any host; when a host is lost, what it had goes. A watch outlives its directory
    /// as context_options::reopen_within says: it is told then of what came meanwhile, and, some
    /// seconds later, of what has not come back. As a ULT of the engine; one call at a time for
    /// each watch.
    [[nodiscard]] resource_watch watch(attribute_list query,
                                       std::function<void(const resource_change&)> function);

    /// Memory for a message of so many bytes; registered when that is more than the eager ones
    /// have.
    /// Failure: throws error{no_memory}.
    message_buffer take_buffer(std::size_t bytes);

    // For layers above.
    detail::context_core& core() noexcept { return *core_; }

private:
    std::optional<found_resource> find_by_id(resource_id id, attribute_list query);

    std::unique_ptr<engine> own_;
    std::shared_ptr<detail::context_core> core_;
    resource self_;
};

}  // namespace amalgam

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam {
class engine;
struct remote_key;
}  // namespace amalgam

/// Access to an engine's internals for layers above. Any thread.
namespace amalgam::detail {

class engine_core;
struct remote_procedure;

/// The engine as its own peer, even if it does not listen.
peer self_of(const engine_core& core) noexcept;
/// Incarnation in all of this engine's exposure keys for peer::self_port; never 0.
std::uint64_t home_of(const engine_core& core) noexcept;
/// Its ports, in order; the address is empty for a port that does not listen.
std::size_t port_count(const engine_core& core) noexcept;
const std::string& port_address(const engine_core& core, std::size_t port) noexcept;
/// Whether remote keys of that port are bound to its peers, who prove who they are, or may be of
/// another user.
bool binds_keys(engine_core& core, std::size_t port) noexcept;
/// Whether one of its ports proves itself by that key now: see port::self().
bool has_key(const engine_core& core, const key_fingerprint& key);
/// A remote key of this engine's port `port`, one that binds_keys(), as it is given to `holder`,
/// who cannot give it to others: it works for whom `holder` has proved to be; if it is still
/// connecting by that port, for that connection; and for nobody if it is known by another way only.
/// Cost: asks the engine's stream.
remote_key key_for(engine_core& core, const peer& holder, std::size_t port,
                   const remote_key& key) noexcept;
/// The keys of all ports for the exposure with this key of peer::self_port, for everybody. Empty if
/// it has ended, if it is shareable, or where the engine's stream cannot be asked.
std::vector<remote_key> keys_at_home(engine_core& core, const remote_key& home) noexcept;
/// Whether no path leads to that peer any more. A hint: it may miss a peer lost long ago.
bool is_lost(const engine_core& core, const peer& who) noexcept;
/// engine::lookup() that throws only if out of memory.
result<peer> find_peer(engine_core& core, std::string_view address);
/// Whether any peer may be known by several paths: see multipath_transfer.
bool knows_routes(const engine_core& core) noexcept;
/// The clock used for its deadlines.
clock::time_point now_of(const engine_core& core) noexcept;
/// Where its handlers run by default.
pool& pool_of(engine_core& core);
/// Throws error{invalid} where the caller would wait forever.
void check_may_wait(const engine_core& core);
/// Throws error{closed} after stop(), and in a child of fork().
void check_runs(const engine_core& core);
/// Whether this process is a child of fork(), so that none of the engine's code runs in it.
bool is_of_parent(const engine_core& core) noexcept;
/// As engine::intern(): the procedure as callers name it.
const remote_procedure& intern(engine_core& core, std::string_view name, std::string signature);
/// Runs `define()`, which defines the library procedure `first`. For layers of which an engine has
/// at most one: if the name is taken, the error is "this engine has {what} already …". Failure:
/// throws error{invalid} then; otherwise what engine::define() throws.
void define_first(engine_core& core, std::string_view first, std::string_view what,
                  const std::function<void()>& define);
/// What end_serving() ends: by its name and provider.
struct served_name {
    std::string_view name;
    std::uint16_t provider = 0;
    std::uint64_t number = 0;  ///< Only that definition of the name; 0: whichever there is.
};
/// engine::undefine() for destructors: throws nothing, and takes library procedures, too. Where the
/// caller cannot wait (in call_then() or an inline handler of another engine, in a tasklet), the
/// engine's stream does it soon, all at once; until then handlers may still begin, so what they use
/// must be shared. Out of memory there, they are served until the engine ends, which is logged.
void end_serving(engine_core& core, std::span<const served_name> which) noexcept;
/// Memory that peers on the same host access as fast as a port of the engine allows: see
/// port::allocate(). Released on the engine's stream, from whatever thread it is dropped.
/// Failure: throws error{no_memory}, error{closed}.
struct port_memory {
    std::shared_ptr<void> holder;
    mutable_bytes bytes;
};
port_memory allocate_port_memory(engine_core& core, std::size_t bytes);

}  // namespace amalgam::detail

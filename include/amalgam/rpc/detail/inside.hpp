#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/rpc/peer.hpp>

/// What layers above may ask the inside of an engine. Any thread.
namespace amalgam::detail {

class engine_core;

/// The engine as its own peer, also when it does not listen.
peer self_of(const engine_core& core) noexcept;
/// What every key of an exposure of this engine's holds, for peer::self_port; never 0.
std::uint64_t home_of(const engine_core& core) noexcept;
/// Of its ports, in order; empty where one does not listen.
std::size_t port_count(const engine_core& core) noexcept;
const std::string& port_address(const engine_core& core, std::size_t port) noexcept;
/// No way leads to that peer any more: a hint, which may miss one that was lost long ago.
bool is_lost(const engine_core& core, const peer& who) noexcept;
/// engine::lookup(), but for its exceptions of want of memory.
result<peer> find_peer(engine_core& core, std::string_view address);
/// Some peer may be known by several ways: see routed_transfer.
bool knows_routes(const engine_core& core) noexcept;
/// The clock that its deadlines go by.
clock::time_point now_of(const engine_core& core) noexcept;
/// Throws error{invalid} where the caller would wait for ever.
void check_may_wait(const engine_core& core);
/// Runs `define()`, which defines the library's procedure `first`. Of what does so an engine has
/// one: where the name is taken, "this engine has {what} already …"; all other failures are
/// define()'s. Failure: throws error{invalid} for that; what engine::define() does.
void define_first(engine_core& core, std::string_view first, std::string_view what,
                  const std::function<void()>& define);
/// Memory that peers on the same host reach as fast as a port of the engine can let them: see
/// port::allocate(). Given back on the engine's stream, whoever drops it.
/// Failure: throws error{no_memory}, error{closed}.
struct port_memory {
    std::shared_ptr<void> holder;
    mutable_bytes bytes;
};
port_memory allocate_port_memory(engine_core& core, std::size_t bytes);

}  // namespace amalgam::detail

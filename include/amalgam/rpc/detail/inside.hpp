#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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
/// engine::lookup(), but for its exceptions of want of memory.
result<peer> find_peer(engine_core& core, std::string_view address);
/// The clock that its deadlines go by.
clock::time_point now_of(const engine_core& core) noexcept;
/// False: its time stands still while the caller would wait.
bool can_wait_here(const engine_core& core) noexcept;

}  // namespace amalgam::detail

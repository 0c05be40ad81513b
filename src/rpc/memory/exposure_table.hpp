#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/extension/exposure.hpp>

#include "rpc/context/engine_context.hpp"

namespace amalgam::detail {

/// Memory of an engine that is registered with one of its ports.
struct registered_memory {
    std::uint64_t regions = 0;
    std::uint64_t bytes = 0;
    std::uint64_t so_far = 0;  ///< Regions, with those that are closed.
};

/// Registration table: the memory an engine exposes to its peers, found by its key.
///
/// Threads: the engine's stream, except incarnation() and context().
class exposure_table {
public:
    /// `ports` are empty once the engine has ended.
    exposure_table(engine_context& context,
                   const std::vector<std::unique_ptr<port>>& ports) noexcept;

    /// Registers the segments with the port of one peer, or with all ports if `only` is null.
    /// Throws error{closed} after the end.
    void open(exposure& mine, const peer* only);
    /// Ends all access to the bytes. Idempotent.
    void close(exposure& mine) noexcept;
    /// Closes all exposures. Call before the ports end.
    void close_all() noexcept;

    /// The exposure of one of our keys, if it grants `asked` on that range; else null.
    const exposure* find(const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                         access asked) const noexcept;
    /// See inside.hpp. Any thread.
    remote_key key_for(const peer& holder, std::size_t port, const remote_key& key) const noexcept;
    std::vector<remote_key> keys_at_home(const remote_key& home) const noexcept;
    /// Part of each of our keys, and of no key of another engine or port; never 0.
    std::uint64_t incarnation() const noexcept { return incarnation_; }
    /// Cost: visits all exposures.
    registered_memory registered_at(std::size_t port) const noexcept;
    engine_context& context() noexcept { return context_; }

private:
    /// The engine's stream.
    remote_key bound_at_port(const peer& holder, std::size_t port, const remote_key& key) const;

    engine_context& context_;
    const std::vector<std::unique_ptr<port>>& ports_;
    std::uint64_t incarnation_;
    std::unordered_map<std::uint64_t, exposure*> by_secret_;
    std::vector<std::uint64_t> registered_;  // So far, by port.
};

exposure_table& exposures_of(engine_core& core) noexcept;

/// Whether the port binds remote keys to its peers: each has proved who it is, or may be of another
/// user.
bool binds_remote_keys(const port& which) noexcept;

}  // namespace amalgam::detail

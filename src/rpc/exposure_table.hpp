#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/detail/exposure.hpp>

namespace amalgam::detail {

/// The memory that an engine shows to its peers, and how it finds its own by a key.
///
/// Threads: the engine's stream, but for incarnation().
class exposure_table {
public:
    exposure_table() noexcept;

    /// Registers the segments, through one port or (`only` null) all of them.
    void open(exposure& mine, std::span<const std::unique_ptr<port>> ports, const peer* only);
    /// Nobody reaches the bytes any more. Again: nothing.
    void close(exposure& mine) noexcept;
    /// Closes all that there are. Before the ports go.
    void close_all() noexcept;

    /// What an own key names, if it allows `asked` of that range; else null.
    const exposure* find(const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                         access asked) const noexcept;
    /// In every own key, and in none of another engine or a port; never 0.
    std::uint64_t incarnation() const noexcept { return incarnation_; }

private:
    std::uint64_t incarnation_;
    std::unordered_map<std::uint64_t, exposure*> by_secret_;
};

}  // namespace amalgam::detail

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/extension/exposure.hpp>

namespace amalgam::detail {

/// Registration table: the memory an engine exposes to its peers, found by its key.
///
/// Threads: the engine's stream, except incarnation().
class exposure_table {
public:
    exposure_table() noexcept;

    /// Registers the segments with one port, or with all if `only` is null.
    void open(exposure& mine, std::span<const std::unique_ptr<port>> ports, const peer* only);
    /// Ends all access to the bytes. Idempotent.
    void close(exposure& mine) noexcept;
    /// Closes all exposures. Call before the ports end.
    void close_all() noexcept;

    /// The exposure of one of our keys, if it grants `asked` on that range; else null.
    const exposure* find(const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                         access asked) const noexcept;
    /// Part of each of our keys, and of no key of another engine or port; never 0.
    std::uint64_t incarnation() const noexcept { return incarnation_; }

private:
    std::uint64_t incarnation_;
    std::unordered_map<std::uint64_t, exposure*> by_secret_;
};

}  // namespace amalgam::detail

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam {

class port;

/// What a peer may do with a region: `read` to get, `write` to put, both for atomic operations.
enum class access : std::uint8_t {
    read = 1,       ///< Gets.
    write = 2,      ///< Puts.
    read_write = 3  ///< Gets, puts and atomic operations.
};

/// Whether rights that were granted include those that are asked for.
constexpr bool allows(access granted, access asked) noexcept {
    return (static_cast<unsigned>(granted) & static_cast<unsigned>(asked)) ==
           static_cast<unsigned>(asked);
}

/// Grants remote read or write access to a region. Send it to a peer to grant access.
///
/// Checked at the target: `secret` is 64 random bits and `incarnation` identifies one run of the
/// port that made the key. A forged, stale or foreign key gets `denied` and touches nothing.
struct remote_key {
    static constexpr std::size_t wire_bytes = 40;  ///< Length of encode().

    std::uint64_t secret = 0;       ///< 64 random bits.
    std::uint64_t region = 0;       ///< Slot and generation in the target's table.
    std::uint64_t incarnation = 0;  ///< Of the target's port.
    std::uint64_t bytes = 0;        ///< Total length of the region, over all segments.
    access rights = access::read;   ///< What it grants.
    std::uint8_t reserved[7] = {};  ///< Zero; not checked.

    /// Whether this key, as it was issued, grants `asked` on [from, from + count) to who showed
    /// `shown`: every part must be as issued.
    constexpr bool grants(const remote_key& shown, std::uint64_t from, std::uint64_t count,
                          access asked) const noexcept {
        // Not `from + count <= bytes`: the sum may wrap around.
        return shown.secret == secret && shown.region == region &&
               shown.incarnation == incarnation && shown.bytes == bytes && shown.rights == rights &&
               allows(rights, asked) && from <= bytes && count <= bytes - from;
    }

    std::array<std::byte, wire_bytes> encode() const noexcept;  ///< Little-endian.
    /// Reads what encode() wrote; any bytes give some key, which its owner checks.
    static remote_key decode(std::span<const std::byte, wire_bytes> wire) noexcept;
    friend bool operator==(const remote_key&, const remote_key&) = default;
};
static_assert(std::is_trivially_copyable_v<remote_key>);

/// Local memory that peers may read or write while this object lives.
///
/// The segments form one logical range, in order: offset 0 is the first byte of the first segment.
/// Owner:   the caller owns the bytes; a region owns only their registration.
/// Threads: the port's thread; const members may run concurrently.
/// Failure: port::open_region() returns `no_memory` at a pinning or table limit.
/// Cost:    may pin pages; do it at set-up, not per transfer.
class region {
public:
    region() = default;
    region(port& owner, std::uint64_t id, const remote_key& key) noexcept
        : owner_(&owner), id_(id), key_(key) {}
    region(region&& from) noexcept
        : owner_(std::exchange(from.owner_, nullptr)), id_(from.id_), key_(from.key_) {}
    region& operator=(region&& from) noexcept {
        std::swap(owner_, from.owner_);
        std::swap(id_, from.id_);
        std::swap(key_, from.key_);
        return *this;
    }
    /// Precondition: the port still lives. Peers' transfers in flight end with `denied`. Afterwards
    /// no peer reads or writes the bytes, whatever it sent or requested before.
    /// Returns at once unless peers copy memory directly (can().rma is not `emulated`, or
    /// shares_blocks). Then it waits for a copy in flight, some microseconds. If the copying
    /// process was stopped in the middle of a write (SIGSTOP, a debugger), it waits until that
    /// process resumes or exits, since the process could still write later; kill it to end the
    /// wait.
    ~region();

    explicit operator bool() const noexcept { return owner_ != nullptr; }
    /// What to send to a peer that may access it. It works for whoever has it, over tcp+tls, too,
    /// among the peers that the port lets in: rpc and bulk bind theirs to the peer they send it to.
    const remote_key& key() const noexcept { return key_; }
    std::uint64_t bytes() const noexcept { return key_.bytes; }

private:
    port* owner_ = nullptr;
    std::uint64_t id_ = 0;
    remote_key key_;
};

}  // namespace amalgam

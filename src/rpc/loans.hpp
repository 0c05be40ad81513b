#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/rpc/detail/loans.hpp>

#include "rpc/known_peers.hpp"
#include "rpc/outbox.hpp"

namespace amalgam::detail {

/// Both sides of loans: what this engine lends to whom, and how it releases what others lent.
///
/// Threads: the engine's stream.
class loans {
public:
    explicit loans(outbox& out) noexcept : out_(out) {}

    /// Keeps what a message to `to` lends, from before it leaves. False: no memory.
    bool keep(const peer& to, const lent_list& what) noexcept;
    /// The message did not leave: the peer will not release it.
    void withdraw(const peer& to, const lent_list& what) noexcept;
    /// `ids`: as a release message carries them.
    void on_release(const peer& from, const_bytes ids) noexcept;
    void on_peer_down(const peer& gone) noexcept;
    void close() noexcept;

    /// Tells `lender` that these are not used any more.
    void release(peer_state& lender, const_bytes ids) noexcept;
    void release(peer_state& lender, const loan_ids& ids) noexcept;

    /// Kept for all peers.
    const owned_counter& size() const noexcept { return size_; }

private:
    using of_peer = std::unordered_map<std::uint64_t, std::shared_ptr<void>>;
    void drop(const peer& to, std::uint64_t id) noexcept;

    outbox& out_;
    std::unordered_map<peer, of_peer> kept_;
    owned_counter size_;
};

/// The ids in the extras of a message; empty when there are none.
const_bytes loans_of(const_bytes extras) noexcept;
loan_ids to_ids(const_bytes wire);

}  // namespace amalgam::detail

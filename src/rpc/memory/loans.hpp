#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/rpc/extension/loans.hpp>

#include "rpc/memory/loan_end.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/outbox.hpp"
#include "rpc/peers/routes.hpp"

namespace amalgam::detail {

/// Borrowed buffers, both sides: what this engine lends to peers, and how it releases what it
/// borrowed.
///
/// Threads: the engine's stream.
class loans {
public:
    /// Limits for memory lent by answers: per peer, and in total. See engine_options.
    loans(outbox& out, route_table& routes, std::size_t most_to_one,
          std::size_t most_to_all) noexcept
        : out_(out), routes_(routes), most_to_one_(most_to_one), most_to_all_(most_to_all) {}

    /// Keeps what a request or one-way call to `to` lends, before it is sent. False: no memory.
    bool keep(const peer& to, const lent_list& what) noexcept;
    /// The same for an answer, whose receiver decides how long it is kept: `overloaded` past the
    /// limits. A single answer always fits. If the total limit is reached by a peer that holds less
    /// than another, that other peer is disconnected and what it holds is freed.
    status keep_answer(const peer& to, const lent_list& what) noexcept {
        return what.empty() ? status{} : keep_lent(to, what);  // Most answers lend nothing.
    }
    /// The message was not sent: the peer will not release it.
    void withdraw(const peer& to, const lent_list& what) noexcept;
    /// `ids`: from a release message.
    void on_release(const peer& from, const_bytes ids) noexcept;
    void on_peer_down(const peer& gone) noexcept;
    void close() noexcept;

    /// Tells `lender` that these are no longer used.
    void release(peer_state& lender, const_bytes ids) noexcept;
    void release(peer_state& lender, const loan_ids& ids) noexcept;
    /// The same over whatever path leads there now; does nothing if none does.
    void release(const peer& lender, const loan_ids& ids) noexcept;
    void release(const peer& lender, std::uint64_t id) noexcept;

    /// Values not yet fetched by a peer's engine. The others are descriptors, held by the peer's
    /// user.
    std::size_t unfetched() const noexcept { return unfetched_; }
    /// Buffers kept, over all peers.
    const owned_counter& size() const noexcept { return size_; }
    /// Bytes lent by answers, over all peers.
    const owned_counter& borrowed_bytes() const noexcept { return borrowed_bytes_; }
    /// Peers disconnected for holding too much.
    const owned_counter& taken_back() const noexcept { return taken_back_; }

private:
    /// Approximate overhead per buffer.
    static constexpr std::size_t overhead_bytes = 256;
    struct kept_one {
        std::shared_ptr<void> what;
        std::size_t bytes = 0;  ///< As counted.
        bool values = false;
        std::shared_ptr<loan_end> end{};
    };
    struct of_peer {
        std::unordered_map<std::uint64_t, kept_one> all;
        std::size_t bytes = 0;
        std::size_t unfetched = 0;
    };
    bool keep(const peer& to, const lent_list& what, bool counts) noexcept;
    status keep_lent(const peer& to, const lent_list& what) noexcept;
    void take_back(const peer& from) noexcept;
    void drop(const peer& to, std::uint64_t id, loan_end::how how) noexcept;

    outbox& out_;
    route_table& routes_;
    std::unordered_map<peer, of_peer> kept_;
    std::size_t most_to_one_;
    std::size_t most_to_all_;
    std::size_t unfetched_ = 0;
    owned_counter size_;
    owned_counter borrowed_bytes_;
    owned_counter taken_back_;
};

loans& loans_of(engine_core& core) noexcept;

/// The ids in a message's extras; empty if none.
const_bytes loans_in(const_bytes extras) noexcept;
loan_ids to_ids(const_bytes wire);

}  // namespace amalgam::detail

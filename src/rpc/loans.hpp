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
    /// What answers may lend: to one peer, and to all. See engine_options.
    loans(outbox& out, std::size_t most_to_one, std::size_t most_to_all) noexcept
        : out_(out), most_to_one_(most_to_one), most_to_all_(most_to_all) {}

    /// Keeps what a request or one-way call to `to` lends, from before it leaves. False: no memory.
    bool keep(const peer& to, const lent_list& what) noexcept;
    /// The same for an answer, whose receiver decides how long it is kept: `overloaded` past the
    /// bounds. One answer always fits. Where the bound of all is met by somebody who holds less
    /// than another, that other one's connection ends and what it holds is taken back.
    status keep_answer(const peer& to, const lent_list& what) noexcept {
        return what.empty() ? status{} : keep_lent(to, what);  // Most answers lend nothing.
    }
    /// The message did not leave: the peer will not release it.
    void withdraw(const peer& to, const lent_list& what) noexcept;
    /// `ids`: as a release message carries them.
    void on_release(const peer& from, const_bytes ids) noexcept;
    void on_peer_down(const peer& gone) noexcept;
    void close() noexcept;

    /// Tells `lender` that these are not used any more.
    void release(peer_state& lender, const_bytes ids) noexcept;
    void release(peer_state& lender, const loan_ids& ids) noexcept;

    /// Values among them: the library of some peer is fetching them. The rest is descriptors, which
    /// the peer's user has.
    std::size_t unfetched() const noexcept { return unfetched_; }
    /// Kept for all peers.
    const owned_counter& size() const noexcept { return size_; }
    /// Of memory, by answers, to all peers.
    const owned_counter& borrowed_bytes() const noexcept { return borrowed_bytes_; }
    /// Peers whose loans were taken back, with their connection.
    const owned_counter& taken_back() const noexcept { return taken_back_; }

private:
    /// What keeping a loan takes besides, about.
    static constexpr std::size_t overhead_bytes = 256;
    struct kept_one {
        std::shared_ptr<void> what;
        std::size_t bytes = 0;  ///< As they count.
        bool values = false;
    };
    struct of_peer {
        std::unordered_map<std::uint64_t, kept_one> all;
        std::size_t bytes = 0;
        std::size_t unfetched = 0;
    };
    bool keep(const peer& to, const lent_list& what, bool counts) noexcept;
    status keep_lent(const peer& to, const lent_list& what) noexcept;
    void take_back(const peer& from) noexcept;
    void drop(const peer& to, std::uint64_t id) noexcept;

    outbox& out_;
    std::unordered_map<peer, of_peer> kept_;
    std::size_t most_to_one_;
    std::size_t most_to_all_;
    std::size_t unfetched_ = 0;
    owned_counter size_;
    owned_counter borrowed_bytes_;
    owned_counter taken_back_;
};

/// The ids in the extras of a message; empty when there are none.
const_bytes loans_of(const_bytes extras) noexcept;
loan_ids to_ids(const_bytes wire);

}  // namespace amalgam::detail

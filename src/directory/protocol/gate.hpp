#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <amalgam/core/counter.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {

using gate_nonce = std::array<std::uint8_t, 16>;
using gate_proof = std::array<std::uint8_t, 32>;

/// Compares in constant time.
bool same(const gate_proof& a, const gate_proof& b) noexcept;

/// The answer to a challenge: a counter-challenge, and the proof of the answering side.
struct gate_answer {
    gate_nonce nonce{};
    gate_proof proof{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(nonce, proof);
    }
};

/// The secret from the options; else the contents of the file named by AMALGAM_SECRET_FILE, without
/// the line end; else empty.
/// Failure: throws error{not_found} for an unreadable file, error{invalid} for an empty one or one
///          over 64 KiB.
std::string secret_of(const std::string& said);

/// The peer does not authenticate: it has no secret, or its directory has ended.
class no_gate : public error {
public:
    using error::error;
};

/// Shared-secret authentication; off without a secret. Each side proves that it knows the secret by
/// a keyed hash of two random numbers, one from each side; the secret never travels. From then on
/// the connection is trusted. Its contents are not encrypted: this keeps strangers out, not an
/// attacker who can modify packets in transit.
///
/// Owner:   shared with the handlers that run.
/// Threads: any.
class gate : public std::enable_shared_from_this<gate> {
public:
    /// `role`: "directory" or "context"; at most one gate of each per engine.
    gate(engine& on, std::string_view role, const std::string& secret);

    void start();
    /// From here on check_caller() refuses everybody.
    void end() noexcept { ended_.store(true, std::memory_order_relaxed); }
    /// The same, and no longer authenticates.
    void stop() noexcept;

    /// Mutual authentication with the gate of that role at the peer, once per connection and role.
    /// Parks. Takes up to a second if the directory has no gate, as one that is just starting.
    /// Failure: throws error{denied}, {unreachable}, {disconnected}, {timed_out}; no_gate{denied}.
    void enter(const peer& there, std::string_view role,
               std::chrono::nanoseconds within = std::chrono::seconds(5));
    /// The peer's gate has ended: authenticate again with its replacement.
    void leave(const peer& there);
    /// Throws error{denied} unless the caller of the call being served is authenticated, and
    /// error{not_found} after end().
    void check_caller();
    /// Whether that peer is authenticated.
    bool trusts(const peer& who);
    /// Somebody was turned away by who asked trusts().
    void count_refused() noexcept { refused_.add(); }

    std::size_t remembered() const;  ///< Number of peers that are trusted or have been challenged.

    bool is_open() const noexcept { return open_; }  ///< No secret: everybody is trusted.
    /// A hash that only holders of the secret can compute. `purpose` separates hashes for different
    /// uses.
    gate_proof hash(std::string_view purpose, std::string_view text) const;

private:
    gate_proof prove(std::string_view role, bool caller, const gate_nonce& theirs,
                     const gate_nonce& ours) const;
    gate_answer challenged(gate_nonce nonce);
    bool proved(gate_proof proof);

    engine& on_;
    const std::string role_;
    const std::string challenge_name_, prove_name_;
    const bool open_;
    std::array<std::uint8_t, 32> key_{};  // Derived from the secret.
    bool is_shown_ = false;
    std::atomic<bool> ended_{false};
    peer_lost_subscription losses_;
    counter& refused_;

    mutable std::mutex lock_;
    using challenge = std::pair<gate_nonce, gate_nonce>;  // The peer's, ours.
    // A peer that arrives over two paths at once is challenged twice.
    std::unordered_map<peer, std::deque<challenge>> challenges_;
    std::unordered_set<peer> trusted_;
    std::unordered_map<peer, std::set<std::string, std::less<>>> entered_;  // By role.
};

}  // namespace amalgam::detail

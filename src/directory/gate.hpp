#pragma once

#include <array>
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

/// In a time that does not depend on where they differ.
bool same(const gate_proof& a, const gate_proof& b) noexcept;

/// The answer to a challenge: a challenge in turn, and the proof of who answers.
struct gate_answer {
    gate_nonce nonce{};
    gate_proof proof{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(nonce, proof);
    }
};

/// The secret as the options have it; else the contents of the file that AMALGAM_SECRET_FILE names,
/// without the line end; else nothing.
/// Failure: throws error{not_found} for a file that cannot be read, error{invalid} for an empty
/// one, and for one of more than 64 KiB.
std::string secret_of(const std::string& said);

/// Nobody asks for a secret there: it has none, or its directory has ended.
class no_gate : public error {
public:
    using error::error;
};

/// Lets in who knows a secret, and nobody else; with none everybody. Each side proves to the other
/// that it knows it, by a keyed hash of two random numbers, one of each: the secret itself never
/// travels. From there on the connection is trusted. What it carries is not encrypted, so this
/// keeps strangers out, not somebody who can change packets on the way.
///
/// Owner:   shared with the handlers that run.
/// Threads: any.
class gate : public std::enable_shared_from_this<gate> {
public:
    /// `role`: "directory" or "context"; an engine may have one gate of each.
    gate(engine& on, std::string_view role, const std::string& secret);

    void start();
    void stop() noexcept;

    /// Proves to the gate of that role there that this side knows the secret, and the other way
    /// round; once for each connection and role. Parks; a second, where a directory shows none, as
    /// one that has just begun does not yet.
    /// Failure: throws error{denied}, {unreachable}, {disconnected}, {timed_out}; no_gate{denied}.
    void enter(const peer& there, std::string_view role,
               std::chrono::nanoseconds within = std::chrono::seconds(5));
    /// What was there has ended: another in its place is to be entered anew.
    void leave(const peer& there);
    /// Who makes the call that is served here has proved it. Throws error{denied}.
    void check_caller();
    /// Whether that one is let in.
    bool trusts(const peer& who);

    std::size_t remembered() const;  ///< Who is: those that it trusts, or has challenged.

    bool is_open() const noexcept { return open_; }  ///< There is no secret.
    /// What only who knows the secret can make of it. `purpose` sets those apart that are made for
    /// different ends.
    gate_proof hash(std::string_view purpose, std::string_view text) const;

private:
    gate_proof prove(std::string_view role, bool caller, const gate_nonce& theirs,
                     const gate_nonce& ours) const;
    gate_answer challenged(gate_nonce nonce);
    bool proved(gate_proof proof);

    engine& on_;
    const std::string role_;
    const bool open_;
    std::array<std::uint8_t, 32> key_{};  // Made of the secret.
    bool is_shown_ = false;
    peer_lost_subscription losses_;
    counter& refused_;

    mutable std::mutex lock_;
    using challenge = std::pair<gate_nonce, gate_nonce>;  // Theirs, ours.
    // One that comes by two ways at once is challenged twice.
    std::unordered_map<peer, std::deque<challenge>> challenges_;
    std::unordered_set<peer> trusted_;
    std::unordered_map<peer, std::set<std::string, std::less<>>> entered_;  // By which roles.
};

}  // namespace amalgam::detail

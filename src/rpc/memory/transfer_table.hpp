#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/extension/transfer.hpp>

#include "rpc/limits.hpp"
#include "rpc/memory/exposure_table.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/peer_addresses.hpp"

namespace amalgam::detail {

/// A piece of a transfer in flight at a port, with its part of the local segment list.
struct transfer_piece : completion {
    transfer_piece() noexcept : completion(&on_done) {}
    static void on_done(completion& self, status what, std::size_t bytes) noexcept;

    transfer_record* whose = nullptr;
    transfer_piece* next = nullptr;  ///< In the transfer's list, or the free list.
    std::size_t bytes = 0;
    std::size_t count = 0;  ///< Segments.
    bool canceled = false;
    std::array<mutable_bytes, limits::max_piece_segments> into;
    std::array<const_bytes, limits::max_piece_segments> from;
};

/// Counters of transfers.
struct transfer_counts {
    owned_counter begun;
    owned_counter failed;
    owned_counter bytes;
};

/// What transfers posted to a port.
struct one_sided_counts {
    std::uint64_t puts = 0;
    std::uint64_t gets = 0;
    std::uint64_t retries = 0;  ///< Found no room, and are tried again.
};

/// The transfers started by an engine. Each ends exactly once: by its last piece, a failure, its
/// deadline, cancellation, loss of the peer, or the end of the engine.
///
/// Threads: the engine's stream.
class transfer_table {
public:
    /// `own`: what this engine exposes. An unresponsive peer is disconnected at `silence_limit`.
    transfer_table(engine_context& context, known_peers& peers, peer_addresses& addresses,
                   const exposure_table& own, std::chrono::milliseconds silence_limit) noexcept
        : context_(context),
          peers_(peers),
          addresses_(addresses),
          own_(own),
          silence_limit_(silence_limit) {}

    void open(std::span<const std::unique_ptr<port>> ports);
    void begin(transfer_record& mine) noexcept;
    void cancel(transfer_record& mine) noexcept;
    /// Continues transfers waiting for this port, or for their turn. Returns how many pieces moved.
    /// peer::self_port: those to ourselves.
    std::size_t flush(std::uint16_t port) noexcept {
        return waiting_ == 0 ? 0 : flush(list_of(port));
    }
    /// How many flush() has to look at.
    std::size_t waiting() const noexcept { return waiting_; }
    /// Some can continue without anything arriving.
    bool runnable() const noexcept { return runnable_ != 0; }
    void on_peer_down(peer_state& gone, status why) noexcept;
    /// Ends all; new ones end with `closed`.
    void close() noexcept;

    /// A transfer made of several counts as pending from here,
    void hold() noexcept { ++pending_; }
    /// to here.
    void let_go() noexcept;
    static void record(const transfer_record& mine) noexcept;
    std::size_t pending() const noexcept { return pending_; }
    /// At rest: no record waits, and every piece is free. For tests.
    bool is_at_rest() const noexcept;
    bool is_closed() const noexcept { return closed_; }
    /// The next one with the same peer; null: none.
    static const transfer_record* next_of(const transfer_record& mine) noexcept {
        return mine.next_of_peer_;
    }
    const transfer_counts& counts() const noexcept { return counts_; }
    const one_sided_counts& counts_at(std::size_t port) const noexcept { return at_ports_[port]; }
    std::chrono::milliseconds silence_limit() const noexcept { return silence_limit_; }

private:
    friend struct transfer_piece;
    struct waiting_list {
        transfer_record* first = nullptr;
        transfer_record* last = nullptr;
    };
    enum class step : std::uint8_t { moved, posted, full, stuck };

    waiting_list& list_of(std::uint16_t port) noexcept {
        return port == peer::self_port ? lists_.back() : lists_[port];
    }
    std::size_t flush(waiting_list& those) noexcept;
    void link(transfer_record& mine, peer_state& there) noexcept;
    void unlink(transfer_record& mine) noexcept;
    void wait(transfer_record& mine, bool for_its_turn) noexcept;
    void stop_waiting(transfer_record& mine) noexcept;
    void arm(transfer_record& mine);
    std::size_t advance(transfer_record& mine) noexcept;
    step post_piece(transfer_record& mine) noexcept;
    bool copy_own(transfer_record& mine, const transfer_piece& piece) noexcept;
    void fill(transfer_record& mine, transfer_piece& piece) noexcept;
    transfer_piece* take_piece() noexcept;
    void give_back(transfer_piece& piece) noexcept;
    void arrived(transfer_record& mine, std::size_t bytes) noexcept;
    void piece_done(transfer_piece& piece, status what) noexcept;
    void end(transfer_record& mine, status what, std::string_view text = {}) noexcept;
    void let_go(transfer_record& mine) noexcept;
    void limit_wait(transfer_record& mine) noexcept;
    void cut_off(transfer_record& stuck) noexcept;
    void explain(transfer_record& mine, status what, std::string_view text) noexcept;
    const char* refuse(const transfer_record& mine, status& what) const noexcept;

    engine_context& context_;
    known_peers& peers_;
    peer_addresses& addresses_;
    const exposure_table& own_;
    const std::chrono::milliseconds silence_limit_;
    std::vector<port*> ports_;
    std::vector<one_sided_counts> at_ports_;
    std::vector<waiting_list> lists_;  // One per port, then one for ourselves.
    std::vector<std::unique_ptr<transfer_piece>> all_pieces_;
    transfer_piece* free_pieces_ = nullptr;
    std::size_t pending_ = 0;
    std::size_t waiting_ = 0;
    std::size_t runnable_ = 0;
    bool closed_ = false;
    transfer_counts counts_;
};

transfer_table& transfers_of(engine_core& core) noexcept;

}  // namespace amalgam::detail

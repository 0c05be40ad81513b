#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/engine_statistics.hpp>
#include <amalgam/rpc/peer.hpp>

#include "rpc/peers/peer_addresses.hpp"
#include "rpc/statistics/call_parent.hpp"
#include "rpc/statistics/summed_value.hpp"

namespace amalgam::detail {

/// What is counted of one path.
///
/// Threads: add() may run on any.
struct counted_row {
    call_path path;
    std::atomic<std::uint64_t> failures{0};
    summed_value took;    ///< Nanoseconds: of the call, in the handler, or of the transfer.
    summed_value before;  ///< Nanoseconds that a handler waited; bytes of a transfer.

    void add_call(status how, clock::duration whole) noexcept;
    void add_handler(status how, clock::duration waited, clock::duration ran) noexcept;
    void add_transfer(status how, std::uint64_t bytes, clock::duration whole) noexcept;
};

/// Whose row is wanted. Borrows the names.
struct row_key {
    std::string_view procedure;
    std::uint16_t provider = 0;
    peer who;
    call_parent parent;

    friend bool operator==(const row_key&, const row_key&) = default;
};

/// The rows of one kind.
///
/// Threads: the engine's stream.
/// Cost:    of() takes a hash of the names, and memory for a new row.
class counted_rows {
public:
    explicit counted_rows(std::size_t most) : most_(most) { others_.path.procedure = "others"; }

    /// Past the bound, and without memory: the row of all others.
    counted_row& of(const row_key& key, peer_addresses& addresses) noexcept;
    /// Calls `visit(row)` for each, last for that of the others if it has counted anything.
    template <typename Function>
    void for_each(Function visit) const {
        for (const auto& [key, each] : rows_)
            visit(*each);
        if (others_.took.read().num != 0) visit(others_);
    }

private:
    struct hash {
        std::size_t operator()(const row_key& key) const noexcept;
    };
    counted_row& add(const row_key& key, peer_addresses& addresses);

    const std::size_t most_;
    // Keys borrow the names of their rows, which never move.
    std::unordered_map<row_key, std::unique_ptr<counted_row>, hash> rows_;
    counted_row others_;
};

/// What an engine counts with engine_options::statistics.
///
/// Threads: the engine's stream; once it is closed, read() on any.
class statistics_table {
public:
    /// `rows`: of each kind.
    statistics_table(std::size_t rows, peer_addresses& addresses)
        : addresses_(addresses), calls_(rows), handlers_(rows), transfers_(rows) {}

    /// Where a handler adds its times once it has returned, on any thread.
    counted_row& handler(const row_key& key) noexcept { return handlers_.of(key, addresses_); }
    void called(const row_key& key, status how, clock::duration whole) noexcept;
    void transferred(const row_key& key, status how, std::uint64_t bytes,
                     clock::duration whole) noexcept;

    /// Peers with several connections from one address are one.
    engine_statistics read() const;
    /// The engine ends: no row is made any more.
    void close() noexcept { closed_ = true; }

private:
    peer_addresses& addresses_;
    counted_rows calls_;
    counted_rows handlers_;
    counted_rows transfers_;
    bool closed_ = false;
};

}  // namespace amalgam::detail

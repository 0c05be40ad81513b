#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/detail/exposure.hpp>
#include <amalgam/rpc/detail/loans.hpp>
#include <amalgam/rpc/detail/transfer.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

/// Keeps what is exposed alive, and frees it only after nobody can touch it any more.
struct held_bytes {
    std::shared_ptr<void> holder;
};

/// Memory of this process that is exposed. Its end closes the exposure first, without waiting.
struct shown_memory : private held_bytes, core_reference, exposure {
    shown_memory(engine_core& core, scatter segments, access rights, std::shared_ptr<void> held);

    engine_core& core;
    bool owned;                  ///< It holds its bytes, so whoever was sent it keeps it, too.
    std::vector<bulk_way> ways;  ///< By port.
};

/// What a message lent to us, until this ends.
class borrowed_loan {
public:
    borrowed_loan() = default;
    borrowed_loan(const borrowed_loan&) = delete;
    borrowed_loan& operator=(const borrowed_loan&) = delete;
    ~borrowed_loan() {
        if (id_ != 0) release_loan(*core_, lender_, id_);
    }
    void take(engine_core& core, const amalgam::peer& lender, std::uint64_t id) noexcept {
        core_ = &core;
        lender_ = lender;
        id_ = id;
    }
    explicit operator bool() const noexcept { return id_ != 0; }

private:
    engine_core* core_ = nullptr;
    amalgam::peer lender_;
    std::uint64_t id_ = 0;
};

/// What all copies and parts of a descriptor share. Immutable.
struct bulk_source {
    enum class kind : std::uint8_t {
        own,     ///< Memory of this process.
        far,     ///< Of another, or received back from there.
        inside,  ///< The bytes came along.
    };

    kind what = kind::far;
    access rights = access::read;
    std::shared_ptr<shown_memory> memory;  ///< Own.
    std::shared_ptr<void> holder;          ///< Own: a pooled buffer.

    engine_core* core = nullptr;          ///< Null: came by an archive that knows none.
    std::optional<core_reference> alive;  ///< Of a received one.
    amalgam::peer sender;                 ///< Who sent it; not always whose it is.
    remote_key home;                      ///< At the engine that exposed it.
    std::uint16_t direct;                 ///< Which way the sender's port is; no_way: none.
    std::vector<bulk_way> ways;
    std::vector<std::byte> content;  ///< Inside.
    borrowed_loan loan;              ///< Far: of memory that its descriptor owns.

    /// It is there as long as somebody holds the descriptor, or was sent it.
    bool is_owned() const noexcept {
        return loan || holder != nullptr || (memory != nullptr && memory->owned);
    }
    const std::vector<bulk_way>& all_ways() const noexcept {
        return what == kind::own ? memory->ways : ways;
    }
};

std::shared_ptr<bulk_source> source_of(std::shared_ptr<shown_memory> memory);

constexpr bool is_right(access rights) noexcept {
    return rights == access::read || rights == access::write || rights == access::read_write;
}

/// How to get there from here.
struct bulk_route {
    amalgam::peer there;
    remote_key key;
};
result<bulk_route> route_of(const bulk_source& source);

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/rpc/extension/core_reference.hpp>
#include <amalgam/rpc/extension/exposure.hpp>
#include <amalgam/rpc/extension/loans.hpp>
#include <amalgam/rpc/extension/transfer.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

/// Keeps exposed memory alive, and frees it only once no peer can access it.
struct held_bytes {
    std::shared_ptr<void> holder;
};

/// Exposed memory of this process. The destructor closes the exposure first, without waiting.
struct shown_memory : private held_bytes, core_reference, exposure {
    shown_memory(engine_core& core, scatter segments, access rights, std::shared_ptr<void> held,
                 bool may_be_passed_on);

    engine_core& core;
    bool owned;                  ///< Owns its bytes, so receivers of the descriptor keep it alive,
                                 ///< too.
    bool binds_keys = false;     ///< Some of its keys are for the receiver only.
    std::vector<bulk_way> ways;  ///< One per port.
};

/// A buffer borrowed from a message; released on destruction.
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

/// State shared by all copies and subranges of a descriptor. Immutable.
struct bulk_source {
    enum class kind : std::uint8_t {
        own,     ///< Memory of this process.
        far,     ///< Memory of another process, or of this one, received back from there.
        inside,  ///< The descriptor carries its bytes.
        served,  ///< Memory that its owner moves by calls: see served_memory.hpp.
    };

    kind what = kind::far;
    access rights = access::read;
    std::shared_ptr<shown_memory> memory;  ///< Kind `own`.
    std::shared_ptr<void> holder;          ///< Kind `own`: a pooled buffer.

    engine_core* core = nullptr;          ///< Null: decoded by an archive that knows no engine.
    std::optional<core_reference> alive;  ///< Of a received descriptor.
    amalgam::peer sender;                 ///< Sender of the descriptor; not always the owner.
    remote_key home;                      ///< At the engine that exposed it.
    std::uint16_t direct;                 ///< Path to the sender's port; no_way if none.
    std::vector<bulk_way> ways;
    std::vector<std::byte> content;  ///< Kind `inside`.
    borrowed_loan loan;              ///< Kind `far`: set if the descriptor owns the memory.

    /// The memory lives while somebody holds the descriptor or was sent it.
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

/// How to reach the memory from here.
struct bulk_route {
    amalgam::peer there;
    remote_key key;
};
result<bulk_route> route_of(const bulk_source& source);

}  // namespace amalgam::detail

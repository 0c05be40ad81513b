#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/transports/shm/memory/layout.hpp"
#include "fabric/transports/shm/memory/mapping.hpp"

namespace amalgam::detail {

/// A block of memory that peers can map, as described on the registrations.
struct shm_shown_block {
    std::uint64_t version = 0;  ///< Of its slot on the registrations; unique within the slot.
    std::uint64_t address = 0;  ///< In the owner's address space.
    std::uint64_t bytes = 0;
    std::uint64_t descriptor = 0;  ///< In the owner's process.
    std::uint64_t device = 0;      ///< device and inode identify the memory behind it.
    std::uint64_t inode = 0;
};

/// The memory that a port shares read-only with all its peers: sleep state, regions and blocks.
///
/// Threads: the port's thread; peers read at any time.
class shm_registrations {
public:
    /// Failure: `no_memory`.
    static result<shm_registrations> make();

    /// To pass to peers; they can map it only for reading.
    int fd() const noexcept { return fd_.get(); }

    /// Declares sleep: from now on a sender that publishes a record rings. If `fenced`, a sender
    /// that sees this orders the two itself. Cost: a full barrier.
    void sleep(bool fenced) noexcept {
        const std::uint64_t number = sleeping() / shm_registrations_layout::a_sleep + 1;
        set_sleeping(number * shm_registrations_layout::a_sleep | shm_registrations_layout::asleep |
                     (fenced ? shm_registrations_layout::fences : 0));
    }
    void wake() noexcept { set_sleeping(sleeping() & ~shm_registrations_layout::asleep); }
    /// Call before anybody has the table: as if it had slept with `fenced` before.
    void want_fences() noexcept { set_sleeping(sleeping() | shm_registrations_layout::fences); }
    /// Call while awake: senders then need no fences.
    void want_no_fences() noexcept { set_sleeping(sleeping() & ~shm_registrations_layout::fences); }

    /// While it touches, the port that made the key does not return the region to its user but
    /// waits, provided it watches this table. Then look the region up. `what`: as in shm_touched.
    void touch(std::uint64_t what, std::uint64_t of) noexcept {
        state().touches_of.store(of, std::memory_order_release);
        state().touched.store(what, std::memory_order_release);
        state().touching.fetch_add(1, std::memory_order_seq_cst);
    }
    void set_token(std::uint64_t to) noexcept {
        state().token.store(to, std::memory_order_release);
    }
    /// The keys of regions to be published are of this incarnation.
    void set_incarnation(std::uint64_t to) noexcept {
        state().incarnation.store(to, std::memory_order_release);
    }
    /// Shows which port may copy as number `slot`; 0: nobody.
    void admit(std::size_t slot, std::uint64_t token) noexcept {
        state().admitted[slot].store(token, std::memory_order_seq_cst);
    }
    void let_go() noexcept { state().touching.fetch_add(1, std::memory_order_seq_cst); }

    /// Publishes a region if it has few enough segments and a slot is free; else peers find it
    /// unknown. `blocks`: which blocks contain its segments, as in shm_region_slot.
    void publish(const remote_key& key, scatter segments, std::uint64_t blocks = 0) noexcept;
    /// Peers that look it up from now on do not find it. True: it was published, so a peer that
    /// looked it up before may still be copying.
    bool withdraw(const remote_key& key) noexcept;

    /// Publishes a block in a free slot and assigns its version.
    void publish_block(std::size_t slot, const shm_shown_block& block) noexcept;
    /// Peers that look it up from now on do not find it; peers that have mapped it unmap it.
    void withdraw_block(std::size_t slot) noexcept;

private:
    shm_registrations(unique_fd fd, shm_mapping memory) noexcept
        : fd_(std::move(fd)), memory_(std::move(memory)) {}

    shm_registrations_layout& state() const noexcept {
        return *reinterpret_cast<shm_registrations_layout*>(memory_.data());
    }
    shm_region_slot* slot_of(const remote_key& key) const noexcept;
    std::uint64_t sleeping() const noexcept {
        return state().sleeping.load(std::memory_order_relaxed);  // Nobody else writes it.
    }
    void set_sleeping(std::uint64_t to) noexcept {
        state().sleeping.exchange(to, std::memory_order_seq_cst);
    }

    unique_fd fd_;
    shm_mapping memory_;
};

/// A region as found by a peer. The addresses are the owner's.
struct shm_found_region {
    enum class kind : std::uint8_t {
        unknown,  ///< Not published, or not by this secret, as of a bound key (bound_key.hpp): only
                  ///< the owner can tell.
        refused,  ///< The key does not open it.
        open
    };
    kind what = kind::unknown;
    std::size_t segment_count = 0;
    const_bytes segments[shm_region_slot::max_segments];
    std::uint64_t blocks = 0;  ///< As in shm_region_slot.

    /// The slot of the block that contains a segment; `shm_registrations_layout::block_count` if
    /// none.
    std::size_t block_of(std::size_t segment) const noexcept;
};

/// A peer's registrations.
///
/// Threads: the port's thread. Trusts no contents: if the owner published wrong addresses, they are
///          in its own process, and the kernel refuses them.
class shm_registrations_view {
public:
    shm_registrations_view() noexcept = default;
    explicit shm_registrations_view(shm_mapping memory) noexcept : memory_(std::move(memory)) {}

    /// As shm_registrations_layout defines it.
    const shm_word& sleeping() const noexcept { return state().sleeping; }

    /// What the owner copies now, if it is of that port. Number 0: nothing.
    struct a_touch {
        std::uint64_t number = 0;
        std::uint64_t what = 0;  ///< As in shm_touched.

        bool writes() const noexcept { return number != 0 && (what & shm_touched::writes) != 0; }
        bool is_of(std::uint64_t region) const noexcept {
            return number != 0 && (what & ~shm_touched::writes) == region;
        }
    };
    a_touch current_touch(std::uint64_t of) const noexcept;
    std::uint64_t token() const noexcept { return state().token.load(std::memory_order_acquire); }
    std::uint64_t incarnation() const noexcept {
        return state().incarnation.load(std::memory_order_acquire);
    }
    /// Precondition: slot < shm_registrations_layout::admitted_count.
    bool admits(std::size_t slot, std::uint64_t token) const noexcept {
        return state().admitted[slot].load(std::memory_order_seq_cst) == token;
    }
    bool is_touching(const a_touch& one) const noexcept {
        return state().touching.load(std::memory_order_seq_cst) == one.number;
    }

    /// Looks up the region that `key` opens for `asked` on [offset, offset + bytes).
    shm_found_region find(const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                          access asked) const noexcept;

    /// The block in that slot; empty if none.
    std::optional<shm_shown_block> block(std::size_t slot) const noexcept;
    /// The version of the block in that slot; odd if there is none.
    std::uint64_t block_version(std::size_t slot) const noexcept {
        return state().blocks[slot].word[shm_block_slot::version].load(std::memory_order_acquire);
    }
    /// How many blocks have been withdrawn.
    std::uint64_t blocks_freed() const noexcept {
        return state().blocks_freed.load(std::memory_order_acquire);
    }

private:
    const shm_registrations_layout& state() const noexcept {
        return *reinterpret_cast<const shm_registrations_layout*>(memory_.data());
    }
    shm_mapping memory_;
};

}  // namespace amalgam::detail

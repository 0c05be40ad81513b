#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/fabric/extension/peer_traffic.hpp>
#include <amalgam/fabric/message.hpp>

#include "fabric/frames/chain.hpp"
#include "fabric/frames/frame.hpp"
#include "fabric/frames/rma_frames.hpp"
#include "fabric/frames/slot_ids.hpp"
#include "fabric/peers/matching.hpp"
#include "fabric/peers/operations.hpp"

namespace amalgam::detail {

/// Ends the connection to a peer; called inside the port.
class peer_ender {
public:
    virtual void end_peer(peer_record&, status why) noexcept = 0;

protected:
    ~peer_ender() = default;
};

/// The frame being read from a peer directly into its destination.
struct placement_state {
    enum class kind : std::uint8_t { none, unexpected, early, receive, put, get, own };

    placement shown;  ///< The transport's view.
    kind what = kind::none;
    frame_header header;
    buffer owned;                         ///< unexpected, early, own: the message.
    completion* receive = nullptr;        ///< receive: null once canceled.
    rma_operation* operation = nullptr;   ///< get: null once ended.
    std::uint64_t region = 0;             ///< put: 0 if denied.
    status failed;                        ///< put: set if its memory could not be written.
    put_notice told;                      ///< put: what to tell once it is whole; from: nobody.
    mutable_bytes segment;                ///< unexpected, early, receive: the memory of `shown`.
    std::vector<mutable_bytes> segments;  ///< put, get: the same.

    /// The memory is no longer ours: the rest of the frame is read and dropped.
    void drop() noexcept {
        shown.into = {};
        shown.discard = true;
    }
};

/// A reply to a peer's put, get or atomic operation.
struct rma_answer {
    std::uint64_t tag = 0;     ///< The peer's operation.
    std::uint64_t region = 0;  ///< Of an allowed get; 0: reply with `what` or `fetched` only.
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    status what;
    bool is_fetched = false;  ///< Of an atomic operation that happened: `bytes` was the number.
};

/// State of one peer of a port.
struct alignas(64) peer_record {
    peer_id id;
    frame_link* link = nullptr;  ///< Null once the peer is down.
    status why;                  ///< How it ended, once down.

    op_list sends;  ///< Sends whose payload the link borrows, of kinds send and piece.
    matching expected;
    std::size_t queued_bytes = 0;  ///< Size of its early messages.
    peer_traffic traffic;          ///< Without what the link counts: see frame_link::add_traffic().
    bool paused = false;           ///< The last delivery was `pause`.

    std::uint32_t unanswered = 0;     ///< Our pieces that the peer has not answered.
    chain<rma_operation> to_ask;      ///< Operations with pieces still to send.
    chain<rma_operation> asked;       ///< Operations with all pieces sent.
    std::vector<rma_answer> answers;  ///< Our replies that found the link full, oldest first.
    std::size_t answers_sent = 0;     ///< How many of `answers` have been sent since.
    std::uint64_t failed_put = 0;     ///< The peer's last put of which a piece was refused.

    placement_state placement;
    std::string address;    ///< As looked up, or where it connected from.
    std::string canonical;  ///< Its key in the address table; empty if it connected to us.
    frame_link* dead_link = nullptr;  ///< Waits for release().
    completion down;                  ///< Notifies the sink, after all pending operations.
    early_message notice;             ///< Its peer-down notice, while that waits for a sink.
    bool is_known = false;            ///< The user may have its id, so its loss is reported.

    peer_ender& port;  ///< The port this peer belongs to.

    peer_record(peer_ender& of, completion::function on_down) noexcept : down(on_down), port(of) {
        down.port_words[3] = reinterpret_cast<std::uintptr_t>(this);
        notice.is_down = true;
    }
    bool up() const noexcept { return link != nullptr; }
};

/// The peers of one port. An id is a record's slot and generation; it is never reused.
///
/// Owner:   owns the records, which do not move until remove().
/// Threads: the port's thread.
/// Cost:    finding by id takes three loads and two compares; a record is about 700 bytes.
class peer_table {
public:
    /// `on_down` is the function of each record's `down`, whose port_words[3] is the record.
    peer_table(peer_ender& port, completion::function on_down) noexcept
        : port_(port), on_down_(on_down) {}

    /// The record with that id, even if down but not yet removed; nullptr if unknown.
    peer_record* find(peer_id id) const noexcept {
        const std::size_t slot = slot_ids::slot(id.value);
        if (slot >= slots_.size()) return nullptr;
        peer_record* record = slots_[slot].get();
        return record != nullptr && record->id == id ? record : nullptr;
    }
    /// The live peer that was looked up by this canonical address, or nullptr.
    peer_record* find(const std::string& canonical) const noexcept;

    /// Adds a record for a new peer. Failure: throws std::bad_alloc, with no effect.
    peer_record& add(frame_link& link, std::string address, std::string canonical);
    /// find(canonical) no longer returns this record. Once per record.
    void forget_address(peer_record& record) noexcept;
    /// Makes the id unknown. Precondition: nothing refers to the record.
    void remove(peer_record& record) noexcept;

    /// Calls `use(record)` for each record that has not been removed.
    template <typename Use>
    void for_each(Use&& use) const {
        for (const auto& record : slots_)
            if (record != nullptr) use(*record);
    }

private:
    peer_ender& port_;
    completion::function on_down_;
    slot_ids ids_;
    std::vector<std::unique_ptr<peer_record>> slots_;
    std::unordered_map<std::string, peer_record*> by_address_;
};

}  // namespace amalgam::detail

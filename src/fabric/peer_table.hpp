#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/fabric/message.hpp>

#include "fabric/chain.hpp"
#include "fabric/frame.hpp"
#include "fabric/matching.hpp"
#include "fabric/operations.hpp"
#include "fabric/rma_frames.hpp"
#include "fabric/slot_ids.hpp"

namespace amalgam::detail {

/// Ends the connection to a peer, from inside the port.
class peer_ender {
public:
    virtual void end_peer(peer_record&, status why) noexcept = 0;

protected:
    ~peer_ender() = default;
};

/// The frame that is just being read from a peer straight to where it belongs.
struct landing_state {
    enum class kind : std::uint8_t { none, unexpected, early, receive, put, get };

    landing shown;  ///< What the transport sees.
    kind what = kind::none;
    frame_header header;
    buffer owned;                         ///< unexpected, early: the message.
    completion* receive = nullptr;        ///< receive: null once canceled.
    rma_operation* operation = nullptr;   ///< get: null once over.
    std::uint64_t region = 0;             ///< put: 0 when denied.
    status failed;                        ///< put: its memory could not be written.
    mutable_bytes segment;                ///< unexpected, early, receive: what `shown` names.
    std::vector<mutable_bytes> segments;  ///< put, get: the same.

    /// The memory is not ours any more: the rest of the frame is read and dropped.
    void drop() noexcept {
        shown.into = {};
        shown.discard = true;
    }
};

/// An answer to a peer's put or get.
struct rma_answer {
    std::uint64_t tag = 0;     ///< The peer's operation.
    std::uint64_t region = 0;  ///< Of a get that was allowed; 0: only `what` is answered.
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    status what;
};

/// What a port knows about one peer.
struct alignas(64) peer_record {
    peer_id id;
    frame_link* link = nullptr;  ///< Null once the peer is down.
    status why;                  ///< Of its end, once down.

    op_list sends;  ///< What the link was lent: of kinds send and piece.
    matching expected;
    std::size_t queued_bytes = 0;  ///< Of early messages.
    bool paused = false;           ///< The last verdict was `pause`.

    std::uint32_t unanswered = 0;     ///< Pieces of ours that the peer has not answered.
    chain<rma_operation> to_ask;      ///< Operations with pieces still to send.
    chain<rma_operation> asked;       ///< Operations with all pieces sent.
    std::vector<rma_answer> answers;  ///< Of ours that found the link full, oldest first.
    std::size_t answers_sent = 0;     ///< How many of `answers` are out since.

    landing_state landing;
    std::string address;    ///< As looked up, or as it came from.
    std::string canonical;  ///< Its key in the table of addresses; empty for those who came to us.
    frame_link* dead_link = nullptr;  ///< Waits for release().
    completion down;                  ///< Tells the sink, after all that was pending.
    early_message notice;             ///< That it is down, while that waits for a sink.
    bool is_known = false;            ///< The user may have its id, so its loss is told.

    peer_ender& port;  ///< Whose peer it is.

    peer_record(peer_ender& of, completion::function on_down) noexcept : down(on_down), port(of) {
        down.port_words[3] = reinterpret_cast<std::uintptr_t>(this);
        notice.is_down = true;
    }
    bool up() const noexcept { return link != nullptr; }
};

/// The peers of one port. An id is the slot of a record and its generation; it is never reused.
///
/// Owner:   owns the records, which stay where they are until remove().
/// Threads: the port's.
/// Cost:    finding by id is three loads and two compares; a record is some 700 bytes.
class peer_table {
public:
    /// `on_down` is what each record's `down` runs; its port_words[3] is the record.
    peer_table(peer_ender& port, completion::function on_down) noexcept
        : port_(port), on_down_(on_down) {}

    /// The record of that id, also one that is down but not removed yet; nullptr: unknown.
    peer_record* find(peer_id id) const noexcept {
        const std::size_t slot = slot_ids::slot(id.value);
        if (slot >= slots_.size()) return nullptr;
        peer_record* record = slots_[slot].get();
        return record != nullptr && record->id == id ? record : nullptr;
    }
    /// The live peer that was looked up by this canonical address, or nullptr.
    peer_record* find(const std::string& canonical) const noexcept;

    /// A record for a new peer. Failure: throws std::bad_alloc, and nothing has changed.
    peer_record& add(frame_link& link, std::string address, std::string canonical);
    /// From now on find(canonical) does not give this one. Once per record.
    void forget_address(peer_record& record) noexcept;
    /// The id is unknown from now on. Precondition: nothing names the record.
    void remove(peer_record& record) noexcept;

    /// Calls `use(record)` for each that is not removed.
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

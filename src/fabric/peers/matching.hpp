#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>

#include "fabric/frames/chain.hpp"
#include "fabric/peers/operations.hpp"

namespace amalgam::detail {

/// A message that arrived before it was asked for; or the notice of a put (`is_put`, in `bytes`);
/// or, in a peer's record, the notice that the peer is down (`is_down`), delivered after those.
struct early_message {
    early_message* next = nullptr;
    early_message* previous = nullptr;
    std::uint64_t tag = 0;
    peer_id from;
    buffer bytes;
    bool is_down = false;
    bool is_put = false;
};

/// Size an early message counts as. Includes its record, so that empty messages are bounded too.
inline std::size_t weight(const early_message& one) noexcept {
    return one.bytes.size() + sizeof(early_message);
}

/// A pool of records for early messages.
/// Failure: take() returns nullptr if out of memory.
class early_pool {
public:
    early_message* take() noexcept;
    void give_back(early_message& one) noexcept;
    /// Frees all records if none is in use.
    void trim() noexcept;

private:
    static constexpr std::size_t chunk = 32;
    std::size_t in_use_ = 0;
    std::vector<std::unique_ptr<early_message[]>> chunks_;
    early_message* free_ = nullptr;
};

/// Matches the expected messages of one peer with the receives posted for them: by tag, in order of
/// posting and of arrival.
///
/// A hash table of lists linked through the records themselves. A tag has either waiting receives
/// or early messages, never both: whichever comes second removes the first.
///
/// Owner:   owns nothing; receives and messages must not move while they are in the table.
/// Threads: the port's thread.
/// Cost:    constant per message, even if every tag differs. Allocates only when the number of
///          waiting entries reaches a new maximum above 8. If out of memory for growth, it only
///          gets slower.
class matching {
public:
    bool empty() const noexcept { return count_ == 0; }

    /// Posts a receive. Precondition: take_message(tag) returned nothing.
    void add(completion& receive) noexcept;
    /// Removes and returns the oldest receive for `tag`, or nullptr.
    completion* take_receive(std::uint64_t tag) noexcept;
    /// Precondition: `receive` is in the table.
    void remove(completion& receive) noexcept;

    /// Keeps a message. Precondition: take_receive(tag) returned nothing.
    void add(early_message& message) noexcept;
    /// Removes and returns the oldest message with `tag`, or nullptr.
    early_message* take_message(std::uint64_t tag) noexcept;

    /// Empties the table, passing entries to `receive(completion&)` and `message(early_message&)`.
    template <typename Receive, typename Message>
    void drain(Receive&& receive, Message&& message) noexcept {
        for (bucket& one : buckets()) {
            while (completion* op = one.receives.take_first())
                receive(*op);
            while (early_message* early = one.messages.take_first())
                message(*early);
        }
        count_ = 0;
    }

    static std::uint64_t tag_of(const completion& receive) noexcept {
        return receive.port_words[1];
    }

private:
    struct bucket {
        op_list receives;
        chain<early_message> messages;
    };
    static constexpr unsigned inline_bits = 2;

    std::span<bucket> buckets() noexcept {
        return {many_ != nullptr ? many_.get() : few_.data(), std::size_t{1} << bits_};
    }
    bucket& bucket_of(std::uint64_t tag) noexcept {
        const std::uint64_t spread = tag * 0x9E3779B97F4A7C15u;  // High bits depend on all bits.
        return buckets()[spread >> (64 - bits_)];
    }
    void added() noexcept {
        if (++count_ > (std::size_t{2} << bits_)) grow();
    }
    void grow() noexcept;

    std::array<bucket, std::size_t{1} << inline_bits> few_;
    std::unique_ptr<bucket[]> many_;
    std::size_t count_ = 0;
    unsigned bits_ = inline_bits;
};

}  // namespace amalgam::detail

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

#include "fabric/chain.hpp"
#include "fabric/operations.hpp"

namespace amalgam::detail {

/// A message that arrived before anybody wanted it; or, in a peer's record, the notice that the
/// peer is down (`is_down`), which is delivered after the peer's messages.
struct early_message {
    early_message* next = nullptr;
    early_message* previous = nullptr;
    std::uint64_t tag = 0;
    peer_id from;
    buffer bytes;
    bool is_down = false;
};

/// What an early message counts for: its record too, so that empty ones are bounded as well.
inline std::size_t weight(const early_message& one) noexcept {
    return one.bytes.size() + sizeof(early_message);
}

/// Records for early messages, recycled.
/// Failure: take() gives nullptr when there is no memory.
class early_pool {
public:
    early_message* take() noexcept;
    void give_back(early_message& one) noexcept;
    /// Frees all records, if none is in use.
    void trim() noexcept;

private:
    static constexpr std::size_t chunk = 32;
    std::size_t in_use_ = 0;
    std::vector<std::unique_ptr<early_message[]>> chunks_;
    early_message* free_ = nullptr;
};

/// Brings the expected messages of one peer and the receives posted for them together, by tag, in
/// the order of posting and of arrival.
///
/// A hash table of lists through the records themselves. A tag is either waited for or was early,
/// never both: whoever comes second takes the first away.
///
/// Owner:   nobody's; receives and messages must stay where they are while they are in here.
/// Threads: the port's.
/// Cost:    no allocation but when the number of waiting entries reaches a new maximum, and none
///          up to 8; constant per message also when every tag differs. Without memory to grow it
///          only gets slower.
class matching {
public:
    bool empty() const noexcept { return count_ == 0; }

    /// Posts a receive. Precondition: take_message(tag) gave nothing.
    void add(completion& receive) noexcept;
    /// Removes and gives the oldest receive for `tag`, or nullptr.
    completion* take_receive(std::uint64_t tag) noexcept;
    /// Precondition: `receive` is in here.
    void remove(completion& receive) noexcept;

    /// Keeps a message. Precondition: take_receive(tag) gave nothing.
    void add(early_message& message) noexcept;
    /// Removes and gives the oldest message of `tag`, or nullptr.
    early_message* take_message(std::uint64_t tag) noexcept;

    /// Empties the table through `receive(completion&)` and `message(early_message&)`.
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
        const std::uint64_t spread = tag * 0x9E3779B97F4A7C15u;  // Its high bits depend on all.
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

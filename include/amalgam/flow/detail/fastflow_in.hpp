#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/flow/detail/fastflow_end.hpp>
#include <amalgam/rpc/responder.hpp>

namespace amalgam::detail {

/// A FastFlow program's receiver, type-erased.
///
/// Threads: next(), consumed() and give_back() by the node's thread; the rest by any.
class fastflow_in final : public fastflow_end {
    struct link;

public:
    /// A received batch.
    struct arrival {
        link* from;
        std::uint32_t items;
        buffer bytes;
        responder<void> consumed;
    };

    /// `senders`: number to expect; 0: one per endpoint.
    fastflow_in(endpoints where, std::size_t senders, std::string type, fastflow_options options);
    ~fastflow_in() { close(); }

    /// Waits for the next batch; empty: all senders have ended, or this end failed.
    std::optional<arrival> next();
    /// All items of the batch have left.
    void consumed(arrival& what);
    /// Not all of them will, because this end has failed. The sender is told, after the other ends
    /// know why.
    void give_back(arrival what);

private:
    struct link : far_end {
        std::uint64_t expected = 0;  ///< Sequence number of the next batch.
        std::uint64_t items = 0;     ///< Consumed.
        /// Large batches are fetched, so others overtake them.
        std::map<std::uint64_t, arrival> early;

        bool expects(std::uint64_t number) const {
            return !ended && number >= expected && early.size() < most_early &&
                   early.count(number) == 0;
        }
        static constexpr std::size_t most_early = 1000;
    };

    void take_join(const std::string& type);
    void take(responder<void> consumed, std::uint64_t number, std::uint32_t items,
              const_bytes bytes);
    void take_end(std::uint64_t batches, std::uint64_t items);
    bool has_all_senders(std::unique_lock<mutex>& hold);
    bool has_something() const noexcept;
    void refuse(const std::string& why) override;

    const std::size_t senders_;
    const std::string type_;
    buffer_pool room_;
    std::unordered_map<peer, link> links_;
    std::deque<arrival> ready_;
    std::optional<std::chrono::steady_clock::time_point> join_until_;
    /// Why arriving batches are refused; set shortly after a failure.
    std::optional<std::string> refused_;
};

}  // namespace amalgam::detail

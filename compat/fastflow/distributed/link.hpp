#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <amalgam/rpc/engine.hpp>

#include "groups.hpp"
#include "network.hpp"

namespace ff::detail {

/// The calls between groups. Frames of a batch: edge (4 bytes), mark (4; 0: an item), size (8),
/// the item's bytes; little-endian.
namespace wire {
using join = void(std::string from, std::uint64_t graph, std::vector<std::uint64_t> windows);
using batch = void(std::uint64_t number, amalgam::const_bytes frames);
using item = void(std::uint64_t number, std::uint32_t edge, amalgam::const_bytes bytes);
using credit = void(std::uint32_t edge, std::uint64_t items, std::uint64_t bytes);
using closed = void(std::uint32_t edge);
using end = void(std::uint64_t batches);
using failed = void(std::string why);
constexpr std::size_t header_bytes = 16;
/// What each item and mark counts for besides its bytes, so that empty ones are bounded, too.
constexpr std::uint64_t item_overhead = 64;
}  // namespace wire

class far_group;

/// What the edges of a run share.
class run_base {
public:
    virtual ~run_base() = default;
    /// Ends the run; only the first counts. Any thread.
    virtual void fail(const std::string& why) noexcept = 0;
    virtual bool failed() const noexcept = 0;

    std::unique_ptr<amalgam::engine> over;
};

/// Another group that this one sends to, or that sends to this one.
///
/// Threads: append(), append_large() and flush() from any; the counters of what comes are the
/// engine stream's.
class far_group {
public:
    far_group(run_base& run, const group_settings& mine, const group_settings& there)
        : run_(run), mine_(mine), name(there.name), address(there.address) {}

    /// `last`: the batch leaves at once. Throws amalgam::error.
    void append(std::uint32_t edge, std::uint32_t mark, const char* bytes, std::size_t count,
                bool last);
    void append_large(std::uint32_t edge, std::shared_ptr<message2_t> item);
    void flush();
    /// Sends what waits since the last call.
    void flush_old();
    std::uint64_t batches() const { return number_; }
    bool batches_linger() const { return mine_.batch_size > 1; }

private:
    void send_open();
    run_base& run_;
    const group_settings& mine_;

public:
    const std::string name;
    const std::string address;
    amalgam::peer to;            ///< To send to.
    amalgam::peer from;          ///< That joined, to send here.
    bool sends = false;          ///< Edges lead here from it.
    bool listens = false;        ///< Edges lead from here to it.
    bool ended = false;          ///< It has sent all, and it came.
    bool took_all = false;       ///< It has got all.
    std::uint64_t expected = 0;  ///< The number of its next batch.

private:
    std::mutex lock_;
    std::vector<std::byte> open_;
    std::size_t open_items_ = 0;
    std::uint64_t number_ = 0;
    std::uint64_t seen_ = 0;  ///< By flush_old().
};

/// A queue whose other end is in another group.
class far_edge final : public far_end {
public:
    far_edge(run_base& run, std::uint32_t number, const edge& between, far_group& there, bool out);

    void send(void* item) override;
    void* receive(void* came) override;
    void drop(void* came) noexcept override;
    void closed() noexcept override;
    void flush() override;
    void deserted() override;

    /// Whether the consumer knows that mark.
    bool knows(std::uint32_t mark) const;

    // The engine's stream.
    /// An item or mark arrived in that batch, which may be before its turn. False: its sender had
    /// no room for it.
    bool within_credit(std::uint64_t batch, std::uint32_t mark, std::size_t count);
    /// It is its turn.
    void came(std::uint32_t mark, const std::byte* bytes, std::size_t count);
    /// Its group has ended: nothing more will come.
    void over();
    void credited(std::uint64_t items, std::uint64_t bytes);
    /// Nobody reads at the other end any more, or, with the run failed, everybody here gives up.
    void close();

    const std::uint32_t number;
    far_group& there;
    const bool out;
    std::uint64_t window = 1;
    std::shared_ptr<channel> queue;
    ff_node* node = nullptr;  ///< That serializes, or deserializes.

    static constexpr std::uint64_t most_bytes = std::uint64_t{32} << 20;  ///< In flight.

private:
    /// An item or mark makes room: the node took it, or it came from where nobody may wait.
    void took(std::uint64_t bytes);
    void give_credit(std::uint64_t items, std::uint64_t bytes) noexcept;
    bool send_mark(std::uint32_t mark);
    bool send_item(void* item);
    bool reserve(std::uint64_t bytes);
    void wait_room();
    [[noreturn]] void fail(const std::string& why) const;
    std::string node_name() const;
    void* silence();

    run_base& run_;
    runner* end_;  // the node's thread
    const bool gathers_;
    const bool feedback_;
    // Out.
    std::mutex lock_;
    std::condition_variable room_;
    std::uint64_t in_flight_ = 0;
    bool closed_ = false;
    // In. Feedback: the engine's stream's; else the node's, and of what came, the stream's.
    std::atomic<bool> end_came_{false};
    std::uint64_t items_ = 0;  // taken, not yet credited
    std::uint64_t bytes_ = 0;
    std::atomic<std::uint64_t> credited_items_{0};
    std::atomic<std::uint64_t> credited_bytes_{0};
    std::uint64_t came_items_ = 0;
    std::uint64_t came_bytes_ = 0;
    std::uint64_t last_batch_ = 0;  // of those that came, the latest by their order
    std::uint64_t last_bytes_ = 0;  // of its last item
};

}  // namespace ff::detail

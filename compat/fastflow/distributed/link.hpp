#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ff/distributed/archive.hpp>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/procedure.hpp>
#include <amalgam/tasks/mutex.hpp>

#include "frames.hpp"
#include "groups.hpp"
#include "network.hpp"

namespace ff::detail {

/// The calls between groups.
namespace wire {
using join = void(std::string from, std::uint64_t graph, std::vector<std::uint64_t> windows);
using batch = void(std::uint64_t number, amalgam::const_bytes frames);
using item = void(std::uint64_t number, std::uint32_t edge, amalgam::const_bytes bytes);
using credit = void(std::uint32_t edge, std::uint64_t items, std::uint64_t bytes);
using closed = void(std::uint32_t edge);
using end = void(std::uint64_t batches);
using failed = void(std::string why);
/// What each item and mark counts for besides its bytes, so that empty ones are bounded, too.
constexpr std::uint64_t item_overhead = 64;
}  // namespace wire

class far_group;

/// What this group asks of others, while the run goes on. Found once: later there may be no memory
/// to look for it.
struct far_calls {
    explicit far_calls(amalgam::engine& over);

    amalgam::procedure<wire::batch> batch;
    amalgam::procedure<wire::item> item;
    amalgam::procedure<wire::credit> credit;
    amalgam::procedure<wire::closed> closed;
    amalgam::procedure<wire::failed> failed;
};

/// What the edges of a run share.
class run_base {
public:
    /// The parts of a sentence, which are put together without memory.
    using words = std::initializer_list<std::string_view>;

    virtual ~run_base() = default;
    /// Ends the run with that sentence; only the first counts. Any thread. Needs no memory.
    virtual void fail(words why) noexcept = 0;
    virtual bool failed() const noexcept = 0;

    amalgam::engine* over = nullptr;
    std::optional<far_calls> calls;  ///< With `over`.
};

/// Another group that this one sends to, or that sends to this one.
///
/// A batch that is due is posted by the engine's stream, so what comes while that is busy leaves
/// with it. A thread posts only what would grow too large.
/// Threads: append(), append_large() and flush() from any; the counters of what comes are the
/// engine stream's.
class far_group {
public:
    far_group(run_base& run, const group_settings& mine, const group_settings& there)
        : run_(run), mine_(mine), name(there.name), address(there.address) {}

    /// `last`: the batch is due. Throws amalgam::error.
    void append(std::uint32_t edge, std::uint32_t mark, const char* bytes, std::size_t count,
                bool last);
    /// `owner` keeps the bytes until they have left.
    void append_large(std::uint32_t edge, const std::shared_ptr<const void>& owner,
                      const char* bytes, std::size_t count);
    /// All that was appended has been posted when this returns. Throws std::bad_alloc,
    /// amalgam::error.
    void flush();
    /// The same, by or_fail().
    void flush_or_fail() noexcept;
    /// Sends what waits since the last call, by or_fail().
    void flush_old() noexcept;
    std::uint64_t batches();
    bool batches_linger() const { return mine_.batch_size > 1; }

    /// Calls `send`, which sends to this group. If it throws, as without memory, the run ends: the
    /// group would wait for ever for what was not sent. The group's loss is told elsewhere.
    template <typename Send>
    void or_fail(Send send) noexcept {
        try {
            send();
        } catch (const std::exception& why) {
            not_sent(why);
        }
    }

private:
    void post_open();
    void not_sent(const std::exception& why) noexcept;
    std::shared_ptr<sendable<open_batch>> unused_batch();
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
    amalgam::mutex posting_;  ///< Before lock_. Waiting for it keeps no stream from its work.
    std::mutex lock_;
    std::shared_ptr<sendable<open_batch>> open_ = std::make_shared<sendable<open_batch>>();
    bool asked_ = false;  ///< The engine's stream will post it.
    // With posting_:
    std::vector<std::shared_ptr<sendable<open_batch>>>
        posted_;  ///< Used again once they have left.
    std::uint64_t number_ = 0;
    std::uint64_t seen_ = 0;  ///< By flush_old().
};

/// A mark of FastFlow's as it travels. 0: it is an item.
std::uint32_t mark_of(const void* item);
void* item_of(std::uint32_t mark);
/// Of the exception that is being handled, which keeps it.
const char* sentence_of_current();

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
    bool within_credit(std::uint64_t batch, const frame& head);
    /// It is the turn of a batch. First each of its frames is announced: the items of an edge in
    /// one batch share memory, which lives until all of them have been read.
    void will_come(const frame& head);
    void came(const frame& head, const std::byte* bytes);
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
    /// The node reads items where they came; else each gets memory of its own. Set before use.
    bool reads_in_place = false;

    // In flight: what fits into caches, but several items.
    static constexpr std::uint64_t usual_bytes = std::uint64_t{4} << 20;
    static constexpr std::uint64_t most_bytes = std::uint64_t{32} << 20;

private:
    /// An item or mark makes room: the node took it, or it came from where nobody may wait.
    void took(std::uint64_t bytes);
    void give_credit(std::uint64_t items, std::uint64_t bytes) noexcept;
    void send_mark(std::uint32_t mark);
    void send_item(void* item);
    void send_written(void* item, serialize_function::into_archive write);
    void append_item(const char* bytes, std::size_t count);
    void reserve(std::uint64_t bytes);
    void reserve_item(std::size_t count);
    bool has_room(std::uint64_t most) const;
    void wait_room(std::uint64_t most);
    std::shared_ptr<sendable<output_archive>> unused_archive();
    void came_mark(std::uint32_t mark);
    static std::unique_ptr<message2_t> copy_of(const std::byte* bytes, std::size_t count);
    void* read_item(void* came, std::uint64_t& size);
    [[noreturn]] void fail(run_base::words why) const;
    std::string node_name() const;
    void* silence();

    run_base& run_;
    runner* end_;  // the node's thread
    const bool gathers_;
    const bool feedback_;
    // Out.
    std::mutex lock_;
    std::condition_variable room_;
    std::atomic<std::uint64_t> sent_{0};  // bytes; the node's
    std::atomic<std::uint64_t> credited_{0};
    std::uint64_t allowed_ = usual_bytes;  // in flight; the node's, as the next
    std::atomic<bool> closed_{false};
    std::shared_ptr<sendable<output_archive>> written_ =
        std::make_shared<sendable<output_archive>>();
    std::vector<std::shared_ptr<sendable<output_archive>>>
        posted_;  // used again once they have left
    std::size_t next_posted_ = 0;
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
    std::size_t announced_ = 0;     // room for what is still to come of the batch
    std::uint32_t announced_items_ = 0;
    came_batch::holder coming_;
};

}  // namespace ff::detail

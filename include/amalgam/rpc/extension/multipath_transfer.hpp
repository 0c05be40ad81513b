#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/rpc/extension/core_reference.hpp>
#include <amalgam/rpc/extension/transfer.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/trace_context.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/work_unit.hpp>

namespace amalgam::detail {

/// Memory of an engine that may be known by several paths.
struct routed_target {
    transfer_target first{};  ///< As if `there` were the only path.
    /// Indexed by port of the owning engine.
    std::vector<remote_key> keys{};
    std::uint64_t home = 0;  ///< Incarnation of that engine.
    /// Over all paths at once; otherwise over one, failing over when it is lost.
    bool striped = false;
};

/// A future_transfer to an engine that may be known by several paths. Pieces in flight on a lost
/// path are moved again over another.
///
/// The transfer is cut into pieces, each a transfer of its own. A path has a few in flight and
/// takes the next when one is done, so a slow path does not hold back a fast one.
/// Owner:   as future_transfer.
/// Threads: as future_transfer.
/// Failure: as future_transfer; `disconnected` only if no path is left.
/// Cost:    some allocations per transfer.
class multipath_transfer : public future_state<void> {
public:
    explicit multipath_transfer(const routed_target& target);
    ~multipath_transfer() override;

    void get_copy(scatter into);
    void put_copy(gather from);
    /// Precondition: made with new. Takes ownership.
    future<void> launch() noexcept;
    /// Bytes of finished pieces.
    std::uint64_t moved() const noexcept { return moved_; }

protected:
    /// Requests an early end. False: the engine has ended, or belongs to the process that forked
    /// this one: nothing accesses the bytes any more, and the future may never become ready.
    virtual bool abandoned() noexcept;
    virtual failure progressed() noexcept { return {}; }

    engine_core* core_;

private:
    class lane;
    struct way {
        peer to;
        remote_key key;
        std::uint32_t number = 0;
        bool used = false;  ///< It has lanes.
        bool lost = false;
        bool owes = false;          ///< Lost with a put in flight that may still arrive.
        unsigned busy = 0;          ///< Lanes.
        unsigned done = 0;          ///< Pieces done,
        clock::duration latest{0};  ///< and duration of the latest.
    };
    /// A part of the transfer, with its start in the local list.
    struct piece {
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
        std::size_t segment = 0;
        std::size_t within = 0;
    };
    struct posted_task : work_unit {
        posted_task(run_function what, multipath_transfer& mine) noexcept
            : work_unit(what), whose(mine) {}
        multipath_transfer& whose;
    };

    void begin() noexcept;
    void find_ways();
    void open_ways();
    bool is_worth_it(std::size_t by) const noexcept;
    std::uint64_t pieces_left() const noexcept;
    bool take(piece& next) noexcept;
    void slice(lane& on) const;
    void wake() noexcept;
    void schedule(lane& on) noexcept;
    void rest(lane& on) noexcept;
    void run(lane& on) noexcept;
    void over(lane& on) noexcept;
    void lose(way& by) noexcept;
    void go_without(lane& on) noexcept;
    bool part_from_lost() noexcept;
    std::chrono::nanoseconds time_left() const noexcept;
    void cancel() noexcept;
    void end(failure why) noexcept;
    void release() noexcept;
    std::size_t segment_bytes(std::size_t index) const noexcept {
        return is_put_ ? from_[index].size() : into_[index].size();
    }

    core_reference alive_;
    routed_target target_;
    clock::time_point deadline_ = clock::time_point::max();
    std::vector<mutable_bytes> into_;
    std::vector<const_bytes> from_;
    bool is_put_ = false;
    std::uint64_t total_ = 0;
    std::optional<trace_context> trace_;  // Of the handler that asked for it, while recorded.
    std::unique_ptr<counted_transfer> counted_;
    posted_task begin_;
    posted_task cancel_;

    // The stream's:
    bool begun_ = false;
    bool canceled_early_ = false;
    bool ended_ = false;  // `why_` is set; pieces in flight are finishing.
    clock::time_point began_;
    unsigned busy_ = 0;  // Lanes with a piece or a turn pending, a call, and current users.
    std::uint64_t moved_ = 0;
    piece fresh_;  // Start of the next new piece.
    std::vector<piece> again_;
    std::vector<way> ways_;
    std::vector<std::unique_ptr<lane>> lanes_;
    failure why_;
};

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/detail/transfer.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/work_unit.hpp>

namespace amalgam::detail {

/// Memory of an engine that may be known by several ways.
struct routed_target {
    transfer_target first{};  ///< As if `there` was the only way.
    /// By port of the engine whose memory it is.
    std::vector<remote_key> keys{};
    std::uint64_t home = 0;  ///< Number of that engine's run.
    bool striped = false;    ///< Over all ways at once; else over one, and another if that is lost.
};

/// A future_transfer to an engine that may be known by several ways: pieces that were under way
/// when one is lost are moved again by another.
///
/// It is cut into pieces, each of which is a transfer of its own. A way has a few of them at a time
/// and takes the next when one is done, so a slow way does not hold back a fast one.
/// Owner:   as future_transfer.
/// Threads: as future_transfer.
/// Failure: as future_transfer; `disconnected` only when no way is left.
/// Cost:    some allocations per transfer.
class routed_transfer : public future_state<void> {
public:
    explicit routed_transfer(const routed_target& target);
    ~routed_transfer() override;

    void get_copy(scatter into);
    void put_copy(gather from);
    /// Precondition: made by new. Takes the object over.
    future<void> launch() noexcept;
    /// Pieces that are done.
    std::uint64_t moved() const noexcept { return moved_; }

protected:
    /// Asks for its end. False: the engine has ended, or is the process's that forked this one:
    /// nobody touches the bytes any more, and the future may never be ready.
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
        bool owes = false;          ///< Lost with a put under way that might still arrive.
        unsigned busy = 0;          ///< Lanes.
        unsigned done = 0;          ///< Pieces,
        clock::duration latest{0};  ///< and how long the latest took.
    };
    /// A part of the whole, and where it starts in the local list.
    struct piece {
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
        std::size_t segment = 0;
        std::size_t within = 0;
    };
    struct errand : work_unit {
        errand(run_function what, routed_transfer& mine) noexcept : work_unit(what), whose(mine) {}
        routed_transfer& whose;
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
    errand begin_;
    errand cancel_;

    // The stream's:
    bool begun_ = false;
    bool canceled_early_ = false;
    bool ended_ = false;  // `why_` is set; what is under way comes to its end.
    clock::time_point began_;
    unsigned busy_ = 0;  // Lanes with a piece or a turn to come, a call, and who looks at it.
    std::uint64_t moved_ = 0;
    piece fresh_;  // Where the next piece starts.
    std::vector<piece> again_;
    std::vector<way> ways_;
    std::vector<std::unique_ptr<lane>> lanes_;
    failure why_;
};

}  // namespace amalgam::detail

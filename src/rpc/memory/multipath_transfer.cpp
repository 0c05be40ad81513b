#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/extension/multipath_transfer.hpp>
#include <amalgam/rpc/procedure.hpp>

#include "rpc/context/engine_context.hpp"
#include "rpc/limits.hpp"
#include "rpc/memory/transfer_table.hpp"
#include "rpc/peers/routes.hpp"
#include "rpc/statistics/counted_transfer.hpp"
#include "rpc/tracing/call_span.hpp"

namespace amalgam::detail {

namespace {

/// Whether another path may succeed where this one failed.
bool is_loss_of_way(errc code) noexcept {
    return code == errc::disconnected || code == errc::unreachable || code == errc::closed;
}

failure copy_of(const failure& why) noexcept {
    return in_words(why.what, [&] { return why.sentence; });
}

failure lost_all() noexcept {
    return in_words({errc::disconnected},
                    "lost the last path to the peer before it confirmed that writing has ended; "
                    "data it has received may still be written");
}
failure was_canceled() noexcept {
    return in_words({errc::canceled}, "the transfer was canceled");
}
failure was_stopped(engine_core& core) noexcept {
    return in_words({errc::closed}, context_of(core).why_closed());
}

}  // namespace

/// Moves the pieces of one path, one after the other. Yields the stream between pieces, so that
/// others get their turn.
class multipath_transfer::lane final : public work_unit {
public:
    lane(multipath_transfer& whose, std::size_t by) noexcept
        : work_unit([](work_unit& self) noexcept {
              auto& mine = static_cast<lane&>(self);
              mine.whose_.run(mine);
          }),
          way(by),
          whose_(whose) {}

    void move(const transfer_target& target, bool is_put) noexcept {
        record_.emplace(target, *this);
        if (is_put) {
            record_->put(from);
        } else {
            record_->get(into);
        }
        moving = true;
        record_->begin(whose_.trace_ ? &*whose_.trace_ : nullptr);
    }
    void cancel(transfer_table& moves) noexcept { moves.cancel(*record_); }
    const failure& why() const noexcept { return record_->why; }

    const std::size_t way;  ///< Index.
    bool busy = false;      ///< Waiting for its turn, or moving.
    bool moving = false;
    clock::time_point began;  ///< Start of the current piece.
    piece what;
    std::vector<mutable_bytes> into;
    std::vector<const_bytes> from;

private:
    class record final : public transfer_record {
    public:
        record(const transfer_target& target, lane& on) : transfer_record(target), on_(on) {}
        void begin(const trace_context* under) noexcept { submit(under); }

    private:
        void over() noexcept override { on_.whose_.over(on_); }
        lane& on_;
    };

    multipath_transfer& whose_;
    std::optional<record> record_;
};

multipath_transfer::multipath_transfer(const routed_target& target)
    : core_(target.first.core),
      alive_(*core_),
      target_(target),
      begin_([](work_unit& self) noexcept { static_cast<posted_task&>(self).whose.begin(); },
             *this),
      cancel_(
          [](work_unit& self) noexcept {
              multipath_transfer& mine = static_cast<posted_task&>(self).whose;
              mine.cancel();
          },
          *this) {
    if (target_.first.piece_bytes == 0) target_.first.piece_bytes = limits::transfer_piece_bytes;
}

multipath_transfer::~multipath_transfer() = default;

void multipath_transfer::get_copy(scatter into) {
    into_.assign(into.begin(), into.end());
    for (const mutable_bytes& each : into)
        total_ += each.size();
}

void multipath_transfer::put_copy(gather from) {
    is_put_ = true;
    from_.assign(from.begin(), from.end());
    for (const const_bytes& each : from)
        total_ += each.size();
}

future<void> multipath_transfer::launch() noexcept {
    on_abandon([](void* self) noexcept { static_cast<multipath_transfer*>(self)->abandoned(); },
               this);
    add_reference();  // The future's reference; ours is dropped in release().
    future<void> later(*this);
    counted_ = counted_transfer::begin(context_of(*core_));
    if (recording()) [[unlikely]]
        if (const trace_context* const under = trace_of_handler()) trace_ = *under;
    deadline_ =
        context_of(*core_).deadline_after(target_.first.timeout, call_context::try_current());
    if (context_of(*core_).on_owner()) {
        begin();
    } else if (!context_of(*core_).hand_over(begin_)) {
        fail(was_stopped(*core_));
        drop_reference();
    }
    return later;
}

bool multipath_transfer::abandoned() noexcept {
    add_reference();  // Until cancel().
    if (context_of(*core_).on_owner()) {
        cancel();
        return true;
    }
    if (context_of(*core_).hand_over(cancel_)) return true;
    drop_reference();  // As in transfer_record::request_cancel().
    return false;
}

void multipath_transfer::cancel() noexcept {
    if (!begun_) {
        canceled_early_ = true;  // Still being handed over; begin() checks this.
    } else if (!ended_) {
        ++busy_;
        end(was_canceled());
        release();
    }
    drop_reference();
}

void multipath_transfer::begin() noexcept {
    begun_ = true;
    began_ = context_of(*core_).now();
    busy_ = 1;
    transfers_of(*core_).hold();
    try {
        if (canceled_early_) {
            end(was_canceled());
        } else {
            find_ways();
            open_ways();
            if (ways_.empty()) {
                end({{errc::disconnected},
                     fmt::format("transfer of {} bytes: the peer is gone, and its memory with it",
                                 total_)});
            }
        }
    } catch (const std::bad_alloc&) {
        end({{errc::no_memory}, {}});
    }
    release();
}

/// All paths to the memory, the requested one first.
void multipath_transfer::find_ways() {
    const transfer_target& first = target_.first;
    const peer_state* const there = routes_of(*core_).way_to(first.there);
    if (there == nullptr) return;
    if (const auto engine = routes_of(*core_).engine_of(there->name);
        engine != nullptr && engine->home == target_.home) {
        for (const route& each : engine->routes) {
            if (each.far_port >= target_.keys.size()) continue;
            const remote_key& key = target_.keys[each.far_port];
            if (key.incarnation != 0) ways_.push_back({each.way, key, each.number});
        }
        std::stable_partition(ways_.begin(), ways_.end(),
                              [&](const way& each) { return each.to == there->name; });
    }
    if (ways_.empty()) ways_.push_back({there->name, first.key});
}

/// Opens lanes on as many paths as are to be used at once.
void multipath_transfer::open_ways() {
    const std::size_t piece_bytes = target_.first.piece_bytes;
    const std::size_t window = std::clamp<std::size_t>(limits::transfer_window_bytes / piece_bytes,
                                                       2, limits::max_transfer_window);
    std::size_t in_use = 0;
    for (const way& each : ways_)
        in_use += each.used && !each.lost ? 1 : 0;
    for (std::size_t i = 0; i < ways_.size() && (in_use == 0 || target_.striped); ++i) {
        if (ways_[i].used) continue;
        again_.reserve(lanes_.size() + window);
        for (std::size_t n = 0; n < window; ++n)
            lanes_.push_back(std::make_unique<lane>(*this, i));
        ways_[i].used = true;
        ++in_use;
    }
    wake();
}

/// Gives idle lanes work, while there is any.
void multipath_transfer::wake() noexcept {
    std::uint64_t left = pieces_left();
    // Round-robin over the paths, so that even few pieces use all of them.
    for (bool more = true; more && left != 0;) {
        more = false;
        std::size_t before = ways_.size();
        for (const auto& each : lanes_) {
            if (left == 0) return;
            if (each->busy || each->way == before || ways_[each->way].lost) continue;
            before = each->way;
            more = true;
            --left;
            schedule(*each);
        }
    }
}

void multipath_transfer::schedule(lane& on) noexcept {
    if (!transfers_of(*core_).is_closed()) {
        on.busy = true;
        ++ways_[on.way].busy;
        ++busy_;
        if (context_of(*core_).hand_over(on)) return;
        rest(on);
        --busy_;  // The caller holds one more.
    }
    end(was_stopped(*core_));
}

void multipath_transfer::rest(lane& on) noexcept {
    on.busy = on.moving = false;
    --ways_[on.way].busy;
}

std::uint64_t multipath_transfer::pieces_left() const noexcept {
    const std::uint64_t bytes = target_.first.piece_bytes;
    const std::uint64_t fresh = total_ - fresh_.offset;
    return again_.size() + fresh / bytes + (fresh % bytes != 0 ? 1 : 0);
}

/// Whether one more piece over this path would arrive before the others finish the rest: a slow
/// path must not delay the end.
bool multipath_transfer::is_worth_it(std::size_t by) const noexcept {
    const way& mine = ways_[by];
    const clock::duration so_far = context_of(*core_).now() - began_;
    if (mine.done == 0 || so_far <= clock::duration::zero()) return true;
    std::uint64_t left = pieces_left();
    std::uint64_t others_did = 0;
    for (const way& each : ways_) {
        if (&each == &mine || each.lost || each.busy == 0) continue;
        others_did += each.done;
        left += each.busy;
    }
    // latest <= left / (others_did / so_far)
    return static_cast<double>(mine.latest.count()) * static_cast<double>(others_did) <=
           static_cast<double>(left) * static_cast<double>(so_far.count());
}

/// The next piece: one left by a lost path, else a new one.
bool multipath_transfer::take(piece& next) noexcept {
    if (!again_.empty()) {
        next = again_.back();
        again_.pop_back();
        return true;
    }
    if (fresh_.offset == total_) return false;
    next = fresh_;
    next.bytes = std::min<std::uint64_t>(target_.first.piece_bytes, total_ - fresh_.offset);
    fresh_.offset += next.bytes;
    for (std::uint64_t left = next.bytes; left != 0;) {
        const std::size_t here = segment_bytes(fresh_.segment) - fresh_.within;
        if (left < here) {
            fresh_.within += static_cast<std::size_t>(left);
            break;
        }
        left -= here;
        ++fresh_.segment;
        fresh_.within = 0;
    }
    return true;
}

/// The local bytes of a piece.
void multipath_transfer::slice(lane& on) const {
    on.into.clear();
    on.from.clear();
    std::size_t within = on.what.within;
    std::uint64_t left = on.what.bytes;
    for (std::size_t i = on.what.segment; left != 0; ++i) {
        const auto bytes =
            static_cast<std::size_t>(std::min<std::uint64_t>(left, segment_bytes(i) - within));
        if (is_put_) {
            on.from.push_back(from_[i].subspan(within, bytes));
        } else {
            on.into.push_back(into_[i].subspan(within, bytes));
        }
        left -= bytes;
        within = 0;
    }
}

void multipath_transfer::run(lane& on) noexcept {
    const way& by = ways_[on.way];
    if (ended_ || by.lost || !is_worth_it(on.way) || !take(on.what)) {
        rest(on);
        return release();
    }
    try {
        slice(on);
        transfer_target target = target_.first;
        target.there = by.to;
        target.key = by.key;
        target.offset += on.what.offset;
        target.timeout = time_left();
        on.began = context_of(*core_).now();
        on.move(target, is_put_);  // This lane may be gone afterwards.
    } catch (const std::bad_alloc&) {
        rest(on);
        end({{errc::no_memory}, {}});
        release();
    }
}

std::chrono::nanoseconds multipath_transfer::time_left() const noexcept {
    if (deadline_ == clock::time_point::max()) return std::chrono::nanoseconds::max();
    return std::max<clock::duration>(deadline_ - context_of(*core_).now(), clock::duration::zero());
}

/// A piece has ended.
void multipath_transfer::over(lane& on) noexcept {
    rest(on);
    const failure& why = on.why();
    if (ended_) {
        if (is_loss_of_way(why.what.code)) lose(ways_[on.way]);
        return release();
    }
    if (why.what.ok()) {
        moved_ += on.what.bytes;
        way& by = ways_[on.way];
        ++by.done;
        by.latest = context_of(*core_).now() - on.began;
        failure wrong = progressed();
        context_of(*core_).stay_in_parent();
        if (!wrong.what.ok()) {
            end(std::move(wrong));
        } else if (moved_ == total_) {
            end({});
        } else {
            schedule(on);
        }
    } else if (is_loss_of_way(why.what.code)) {
        lose(ways_[on.way]);
        go_without(on);
    } else if (why.what.code == errc::denied) {
        // A key that is bound to one peer may be ours on another path and nobody's on this one,
        // where the owner does not know that it is us. What it refused is not under way any more.
        ways_[on.way].lost = true;
        go_without(on);
    } else {
        end(copy_of(why));
    }
    release();
}

void multipath_transfer::lose(way& by) noexcept {
    by.lost = true;
    by.owes = is_put_;
}

/// Other paths repeat what was in flight: getting or putting the same bytes twice is harmless.
void multipath_transfer::go_without(lane& on) noexcept {
    again_.push_back(on.what);  // Reserved: one per lane.
    try {
        open_ways();
    } catch (const std::bad_alloc&) {
        return end({{errc::no_memory}, {}});
    }
    const bool all_lost =
        std::all_of(ways_.begin(), ways_.end(), [](const way& each) { return each.lost; });
    if (all_lost) end(copy_of(on.why()));
}

/// The transfer is over, but bytes of a put over a lost path may still be queued remotely, and
/// arrive after the memory is reused. So the peer must drop that path first. True: it was asked to,
/// and release() will be called again.
bool multipath_transfer::part_from_lost() noexcept {
    const auto owing =
        std::find_if(ways_.begin(), ways_.end(), [](const way& each) { return each.owes; });
    if (owing == ways_.end()) return false;
    const auto other =
        std::find_if(ways_.begin(), ways_.end(), [](const way& each) { return !each.lost; });
    if (other == ways_.end()) {
        if (!is_loss_of_way(why_.what.code)) why_ = lost_all();
        return false;
    }
    try {
        static constexpr const char* name = "amalgam.part";
        using signature = void(std::uint32_t);
        const procedure<signature> part(*core_, intern(*core_, name, signature_text<signature>()),
                                        true);
        ++busy_;
        // Not within the transfer's own time limit, which may have passed.
        part.on(other->to)
            .within(transfers_of(*core_).silence_limit())
            .call_then(
                [this, owing, other](const result<void>& how) noexcept {
                    if (how)
                        owing->owes = false;
                    else
                        other->lost = true;  // Unresponsive or gone: ask over another path.
                    release();
                },
                owing->number);
        return true;
    } catch (const error&) {
        --busy_;
    } catch (const std::bad_alloc&) {
        --busy_;
    }
    if (!is_loss_of_way(why_.what.code)) why_ = lost_all();
    return false;
}

void multipath_transfer::end(failure why) noexcept {
    if (ended_) return;
    ended_ = true;
    why_ = std::move(why);
    for (const auto& each : lanes_) {
        if (each->moving) each->cancel(transfers_of(*core_));
    }
}

/// Drops one hold; finishes after the last.
void multipath_transfer::release() noexcept {
    if (--busy_ != 0) return;
    if (!ended_ || part_from_lost()) return;
    if (counted_ != nullptr) counted_->end(is_put_, total_, target_.first.there, why_.what);
    transfers_of(*core_).let_go();
    if (why_.what.ok()) {
        set();
    } else {
        fail(std::move(why_));
    }
    drop_reference();
}

}  // namespace amalgam::detail

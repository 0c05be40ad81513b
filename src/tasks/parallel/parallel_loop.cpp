#include <algorithm>
#include <new>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/detail/parallel_loop.hpp>
#include <amalgam/tasks/detail/posted_tasks.hpp>

#include "tasks/parallel/latecomers.hpp"

namespace amalgam::detail {

namespace {

/// So many ULTs more than there are streams may take part, so that some may wait in the body.
constexpr std::size_t spare_tasks = 64;
/// Of what is left, a chunk of partition::automatic is this part of a stream's share.
constexpr std::size_t chunks_per_share = 4;

/// One loop that runs. Whoever takes part first posts the next one that will, as long as there is
/// something left to do: so a stream that becomes free always finds one ready, also when the others
/// wait in the body.
class running_loop {
public:
    running_loop(const loop_plan& plan, loop_body body)
        : plan_(plan),
          body_(body),
          end_(plan.options.how == partition::automatic ? plan.count
               : plan.options.how == partition::fixed   ? plan.parts
                                                        : chunks()),
          posted_(plan.caller_takes_part ? 1 : 0) {}
    ~running_loop() {
        if (late_ != nullptr) late_->release();
    }
    running_loop(const running_loop&) = delete;
    running_loop& operator=(const running_loop&) = delete;

    void run() {
        post_first();
        if (plan_.caller_takes_part) take_part();
        tasks_.wait();
        if (next_.load(std::memory_order_relaxed) < end_) std::rethrow_exception(left_in_pool());
    }

private:
    std::size_t chunks() const noexcept { return (plan_.count - 1) / plan_.grain + 1; }

    bool something_left() const noexcept {
        return next_.load(std::memory_order_relaxed) < end_ && !tasks_.stopped();
    }
    /// False: nobody else is to take part.
    bool claim_post() noexcept {
        std::size_t so_far = posted_.load(std::memory_order_relaxed);
        do {
            if (so_far >= plan_.parts || !something_left()) return false;
        } while (!posted_.compare_exchange_weak(so_far, so_far + 1, std::memory_order_relaxed));
        return true;
    }
    void post_one() {
        if (!late_->expect_one()) return;
        post(plan_.where.nearest_pool(), [this, mine = latecomers::place(*late_)]() mutable {
            if (!mine.let_in()) return;
            post_others();
            take_part();
            mine.leave();
        });
    }
    void post_first() {
        if (!claim_post()) return;
        // The caller can do it alone.
        try {
            late_ = &latecomers::of(tasks_);
            post_one();
        } catch (const std::bad_alloc&) {
            if (!plan_.caller_takes_part) throw;
        } catch (const error& failure) {
            if (!plan_.caller_takes_part || failure.code() != errc::no_memory) throw;
        }
    }
    /// Two at first, so that many streams are soon reached.
    void post_others() noexcept {
        const bool few = posted_.load(std::memory_order_relaxed) < plan_.streams;
        for (int wanted = few ? 2 : 1; wanted > 0 && claim_post(); --wanted) {
            try {
                post_one();
            } catch (...) {
                return;  // those who take part already do it all
            }
        }
    }

    void take_part() noexcept {
        run_chunks();
        if (late_ != nullptr) late_->turn_away();
    }
    void run_chunks() noexcept {
        const std::size_t number = begun_.fetch_add(1, std::memory_order_relaxed);
        try {
            switch (plan_.options.how) {
                case partition::automatic:
                    return run_automatic(number);
                case partition::dynamic:
                    return run_dynamic(number);
                case partition::fixed:
                    return run_fixed();
            }
        } catch (...) {
            tasks_.fail();
        }
    }
    void run_automatic(std::size_t number) {
        std::size_t at = next_.load(std::memory_order_relaxed);
        while (at < end_ && may_begin()) {
            const std::size_t left = end_ - at;
            const std::size_t share = left / plan_.streams / chunks_per_share;
            const std::size_t taken = std::min(left, std::max(plan_.grain, share));
            if (!next_.compare_exchange_weak(at, at + taken, std::memory_order_relaxed)) continue;
            body_.run(body_.what, at, at + taken, number);
            at = next_.load(std::memory_order_relaxed);
        }
    }
    void run_dynamic(std::size_t number) {
        for (std::size_t chunk; (chunk = next()) < end_ && may_begin();)
            run_chunk(chunk, number);
    }
    /// Parts are taken like chunks, so that a stream which is busy elsewhere holds up nothing.
    void run_fixed() {
        const std::size_t all = chunks();
        for (std::size_t part; (part = next()) < end_ && may_begin();) {
            std::size_t chunk = part;  // there are at least as many chunks as parts
            do {
                run_chunk(chunk, part);
                chunk += plan_.parts;
            } while (chunk < all && may_begin());
        }
    }
    std::size_t next() noexcept { return next_.fetch_add(1, std::memory_order_relaxed); }
    void run_chunk(std::size_t chunk, std::size_t part) {
        const std::size_t first = chunk * plan_.grain;
        body_.run(body_.what, first, first + std::min(plan_.grain, plan_.count - first), part);
    }
    bool may_begin() const {
        if (tasks_.stopped()) return false;
        if (!plan_.options.stop.stop_requested()) return true;
        throw error(errc::canceled, "a parallel loop was asked to stop before its end");
    }

    const loop_plan& plan_;
    const loop_body body_;
    const std::size_t end_;  // of what next_ counts: iterations, chunks or parts
    posted_tasks tasks_;
    latecomers* late_ = nullptr;       // of tasks_; null: nobody is posted
    std::atomic<std::size_t> posted_;  // who takes part, begun or not
    std::atomic<std::size_t> begun_{0};
    alignas(64) std::atomic<std::size_t> next_{0};
};

}  // namespace

void refuse_step() {
    throw error(errc::invalid,
                "a parallel loop with a step below 1, expected 1 or more; example: "
                "parallel_for(team, 0, n, 2, body)");
}

loop_plan plan_loop(const parallel_streams& where, std::size_t count,
                    const parallel_options& options) {
    const bool plain_thread = !this_task::in_ult();
    loop_plan plan{.where = where,
                   .options = options,
                   .count = count,
                   .caller_takes_part = plain_thread || where.runs_caller(),
                   .streams = where.size() + (plain_thread ? 1 : 0),
                   .grain = std::max<std::size_t>(options.grain, 1),
                   .parts = options.tasks};
    if (count == 0) {
        plan.parts = 0;
        return plan;
    }
    const bool fixed = options.how == partition::fixed;
    if (plan.parts == 0) plan.parts = plan.streams + (fixed ? 0 : spare_tasks);
    if (fixed && options.grain == 0) plan.grain = (count - 1) / plan.parts + 1;
    plan.parts = std::min(plan.parts, (count - 1) / plan.grain + 1);
    return plan;
}

void run_loop(const loop_plan& plan, loop_body body) {
    if (plan.count != 0) running_loop(plan, body).run();
}

}  // namespace amalgam::detail

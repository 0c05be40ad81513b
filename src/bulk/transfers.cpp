#include <atomic>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <amalgam/bulk/transfers.hpp>
#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/extension/thrown.hpp>
#include <amalgam/tasks/wait_any.hpp>

namespace amalgam {

/// The transfers of one run, as the state of its future.
///
/// Owner:   deletes itself: one reference is the future's, one lasts until all have ended.
class transfer_group final : public detail::future_state<void> {
public:
    transfer_group(std::size_t size, std::uint64_t bytes, const transfers_options& how)
        : bytes_(bytes), how_(how), running_(size + 1), all_(size) {}

    /// Once. Takes over the first reference.
    future<void> launch(const std::vector<transfers::one>& what) {
        on_abandon(&cancel_all, this);
        add_reference();
        future<void> later(*this);
        for (std::size_t i = 0; i < what.size(); ++i)
            begin(what[i], i);
        one_less();
        return later;
    }

private:
    struct member : detail::continuation {
        member() noexcept : continuation{&ended} {}
        transfer_group* group = nullptr;
        std::size_t number = 0;
        std::uint64_t moved = 0;
        bulk far;
        future<void> end;
    };

    void begin(const transfers::one& what, std::size_t number) noexcept {
        member& mine = all_[number];
        mine.group = this;
        mine.number = number;
        try {
            if (failed_.load(std::memory_order_relaxed)) return one_less();
            mine.far = what.far;
            const bulk_options how = options_of(mine);
            mine.end = what.is_push
                           ? what.far.start_push(what.offset, gather(what.from), how)
                           : what.far.start_pull(what.offset, segments(scatter(what.into)), how);
            if (any_future(mine.end).state().attach(mine)) return;
        } catch (...) {
            fail_first(number, detail::thrown_here("starting a transfer"));
            return one_less();
        }
        ended(mine);
    }
    bulk_options options_of(member& mine) {
        bulk_options how;
        how.within = how_.within;
        how.chunk_bytes = how_.chunk_bytes;
        how.striped = how_.striped;
        if (how_.on_progress)
            how.on_progress = [&mine](std::uint64_t now) { progressed(mine, now); };
        return how;
    }
    /// Of several engines, on several streams.
    static void progressed(member& mine, std::uint64_t now) {
        transfer_group& group = *mine.group;
        const std::lock_guard hold(group.telling_);
        group.done_ += now - std::exchange(mine.moved, now);
        group.how_.on_progress(group.done_, group.bytes_);
    }

    static void ended(detail::continuation& self) noexcept {
        auto& mine = static_cast<member&>(self);
        const detail::future_core& state = any_future(mine.end).state();
        if (!state.outcome().ok()) {
            try {
                state.throw_if_failed();
            } catch (...) {
                mine.group->fail_first(mine.number, detail::thrown_here("a transfer"));
            }
        }
        mine.group->one_less();
    }
    void fail_first(std::size_t number, failure why) noexcept {
        if (failed_.exchange(true, std::memory_order_acq_rel)) return;
        why_ = detail::in_words(why.what, [&] {
            return fmt::format("transfer {} of {}: {}", number + 1, all_.size(), why.sentence);
        });
    }
    void one_less() noexcept {
        if (running_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        failed_.load(std::memory_order_relaxed) ? fail(std::move(why_)) : set();
        drop_reference();
    }

    /// First all, then waits, so that their ends overlap.
    static void cancel_all(void* context) noexcept {
        auto& group = *static_cast<transfer_group*>(context);
        for (member& each : group.all_) {
            if (each.end.valid()) any_future(each.end).state().abandon();
        }
        if (group.ready()) return;
        const detail::cancel_later it_must_not_throw;
        try {
            for (const member& each : group.all_)
                each.far.check_may_wait();
            group.wait();
        } catch (...) {
            // A tasklet cannot wait, either.
        }
    }

    const std::uint64_t bytes_;
    const transfers_options how_;
    std::mutex telling_;  // Guards done_ and `moved` of all.
    std::uint64_t done_ = 0;
    std::atomic<bool> failed_{false};
    failure why_;  // Of the one that set failed_; read at the end.
    std::atomic<std::size_t> running_;
    std::vector<member> all_;
};

void transfers::pull(const bulk& from, std::uint64_t offset, const segments& into) {
    const scatter list = into.list();
    all_.push_back(
        {.far = from, .offset = offset, .bytes = into.bytes(), .into = {list.begin(), list.end()}});
    bytes_ += into.bytes();
}

void transfers::push(const bulk& to, std::uint64_t offset, const const_segments& from) {
    const gather list = from.list();
    all_.push_back({.far = to,
                    .offset = offset,
                    .bytes = from.bytes(),
                    .from = {list.begin(), list.end()},
                    .is_push = true});
    bytes_ += from.bytes();
}

future<void> transfers::start(const transfers_options& how) const {
    auto* const group = new transfer_group(all_.size(), bytes_, how);
    return group->launch(all_);
}

void transfers::run(const transfers_options& how) const {
    for (const one& each : all_)
        each.far.check_may_wait();
    start(how).get();
}

}  // namespace amalgam

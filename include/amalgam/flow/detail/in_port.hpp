#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <amalgam/flow/detail/node_ends.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam::detail {

/// One of a node's inputs.
template <typename T>
class one_inlet {
public:
    explicit one_inlet(inlet& ends) : ends_(ends), there_(ends.there) {
        if (ends.here != nullptr && ends.back_in != nullptr)
            back_ = static_cast<growing_ring<T>*>(ends.here);
        else
            here_ = static_cast<ring<T>*>(ends.here);
    }

    bool is_back() const noexcept { return ends_.back_in != nullptr; }
    bool is_over() const noexcept { return over_; }
    /// It has come to a mark, and gives nothing before pass_mark().
    bool is_at_mark() const noexcept { return mark_ != 0; }
    /// Returns the mark's checkpoint.
    std::uint64_t pass_mark() noexcept { return std::exchange(mark_, 0); }

    /// Passes up to `most` available items to `use`; returns how many. Never waits; throws
    /// error{canceled} when the run is being stopped.
    template <typename Use>
    std::uint32_t take(std::uint32_t most, Use&& use) {
        if (is_at_mark()) return 0;
        if (here_ != nullptr) return take_from(*here_, most, use);
        if (back_ != nullptr) return take_from(*back_, most, use);
        if constexpr (serializable<T>) return take_there(most, use);
        return 0;
    }
    /// Whether take() may find something. Does not throw.
    bool is_ready() noexcept {
        if (over_ || is_at_mark()) return false;
        if (there_ != nullptr) return there_->is_ready() || (is_back() && ends_.back_in->is_over());
        ring_core& queue = *ends_.here;
        if (queue.is_stopped() || queue.has_item_now() || queue.is_at_mark()) return true;
        return is_back() ? ends_.back_in->is_over() : queue.is_over();
    }
    void rest() noexcept {
        if (ends_.here != nullptr) ends_.here->rest();
    }

private:
    template <typename Queue, typename Use>
    std::uint32_t take_from(Queue& queue, std::uint32_t most, Use&& use) {
        std::uint32_t taken = 0;
        for (; taken < most && queue.has_item_now(); ++taken) {
            T* const item = queue.front();  // Throws when the run is being stopped.
            enter();
            use(std::move(*item));
            queue.pop();
        }
        if (taken == 0) {
            if (queue.is_stopped()) throw_stopped();
            if (queue.is_at_mark()) {
                mark_ = queue.take_mark();
                return 0;
            }
            // Check the end before emptiness: items pushed before the end come first.
            over_ =
                (is_back() ? ends_.back_in->is_over() : queue.is_over()) && !queue.has_item_now();
            if (over_) queue.rest();  // Counts everything taken.
        }
        return taken;
    }

    template <typename Use>
    std::uint32_t take_there(std::uint32_t most, Use&& use) {
        if (reader_.is_empty()) {
            const bool loop_is_over = is_back() && ends_.back_in->is_over();
            channel_in::batch next;
            switch (there_->try_next(next)) {
                case channel_in::found::batch:
                    mark_ = next.mark;
                    if (is_at_mark()) return 0;
                    reader_.begin(next);
                    break;
                case channel_in::found::end:
                    over_ = true;
                    return 0;
                case channel_in::found::nothing_yet:
                    over_ = loop_is_over;
                    return 0;
            }
        }
        std::uint32_t taken = 0;
        reader_.read(most, *there_, [&](T&& item) {
            enter();
            use(std::move(item));
            ++taken;
        });
        return std::max(taken, 1u);  // An empty batch is not a reason to wait.
    }

    void enter() noexcept {
        for (loop_count* each : ends_.entered)
            each->add();
    }

    inlet& ends_;
    ring<T>* here_ = nullptr;
    growing_ring<T>* back_ = nullptr;
    channel_in* there_;
    batch_reader<T> reader_;
    bool over_ = false;
    std::uint64_t mark_ = 0;  ///< The checkpoint whose mark it has come to; 0: none.
};

/// take_all() for a node with one input and no loop.
template <typename T, typename Use>
void take_all_of_one(inlet& from, node_marks* marks, Use& use) {
    if (from.here != nullptr) {
        auto& queue = static_cast<ring<T>&>(*from.here);
        for (;;) {
            while (T* item = queue.front()) {
                use(std::move(*item), 0);
                queue.pop();
            }
            if (!queue.is_at_mark()) break;
            marks->reached(queue.take_mark());
        }
    } else if constexpr (serializable<T>) {
        batch_reader<T> reader;
        channel_in::batch batch;
        while (from.there->next(batch)) {
            if (batch.mark != 0) {
                marks->reached(batch.mark);
                continue;
            }
            reader.begin(batch);
            reader.read(std::numeric_limits<std::uint32_t>::max(), *from.there,
                        [&](T&& item) { use(std::move(item), 0); });
        }
    }
}

/// If all of a node's inputs have come to a mark, or to their end, the node goes on behind it.
template <typename T>
bool pass_mark_if_all_are_there(std::vector<one_inlet<T>>& ins, node_marks& marks) {
    const auto is_at_mark = [](const one_inlet<T>& each) { return each.is_at_mark(); };
    if (std::none_of(ins.begin(), ins.end(), is_at_mark)) return false;
    const auto waits = [](const one_inlet<T>& each) {
        return !each.is_at_mark() && !each.is_over();
    };
    if (std::any_of(ins.begin(), ins.end(), waits)) return false;
    std::uint64_t number = 0;
    for (one_inlet<T>& each : ins)
        number = std::max(number, each.pass_mark());
    marks.reached(number);
    return true;
}

/// take_all() for a node with several inputs, or in a loop.
template <typename T, typename Use, typename Ended>
void take_all_of_several(node_ends& ends, Use& use, Ended& ended) {
    // Outside inputs take turns; feedback comes first, so that the loop's contents do not grow with
    // outside input.
    constexpr std::uint32_t turn_items = 64;
    std::vector<one_inlet<T>> ins;
    for (inlet& each : ends.in)
        ins.emplace_back(each);
    std::size_t open = ins.size();
    const auto take = [&](std::size_t which, std::uint32_t most) {
        const std::uint32_t taken = ins[which].take(most, [&](T&& item) {
            use(std::move(item), which);
            for (loop_count* each : ends.loops)
                each->take_away();
        });
        if (!ins[which].is_over()) return taken;
        --open;
        ended(which);
        // An input counts once in each loop it leads into.
        for (loop_count* each : ends.in[which].entered)
            each->take_away();
        return std::uint32_t{1};
    };
    const auto drain_backs = [&] {
        std::uint32_t taken = 0;
        for (std::size_t i = 0; i < ins.size(); ++i)
            while (ins[i].is_back() && !ins[i].is_over()) {
                const std::uint32_t some = take(i, turn_items);
                taken += some;
                if (some == 0) break;
            }
        return taken;
    };
    while (open != 0) {
        std::uint32_t taken = 0;
        for (std::size_t i = 0; i < ins.size(); ++i) {
            taken += drain_backs();
            if (!ins[i].is_back() && !ins[i].is_over()) taken += take(i, turn_items);
        }
        if (ends.marks != nullptr && pass_mark_if_all_are_there<T>(ins, *ends.marks)) continue;
        if (taken != 0) continue;
        for (one_inlet<T>& each : ins)
            each.rest();
        const auto any_ready = [&] {
            return std::any_of(ins.begin(), ins.end(), [](auto& each) { return each.is_ready(); });
        };
        ends.in_bell.look_and_wait_until("item in one of several flow queues", any_ready);
    }
}

/// Calls `use(T&&, from)` for every item a node receives, and `ended(from)` when that input ends;
/// returns when all have ended.
///
/// Failure: throws error{canceled} when the run is being stopped.
template <typename T, typename Use, typename Ended>
void take_all(node_ends& ends, Use&& use, Ended&& ended) {
    // A node that goes on from a checkpoint may have been told before.
    const auto ended_once = [&](std::size_t from) {
        if (std::exchange(ends.ended_inputs[from], std::uint8_t{1}) == 0) ended(from);
    };
    if (ends.in.size() == 1 && ends.loops.empty()) {
        take_all_of_one<T>(ends.in.front(), ends.marks, use);
        ended_once(0);
    } else {
        take_all_of_several<T>(ends, use, ended_once);
    }
}

}  // namespace amalgam::detail

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <amalgam/flow/detail/out_port.hpp>

namespace amalgam {

/// Where a node sends its items. The graph and its groups, not the node, decide who receives them,
/// and whether in this process or another.
///
/// Owner:   the run; valid inside the node's own functions.
/// Threads: the node's ULT.
template <typename Out>
class outlet {
public:
    /// Sends one item; waits while the queue is full (back-pressure). With several workers, their
    /// routing chooses one.
    /// Failure: throws error{canceled} when the run is being stopped: let it through.
    /// Cost:    within a process, a move or copy of the item into a slot; to another process, a
    ///          copy of its bytes into a batch. No allocation beyond the item's own.
    void send(const Out& item) { put(item); }
    void send(Out&& item) { put(std::move(item)); }

    /// Sends to worker `worker`, overriding the routing. At the end of a loop, `worker` indexes the
    /// workers at the loop's start for an item that goes back, otherwise those after the loop.
    /// Failure: as send(); throws error{invalid} if `worker` is out of range.
    void send_to(std::size_t worker, const Out& item) { put_to(worker, item); }
    void send_to(std::size_t worker, Out&& item) { put_to(worker, std::move(item)); }
    /// Number of workers for items that do not go back into a loop.
    std::size_t workers() const noexcept { return ports_ != nullptr ? ports_->targets() : 1; }
    /// Number of workers for items that go back (into the innermost loop); 0: none do.
    std::size_t workers_back() const noexcept {
        return ports_ != nullptr ? ports_->targets_back() : 0;
    }

    // For the run.
    explicit outlet(detail::out_ports<Out>& ports) noexcept
        : only_(ports.only_queue()), ports_(&ports) {}
    /// Collects what is sent in `kept`.
    explicit outlet(std::vector<Out>& kept) noexcept : kept_(&kept) {}

private:
    template <typename Item>
    void put(Item&& item) {
        if (only_ != nullptr)
            only_->push(std::forward<Item>(item));
        else if (ports_ != nullptr)
            ports_->send(std::forward<Item>(item));
        else
            kept_->push_back(std::forward<Item>(item));
    }
    template <typename Item>
    void put_to(std::size_t worker, Item&& item) {
        if (ports_ != nullptr)
            ports_->send_to(worker, std::forward<Item>(item));
        else if (worker == 0)
            kept_->push_back(std::forward<Item>(item));
        else
            detail::throw_no_worker(worker, 1);
    }

    detail::ring<Out>* only_ = nullptr;
    detail::out_ports<Out>* ports_ = nullptr;
    std::vector<Out>* kept_ = nullptr;
};

}  // namespace amalgam

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <amalgam/flow/detail/out_port.hpp>

namespace amalgam {

/// Where a node sends its items. Who takes them, and whether that is in this process or in
/// another, is decided by the graph and its groups, not by the node.
///
/// Owner:   the run; valid inside the node's own functions.
/// Threads: the node's ULT.
template <typename Out>
class outlet {
public:
    /// Sends one item; waits while what was sent before has not been taken (back-pressure). When
    /// there are several workers, the routing they were given with chooses one.
    /// Failure: throws error{canceled} when the run is being stopped: let it pass.
    /// Cost:    within a process the item's move or copy into a slot; to another process the
    ///          copy of its bytes into a batch. No allocation but the item's own.
    void send(const Out& item) { put(item); }
    void send(Out&& item) { put(std::move(item)); }

    /// Sends to worker `worker`, whatever the routing says. At the end of a loop that is one of
    /// the workers at the loop's start, for an item that goes back, or else one behind the loop.
    /// Failure: as send(); throws error{invalid} when there are not so many.
    void send_to(std::size_t worker, const Out& item) { put_to(worker, item); }
    void send_to(std::size_t worker, Out&& item) { put_to(worker, std::move(item)); }
    /// How many workers there are, for items that do not go back into a loop.
    std::size_t workers() const noexcept { return ports_ != nullptr ? ports_->targets() : 1; }
    /// How many workers what goes back (into the innermost loop) has before it; 0: nothing does.
    std::size_t workers_back() const noexcept {
        return ports_ != nullptr ? ports_->targets_back() : 0;
    }

    // For the run.
    explicit outlet(detail::out_ports<Out>& ports) noexcept
        : only_(ports.only_queue()), ports_(&ports) {}
    /// Keeps what is sent in `kept`.
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

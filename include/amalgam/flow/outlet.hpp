#pragma once

#include <utility>

#include <amalgam/flow/detail/channel.hpp>
#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam {

/// Where a node sends its items. Whether they stay in this process or go to another is decided
/// by the groups, not by the node.
///
/// Owner:   the run; valid inside the node's own functions.
/// Threads: the node's ULT.
template <typename Out>
class outlet {
public:
    /// Sends one item; waits while what was sent before has not been taken (back-pressure).
    /// Failure: throws error{canceled} when the run is being stopped: let it pass.
    /// Cost:    within a process the item's move or copy into a slot; to another process the
    ///          copy of its bytes into a batch. No allocation but the item's own.
    void send(const Out& item) { put(item); }
    void send(Out&& item) { put(std::move(item)); }

    // For the run: exactly one of the two is there.
    outlet(detail::ring_core* here, detail::channel_out* there) noexcept
        : here_(static_cast<detail::ring<Out>*>(here)), there_(there) {}

private:
    template <typename Item>
    void put(Item&& item) {
        if (here_ != nullptr) {
            here_->push(std::forward<Item>(item));
            return;
        }
        if constexpr (serializable<Out>) {  // Else the run has refused the cut.
            basic_archive_writer writer(*there_);
            writer(item);
            there_->commit();
        }
    }

    detail::ring<Out>* here_;
    detail::channel_out* there_;
};

}  // namespace amalgam

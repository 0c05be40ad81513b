#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/detail/node_ends.hpp>
#include <amalgam/flow/place.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam::detail {

/// A node that runs inside of the one that sends to it.
class fused_node {
public:
    virtual ~fused_node() = default;
    virtual void start(const place& where) = 0;
    virtual void end() = 0;
};
template <typename T>
class fused_taker : public fused_node {
public:
    virtual void take(T&& item) = 0;
};

/// Makes a fused node of `body`, which takes what the caller gives. In node_body.hpp.
std::unique_ptr<fused_node> fuse(node_body& body, node_ends& ends);

[[noreturn]] void throw_no_worker(std::size_t chosen, std::size_t workers);
[[noreturn]] void throw_loop_over();

/// Spreads what a node sends over the workers of one block.
///
/// Threads: the node's ULT.
template <typename T>
class out_port {
public:
    out_port(port_ends& ends, doorbell& bell) : ends_(ends), bell_(bell) {
        for (const taker& each : ends.takers) {
            one_taker made;
            made.there = each.there;
            if (each.here != nullptr && ends.back_in != nullptr)
                made.back = static_cast<growing_ring<T>*>(each.here);
            else
                made.here = static_cast<ring<T>*>(each.here);
            if (each.inside != nullptr) made.inside = fuse(*each.inside, *each.inside_ends);
            takers_.push_back(std::move(made));
        }
    }

    std::size_t size() const noexcept { return takers_.size(); }
    /// The one queue that everything goes into, if that is all there is to it.
    ring<T>* only_queue() noexcept {
        const bool plain = takers_.size() == 1 && ends_.within.empty() && ends_.back_in == nullptr;
        return plain ? takers_.front().here : nullptr;
    }

    template <typename Item>
    void send(Item&& item) {
        if (takers_.size() == 1) return push(takers_.front(), std::forward<Item>(item));
        switch (ends_.routing->how) {
            case spread::round_robin:
                return push(takers_[by_turns()], std::forward<Item>(item));
            case spread::on_demand:
                return push(takers_[least_busy()], std::forward<Item>(item));
            case spread::chosen: {
                const auto& routing = static_cast<const chosen_routing<T>&>(*ends_.routing);
                return send_to(routing.choose(item, takers_.size()), std::forward<Item>(item));
            }
            case spread::broadcast:
                return broadcast(std::forward<Item>(item));
        }
    }
    template <typename Item>
    void send_to(std::size_t which, Item&& item) {
        if (which >= takers_.size()) throw_no_worker(which, takers_.size());
        push(takers_[which], std::forward<Item>(item));
    }

    void start_fused(const place& where) {
        for (one_taker& each : takers_)
            if (each.inside) each.inside->start(where);
    }
    void end_fused() {
        for (one_taker& each : takers_)
            if (each.inside) each.inside->end();
    }

private:
    struct one_taker {
        ring<T>* here = nullptr;
        growing_ring<T>* back = nullptr;
        channel_out* there = nullptr;
        std::unique_ptr<fused_node> inside;

        std::uint64_t before_it() const {
            if (here != nullptr) return here->before_consumer();
            if (back != nullptr) return back->before_consumer();
            return there != nullptr ? there->items_before_receivers() : 0;
        }
        bool is_stopped() const noexcept {
            if (here != nullptr) return here->is_stopped();
            return there != nullptr && there->is_stopped();
        }
    };

    template <typename Item>
    void push(one_taker& to, Item&& item) {
        if (to.inside) {
            T own(std::forward<Item>(item));
            static_cast<fused_taker<T>&>(*to.inside).take(std::move(own));
            return;
        }
        if (ends_.back_in != nullptr && ends_.back_in->is_over()) throw_loop_over();
        for (loop_count* each : ends_.within)
            each->add();
        if (to.here != nullptr) {
            to.here->push(std::forward<Item>(item));
        } else if (to.back != nullptr) {
            to.back->push(std::forward<Item>(item));
        } else if constexpr (serializable<T>) {  // Else the run has refused the cut.
            basic_archive_writer writer(*to.there);
            writer(item);
            to.there->commit();
        }
    }

    template <typename Item>
    void broadcast(Item&& item) {
        if constexpr (std::copy_constructible<T>) {  // Else the graph could not be written.
            for (std::size_t i = 0; i + 1 < takers_.size(); ++i)
                push(takers_[i], static_cast<const T&>(item));
            push(takers_.back(), std::forward<Item>(item));
        }
    }

    std::size_t by_turns() noexcept {
        const std::size_t which = turn_;
        turn_ = which + 1 == takers_.size() ? 0 : which + 1;
        return which;
    }

    /// The one with the least before it, once that is few enough.
    std::size_t least_busy() {
        std::size_t best = 0;
        std::uint64_t least = 0;
        const auto found = [&] {
            for (std::size_t i = 0; i < takers_.size(); ++i) {
                const std::size_t which = (turn_ + i) % takers_.size();
                if (takers_[which].is_stopped()) return true;  // The push finds out.
                const std::uint64_t before = takers_[which].before_it();
                if (i == 0 || before < least) {
                    least = before;
                    best = which;
                }
            }
            return least < ends_.routing->queue_items;
        };
        if (!found()) bell_.wait_until("a worker that has little to do", found);
        turn_ = (best + 1) % takers_.size();
        return best;
    }

    port_ends& ends_;
    doorbell& bell_;
    std::vector<one_taker> takers_;
    std::size_t turn_ = 0;
};

/// Everything a node sends to: back into its loops, or on.
template <typename T>
class out_ports {
public:
    explicit out_ports(node_ends& ends) : on_(ends.out, ends.out_bell) {
        for (port_ends& each : ends.back) {
            backs_.push_back(std::make_unique<out_port<T>>(each, ends.out_bell));
            again_.push_back(static_cast<const std::function<bool(const T&)>*>(each.again));
        }
    }

    std::size_t targets() const noexcept { return on_.size(); }
    ring<T>* only_queue() noexcept { return backs_.empty() ? on_.only_queue() : nullptr; }

    template <typename Item>
    void send(Item&& item) {
        for (std::size_t i = 0; i < backs_.size(); ++i)
            if ((*again_[i])(item)) return backs_[i]->send(std::forward<Item>(item));
        on_.send(std::forward<Item>(item));
    }
    template <typename Item>
    void send_to(std::size_t which, Item&& item) {
        on_.send_to(which, std::forward<Item>(item));
    }
    void start_fused(const place& where) { on_.start_fused(where); }
    void end_fused() { on_.end_fused(); }

private:
    out_port<T> on_;
    std::vector<std::unique_ptr<out_port<T>>> backs_;
    std::vector<const std::function<bool(const T&)>*> again_;
};

}  // namespace amalgam::detail

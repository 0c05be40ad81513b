#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/flow/detail/node_ends.hpp>
#include <amalgam/flow/place.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam::detail {

/// A node that runs inside its sender.
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

/// Makes a fused node of `body`, for the sender's items. In node_body.hpp.
std::unique_ptr<fused_node> fuse(node_body& body, node_ends& ends);

[[noreturn]] void throw_no_worker(std::size_t chosen, std::size_t workers);
[[noreturn]] void throw_loop_over();

/// Distributes a node's output over the workers of one block.
///
/// Threads: the node's ULT.
template <typename T>
class out_port {
public:
    out_port(port_ends& ends, doorbell& bell) : ends_(ends), bell_(bell), root_(typed(ends.root)) {}

    /// Number of workers in the block; 1 if it is not a farm.
    std::size_t size() const noexcept { return root_.routing == nullptr ? 1 : root_.parts.size(); }
    /// The queue, if everything goes into a single one.
    ring<T>* only_queue() noexcept {
        const bool plain = ends_.within.empty() && ends_.back_in == nullptr;
        return plain && root_.routing == nullptr ? root_.here : nullptr;
    }

    template <typename Item>
    void send(Item&& item) {
        give(root_, std::forward<Item>(item));
    }
    template <typename Item>
    void send_to(std::size_t which, Item&& item) {
        if (root_.routing == nullptr && which == 0)
            give(root_, std::forward<Item>(item));
        else
            give_to(root_, which, std::forward<Item>(item));
    }

    /// For broadcast_routing.
    static void give_copy(out_port& self, void* part, const T& item) {
        self.give(*static_cast<target*>(part), item);
    }

    void start_fused(const place& where) {
        if (root_.inside) root_.inside->start(where);
    }
    void end_fused() {
        if (root_.inside) root_.inside->end();
    }

private:
    /// One taker, or several.
    struct target {
        const routing_core* routing = nullptr;
        std::vector<target> parts;
        std::size_t turn = 0;
        ring<T>* here = nullptr;
        growing_ring<T>* back = nullptr;
        channel_out* there = nullptr;
        std::unique_ptr<fused_node> inside;

        /// Backlog of its least loaded taker.
        std::uint64_t before_it() const {
            if (here != nullptr) return here->before_consumer();
            if (back != nullptr) return back->before_consumer();
            if (there != nullptr) return there->items_before_receivers();
            std::uint64_t least = 0;
            for (std::size_t i = 0; i < parts.size(); ++i) {
                const std::uint64_t before = parts[i].before_it();
                least = i == 0 ? before : std::min(least, before);
            }
            return least;
        }
        bool is_stopped() const noexcept {
            if (here != nullptr) return here->is_stopped();
            if (back != nullptr) return back->is_stopped();
            if (there != nullptr) return there->is_stopped();
            return std::any_of(parts.begin(), parts.end(),
                               [](const target& part) { return part.is_stopped(); });
        }
    };

    target typed(branch& from) {
        if (from.parts.size() == 1) return typed(from.parts.front());
        target made;
        made.routing = from.routing;
        for (branch& part : from.parts)
            made.parts.push_back(typed(part));
        made.there = from.to.there;
        if (from.to.here != nullptr && ends_.back_in != nullptr)
            made.back = static_cast<growing_ring<T>*>(from.to.here);
        else
            made.here = static_cast<ring<T>*>(from.to.here);
        if (from.to.inside != nullptr) made.inside = fuse(*from.to.inside, *from.to.inside_ends);
        return made;
    }

    template <typename Item>
    void give(target& to, Item&& item) {
        if (to.routing == nullptr) return push(to, std::forward<Item>(item));
        switch (to.routing->how) {
            case spread::round_robin:
                return give(to.parts[by_turns(to)], std::forward<Item>(item));
            case spread::on_demand:
                return give(to.parts[least_busy(to)], std::forward<Item>(item));
            case spread::chosen: {
                const auto& routing = static_cast<const chosen_routing<T>&>(*to.routing);
                return give_to(to, routing.choose(item, to.parts.size()), std::forward<Item>(item));
            }
            case spread::broadcast: {
                const auto& routing = static_cast<const broadcast_routing<T>&>(*to.routing);
                for (std::size_t i = 0; i + 1 < to.parts.size(); ++i)
                    routing.copy(*this, &to.parts[i], item);
                return give(to.parts.back(), std::forward<Item>(item));
            }
        }
    }
    template <typename Item>
    void give_to(target& to, std::size_t which, Item&& item) {
        if (which >= to.parts.size()) throw_no_worker(which, size());
        give(to.parts[which], std::forward<Item>(item));
    }

    template <typename Item>
    void push(target& to, Item&& item) {
        if (to.inside) {
            T own(std::forward<Item>(item));
            static_cast<fused_taker<T>&>(*to.inside).take(std::move(own));
            return;
        }
        if (ends_.back_in != nullptr && ends_.back_in->is_over()) throw_loop_over();
        for (loop_count* each : ends_.within)
            each->add();
        try {
            if (to.here != nullptr) {
                to.here->push(std::forward<Item>(item));
            } else if (to.back != nullptr) {
                to.back->push(std::forward<Item>(item));
            } else if constexpr (serializable<T>) {  // Otherwise the run has rejected the cut.
                write(*to.there, item);
            }
        } catch (...) {
            // The node may catch this and go on: the item does not count.
            for (loop_count* each : ends_.within)
                each->take_away();
            throw;
        }
    }
    static void write(channel_out& into, const T& item) {
        try {
            basic_archive_writer writer(into);
            writer(item);
        } catch (...) {
            into.drop_item();
            throw;
        }
        into.commit();
    }

    static std::size_t by_turns(target& of) noexcept {
        const std::size_t which = of.turn;
        of.turn = which + 1 == of.parts.size() ? 0 : which + 1;
        return which;
    }

    /// The part with the smallest backlog, once that is small enough.
    std::size_t least_busy(target& of) {
        std::size_t best = 0;
        const auto found = [&] {
            std::uint64_t least = 0;
            for (std::size_t i = 0; i < of.parts.size(); ++i) {
                const std::size_t which = (of.turn + i) % of.parts.size();
                if (of.parts[which].is_stopped()) return true;  // The push reports it.
                const std::uint64_t before = of.parts[which].before_it();
                if (i == 0 || before < least) {
                    least = before;
                    best = which;
                }
            }
            return least < of.routing->queue_items;
        };
        // Never wait on feedback: the node could be waiting for itself.
        if (!found() && ends_.back_in == nullptr)
            bell_.look_and_wait_until("room at a worker", found);
        of.turn = (best + 1) % of.parts.size();
        return best;
    }

    port_ends& ends_;
    doorbell& bell_;
    target root_;
};

/// All destinations of a node: back into its loops, or on.
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

    /// Number of workers at the innermost loop's start; 0: no feedback.
    std::size_t targets_back() const noexcept {
        return backs_.empty() ? 0 : backs_.front()->size();
    }

    template <typename Item>
    void send(Item&& item) {
        way_of(item).send(std::forward<Item>(item));
    }
    template <typename Item>
    void send_to(std::size_t which, Item&& item) {
        way_of(item).send_to(which, std::forward<Item>(item));
    }
    void start_fused(const place& where) { on_.start_fused(where); }
    void end_fused() { on_.end_fused(); }

private:
    out_port<T>& way_of(const T& item) {
        for (std::size_t i = 0; i < backs_.size(); ++i)
            if ((*again_[i])(item)) return *backs_[i];
        return on_;
    }

    out_port<T> on_;
    std::vector<std::unique_ptr<out_port<T>>> backs_;
    std::vector<const std::function<bool(const T&)>*> again_;
};

}  // namespace amalgam::detail

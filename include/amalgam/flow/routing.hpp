#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/hash.hpp>

/// @file
/// How items are distributed over the workers of the next block: an argument of farm() and
/// all_to_all(). The same within and between processes; each sender applies it independently.
///
///     g.farm(workers, am::on_demand(2));
///     g.all_to_all(readers, counters, am::by_key([](const word& w) { return w.text; }));
namespace amalgam {
namespace detail {

enum class spread : std::uint8_t { round_robin, on_demand, chosen, broadcast };

/// Type-erased routing.
struct routing_core {
    explicit routing_core(spread chosen, std::size_t items = 0) noexcept
        : how(chosen), queue_items(items) {}
    virtual ~routing_core() = default;

    const spread how;
    const std::size_t queue_items;  ///< on_demand: maximum items queued for one worker.
};

template <typename T>
struct chosen_routing final : routing_core {
    explicit chosen_routing(std::function<std::size_t(const T&, std::size_t)> function)
        : routing_core(spread::chosen), choose(std::move(function)) {}

    const std::function<std::size_t(const T&, std::size_t)> choose;
};

template <typename T>
class out_port;

template <typename T>
struct broadcast_routing final : routing_core {
    /// Copies an item to one of the out_port's parts. Instantiated only for broadcast items, so
    /// other item types need not be copyable.
    using give_copy = void (*)(out_port<T>&, void* part, const T&);
    explicit broadcast_routing(give_copy function) noexcept
        : routing_core(spread::broadcast), copy(function) {}

    const give_copy copy;
};

/// Gives the same hash for the same key in every process.
template <typename Key>
std::uint64_t hash_of_key(const Key& key) noexcept {
    if constexpr (std::is_convertible_v<const Key&, std::string_view>) {
        return fnv1a(std::string_view(key));
    } else {
        static_assert(std::is_integral_v<Key> || std::is_enum_v<Key>,
                      "a key must be an integer, an enum or a string");
        // Spreads neighboring numbers over different workers, even for a power of two of them.
        return mix(static_cast<std::uint64_t>(key) + 0x9e3779b97f4a7c15u);
    }
}

struct plain_policy {
    spread how;
    std::size_t queue_items = 0;

    template <typename T>
    std::shared_ptr<const routing_core> for_items() const {
        return std::make_shared<routing_core>(how, queue_items);
    }
};

struct broadcast_policy {
    template <typename T>
    std::shared_ptr<const routing_core> for_items() const {
        static_assert(std::copy_constructible<T>, "items that are broadcast must be copyable");
        return std::make_shared<broadcast_routing<T>>(&out_port<T>::give_copy);
    }
};

template <typename Key>
struct key_policy {
    Key key;

    template <typename T>
    std::shared_ptr<const routing_core> for_items() const {
        static_assert(std::invocable<const Key&, const T&>, "by_key() needs a function of an item");
        return std::make_shared<chosen_routing<T>>(
            [of = key](const T& item, std::size_t workers) -> std::size_t {
                return hash_of_key(of(item)) % workers;
            });
    }
};

template <typename Choose>
struct choice_policy {
    Choose choose;

    template <typename T>
    std::shared_ptr<const routing_core> for_items() const {
        static_assert(std::is_invocable_r_v<std::size_t, const Choose&, const T&, std::size_t>,
                      "route_by() needs a function of an item and the number of workers");
        return std::make_shared<chosen_routing<T>>(choose);
    }
};

}  // namespace detail

/// To each worker in turn.
inline constexpr detail::plain_policy round_robin{detail::spread::round_robin};
/// Every item to every worker.
inline constexpr detail::broadcast_policy broadcast{};
/// To a worker with the shortest queue, never with more than `queue_items` queued, including the
/// item in progress. 1: a worker gets its next item when it finishes one; 2 hides the transfer
/// latency.
constexpr detail::plain_policy on_demand(std::size_t queue_items = 2) noexcept {
    return {detail::spread::on_demand, queue_items == 0 ? 1 : queue_items};
}
/// Items with equal keys go to the same worker. `key(item)` is an integer, an enum or text.
template <typename Key>
detail::key_policy<Key> by_key(Key key) {
    return {std::move(key)};
}
/// To worker `choose(item, workers)`, which must be less than `workers`. Each sender calls it in
/// its own ULT.
template <typename Choose>
detail::choice_policy<Choose> route_by(Choose choose) {
    return {std::move(choose)};
}

}  // namespace amalgam

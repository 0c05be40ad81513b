#pragma once

#include <cstddef>
#include <mutex>
#include <type_traits>
#include <utility>

#include "tasks/limits.hpp"

namespace amalgam::detail {

/// A free block; its first word links it.
struct free_node {
    free_node* next;
};

struct free_list {
    free_node* head = nullptr;
    std::size_t count = 0;

    void push(free_node& node) noexcept {
        node.next = head;
        head = &node;
        ++count;
    }
    free_node* pop() noexcept {
        free_node* const node = head;
        if (node != nullptr) {
            head = node->next;
            --count;
        }
        return node;
    }
};

/// Lists of free blocks of one kind that threads exchange as a whole, so that a thread that only
/// allocates and one that only frees can feed each other. Beyond sixteen lists, memory is returned
/// to the system.
///
/// Threads: any.
class depot {
public:
    using release_function = void (*)(free_node&) noexcept;

    constexpr explicit depot(release_function to_system) noexcept : release_(to_system) {}

    /// A list of free blocks; empty if there is none.
    free_list take_list() noexcept;
    void give_list(free_list list) noexcept;
    std::mutex& lock() noexcept { return lock_; }  ///< See forks.hpp.

private:
    const release_function release_;
    std::mutex lock_;
    free_list lists_[limits::max_free_lists];
    std::size_t count_ = 0;
};

/// One thread's free blocks, without locks: at most two full lists. Surplus goes to the depot, and
/// refills come from it.
///
/// Threads: one.
class free_stock {
public:
    // Null: a list must be fetched first, see pop().
    free_node* first() const noexcept { return newest_.head; }
    free_node* pop_quickly() noexcept { return newest_.pop(); }
    /// Null: the depot has none either.
    free_node* pop(depot& from) noexcept {
        if (newest_.head == nullptr) refill(from);
        return newest_.pop();
    }
    void push(free_node& node, depot& to) noexcept {
        newest_.push(node);
        if (newest_.count >= limits::free_list_blocks) [[unlikely]]
            shelve(to);
    }
    void give_all(depot& to) noexcept {
        to.give_list(std::exchange(newest_, {}));
        to.give_list(std::exchange(full_, {}));
    }

private:
    // Rare, and inlined they would make their callers save more registers.
    [[gnu::noinline]] void refill(depot& from) noexcept;
    [[gnu::noinline]] void shelve(depot& to) noexcept;

    free_list newest_;
    free_list full_;  // or empty
};

// Depots are static: threads may end, and return blocks, after main() has returned.
static_assert(std::is_trivially_destructible_v<depot>);

}  // namespace amalgam::detail

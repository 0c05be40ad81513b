#pragma once

#include <cstddef>
#include <mutex>
#include <type_traits>

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

/// Free blocks of one kind, kept for reuse: a list per thread, without locks, and a
/// shared depot that lists are moved to and from whole. So a thread that only makes
/// and one that only frees still feed each other. Past `depot_lists` lists, memory goes
/// back to the system.
///
/// Threads: take_list() and give_list() from any.
class depot {
public:
    using release_function = void (*)(free_node&) noexcept;

    constexpr depot(std::size_t list_length, std::size_t depot_lists,
                    release_function release) noexcept
        : list_length_(list_length), most_(depot_lists), release_(release) {}

    /// A list of free blocks; empty when there is none.
    free_list take_list() noexcept;
    void give_list(free_list list) noexcept;

    /// The thread's list got a block: keeps it under twice the list length.
    void trim(free_list& own) noexcept {
        if (own.count >= 2 * list_length_) trim_slow(own);
    }

private:
    void trim_slow(free_list& own) noexcept;

    static constexpr std::size_t limit = 16;
    const std::size_t list_length_;
    const std::size_t most_;
    const release_function release_;
    std::mutex lock_;
    free_list lists_[limit];
    std::size_t count_ = 0;
};
// Depots are statics: threads may end, and give back, after main() returned.
static_assert(std::is_trivially_destructible_v<depot>);

}  // namespace amalgam::detail

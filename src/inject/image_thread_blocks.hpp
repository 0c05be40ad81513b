#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "inject/image_contents.hpp"

namespace amalgam::detail {

/// What code passes to find thread-local data, as compilers lay it out.
struct thread_index {
    std::uintptr_t module;
    std::uintptr_t offset;
};

/// The thread-local data of a linked image: a block for each thread that has used them.
///
/// Owner:   the blocks; a thread's goes with the thread, all with this.
/// Threads: any; at its end nobody uses them.
/// Cost:    the last image that a thread has used: two loads; else a walk past the others.
class image_thread_blocks {
public:
    image_thread_blocks(const image_thread_data& what, const std::byte* initial);
    image_thread_blocks(const image_thread_blocks&) = delete;
    image_thread_blocks& operator=(const image_thread_blocks&) = delete;
    ~image_thread_blocks();

    std::uintptr_t module() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }
    /// In place of __tls_get_addr. Ends the process when there is no memory, as that does.
    static void* address(const thread_index* of);
    /// As linked_image::hold_all().
    static std::unique_lock<std::mutex> hold_all();

private:
    friend struct thread_blocks;

    void* block();
    void* make_block() const;
    void free_block(void* block) const noexcept;

    const std::uint64_t id_;  // Never used again.
    const image_thread_data what_;
    const std::byte* const initial_;
    std::vector<void*> blocks_;
};

}  // namespace amalgam::detail

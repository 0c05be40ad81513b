#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "inject/image/contents.hpp"

namespace amalgam::detail {

/// Argument that compiled code passes to locate thread-local data.
struct thread_index {
    std::uintptr_t module;
    std::uintptr_t offset;
};

/// The thread-local data of a linked image: one block per thread that has used it.
///
/// Owner:   owns the blocks; a thread's block is freed when the thread ends, all with this.
/// Threads: any; not in use at destruction.
/// Cost:    for the image the thread used last: two loads; else a walk past the others.
class image_thread_blocks {
public:
    image_thread_blocks(const image_thread_data& what, const std::byte* initial);
    image_thread_blocks(const image_thread_blocks&) = delete;
    image_thread_blocks& operator=(const image_thread_blocks&) = delete;
    ~image_thread_blocks();

    std::uintptr_t module() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }
    /// Replaces __tls_get_addr. Like it, ends the process if out of memory.
    static void* address(const thread_index* of);
    /// See linked_image::hold_all().
    static std::unique_lock<std::mutex> hold_all();

private:
    friend struct thread_blocks;

    void* block();
    void* make_block() const;
    void free_block(void* block) const noexcept;

    const std::uint64_t id_;  // Never reused.
    const image_thread_data what_;
    const std::byte* const initial_;
    std::vector<void*> blocks_;
};

}  // namespace amalgam::detail

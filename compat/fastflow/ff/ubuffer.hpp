#pragma once

#include <ff/buffer.hpp>

namespace ff {

/// FastFlow's names for a queue of a fixed size and for one that grows, for programs that use them
/// by hand. Threads: one pushes, one pops.
struct SWSR_Ptr_Buffer : FFBUFFER {
    explicit SWSR_Ptr_Buffer(std::size_t entries, bool = true) : FFBUFFER(entries, true) {}
    bool push(void* item) { return try_push(item); }
    bool available() const { return !full(); }
};
struct uSWSR_Ptr_Buffer : FFBUFFER {
    explicit uSWSR_Ptr_Buffer(std::size_t entries, bool = false) : FFBUFFER(entries, false) {}
    bool push(void* item) { return try_push(item); }
};

}  // namespace ff

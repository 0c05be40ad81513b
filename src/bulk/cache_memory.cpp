#include "bulk/cache_memory.hpp"

#include <utility>

namespace amalgam::detail {

port_memory cache_memory::allocate(std::size_t bytes) {
    if (bytes > piece_bytes / 4) return allocate_port_memory(core_, bytes);
    for (;;) {
        {
            const std::lock_guard one(lock_);
            if (piece_bytes - cut_ >= bytes) {
                const mutable_bytes mine = piece_.bytes.subspan(cut_, bytes);
                cut_ += bytes;
                return {piece_.holder, mine};
            }
        }
        // Not under the lock: the allocating ULT may be parked.
        port_memory fresh = allocate_port_memory(core_, piece_bytes);
        const std::lock_guard one(lock_);
        std::swap(piece_, fresh);  // The previous piece, if unused, is freed after the lock.
        cut_ = 0;
    }
}

}  // namespace amalgam::detail

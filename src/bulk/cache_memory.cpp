#include "bulk/cache_memory.hpp"

#include <new>

namespace amalgam::detail {

cache_memory allocate_cache_memory(engine_core&, std::size_t bytes) {
    constexpr std::align_val_t page{4096};
    void* const memory = ::operator new(bytes, page);
    std::shared_ptr<void> holder(memory, [](void* gone) { ::operator delete(gone, page); });
    return {std::move(holder), {static_cast<std::byte*>(memory), bytes}};
}

}  // namespace amalgam::detail

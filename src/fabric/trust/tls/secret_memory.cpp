#include "fabric/trust/tls/secret_memory.hpp"

#include <mutex>

#include <string.h>
#include <sys/mman.h>

#include <amalgam/core/detail/forks.hpp>

// In programs under LeakSanitizer, which does not look into such memory by itself.
extern "C" [[gnu::weak]] void __lsan_register_root_region(const void* begin, std::size_t bytes);

namespace amalgam::detail {
namespace {

constexpr std::size_t secret_block_bytes = std::size_t{32} << 10;

struct free_piece {
    free_piece* next;
};

/// Those that nobody has.
struct {
    std::mutex mutex;
    free_piece* first = nullptr;
} free_pieces;

void lock_pieces() {
    free_pieces.mutex.lock();
}

void unlock_pieces() {
    free_pieces.mutex.unlock();
}

/// Another thread's fork() does not leave the mutex locked in the child.
constinit fork_handlers piece_handlers(lock_pieces, unlock_pieces, unlock_pieces);

/// Precondition: the mutex is held. Without memory nothing changes.
void add_block() noexcept {
    void* const block = ::mmap(nullptr, secret_block_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return;
    (void)::mlock(block, secret_block_bytes);
    (void)::madvise(block, secret_block_bytes, MADV_DONTDUMP);
    if (&__lsan_register_root_region != nullptr)
        __lsan_register_root_region(block, secret_block_bytes);
    auto* const at = static_cast<std::byte*>(block);
    for (std::size_t i = secret_block_bytes / in_secret_memory::most_bytes; i-- > 0;)
        free_pieces.first =
            new (at + i * in_secret_memory::most_bytes) free_piece{free_pieces.first};
}

}  // namespace

void* in_secret_memory::operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    if (bytes > most_bytes) return nullptr;
    (void)piece_handlers.watch();  // Without memory for it, as without this.
    const std::lock_guard lock(free_pieces.mutex);
    if (free_pieces.first == nullptr) add_block();
    free_piece* const taken = free_pieces.first;
    if (taken != nullptr) free_pieces.first = taken->next;
    return taken;
}

void* in_secret_memory::operator new(std::size_t bytes) {
    if (void* const piece = operator new(bytes, std::nothrow)) return piece;
    throw std::bad_alloc();
}

void in_secret_memory::operator delete(void* piece) noexcept {
    if (piece == nullptr) return;
    ::explicit_bzero(piece, most_bytes);
    const std::lock_guard lock(free_pieces.mutex);
    free_pieces.first = new (piece) free_piece{free_pieces.first};
}

}  // namespace amalgam::detail

#include "recorded_file.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

std::unique_ptr<recorded_file> recorded_file::open(const std::string& path, std::string& why) {
    // Not blocking: somebody may have put a FIFO there, which would be waited for.
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat what {};
    if (!file || ::fstat(file.get(), &what) != 0) {
        why = std::strerror(errno);
        return nullptr;
    }
    if (!S_ISREG(what.st_mode)) {
        why = "it is no regular file";
        return nullptr;
    }
    // What lies beyond the most that a process records is none of it, and is not mapped.
    const auto bytes = std::min(static_cast<std::size_t>(what.st_size),
                                trace_chunks_at + trace_most_chunks * trace_chunk_bytes);
    why = "it is too short, or of another release of Amalgam";
    if (bytes < trace_chunks_at) return nullptr;
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (at == MAP_FAILED) {
        why = std::strerror(errno);
        return nullptr;
    }
    std::unique_ptr<recorded_file> made(new recorded_file(static_cast<const char*>(at), bytes));
    if (made->header().magic != trace_magic) return nullptr;
    made->find_chunks(file.get());
    return made;
}

// Holes of the file are left out: one of a few bytes may claim terabytes of them, each page of
// which the kernel would make.
void recorded_file::find_chunks(int file) {
    const std::size_t chunks =
        std::min({std::size_t{header().chunks.load(std::memory_order_acquire)},
                  (bytes_ - trace_chunks_at) / trace_chunk_bytes, trace_most_chunks});
    for (std::size_t i = 0; i < chunks; ++i) {
        const std::size_t offset = trace_chunks_at + i * trace_chunk_bytes;
        const off_t data = ::lseek(file, static_cast<off_t>(offset), SEEK_DATA);
        if (data < 0 && errno == ENXIO) return;  // No more.
        if (data > 0)                            // Else: a file system that does not tell.
            i = (static_cast<std::size_t>(data) - trace_chunks_at) / trace_chunk_bytes;
        if (i < chunks) chunks_.push_back(trace_chunks_at + i * trace_chunk_bytes);
    }
}

recorded_file::~recorded_file() {
    ::munmap(const_cast<char*>(at_), bytes_);
}

}  // namespace amalgam::detail

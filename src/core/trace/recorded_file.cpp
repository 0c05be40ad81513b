#include "recorded_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace amalgam::detail {

namespace {

/// The bytes at `from`, as far as the file has them.
std::size_t read_at(int file, void* to, std::size_t bytes, std::size_t from) noexcept {
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t got = ::pread(file, static_cast<char*>(to) + done, bytes - done,
                                    static_cast<off_t>(from + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

std::size_t offset_of(std::size_t chunk) noexcept {
    return trace_chunks_at + chunk * trace_chunk_bytes;
}

}  // namespace

// Not blocking: somebody may have put a FIFO there, which would be waited for.
unique_fd recorded_file::open_regular() const {
    unique_fd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat what {};
    if (file && ::fstat(file.get(), &what) == 0 && !S_ISREG(what.st_mode)) {
        file.reset();
        errno = EBADF;
    }
    return file;
}

std::unique_ptr<recorded_file> recorded_file::open(const std::string& path, std::string& why) {
    std::unique_ptr<recorded_file> made(new recorded_file);
    made->path_ = path;
    const unique_fd file = made->open_regular();
    if (!file) {
        why = errno == EBADF ? "it is no regular file" : std::strerror(errno);
        return nullptr;
    }
    why = "it is too short, or of another release of Amalgam";
    struct stat what {};
    if (::fstat(file.get(), &what) != 0 || what.st_size < static_cast<off_t>(trace_chunks_at) ||
        read_at(file.get(), static_cast<void*>(&made->header_), sizeof made->header_, 0) !=
            sizeof made->header_ ||
        made->header_.magic != trace_magic) {
        return nullptr;
    }
    return made;
}

void recorded_file::read_header() {
    const unique_fd file = open_regular();
    trace_file_header now{};
    if (!file || read_at(file.get(), static_cast<void*>(&now), sizeof now, 0) != sizeof now) return;
    header_.chunks.store(now.chunks.load(std::memory_order_relaxed), std::memory_order_relaxed);
    header_.dropped.store(now.dropped.load(std::memory_order_relaxed), std::memory_order_relaxed);
    header_.unnamed.store(now.unnamed.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void recorded_file::read_texts() {
    texts_ = std::make_unique<trace_text_slot[]>(trace_texts);
    const unique_fd file = open_regular();
    if (!file) return;
    read_at(file.get(), static_cast<void*>(texts_.get()), trace_texts * sizeof(trace_text_slot),
            trace_header_bytes);
}

// The first chunk at `index` or behind it. Holes of the file are left out: one of a few bytes may
// claim terabytes of them, each page of which the kernel would make.
bool recorded_file::next_chunk(int file, std::size_t& index) const noexcept {
    const std::size_t chunks =
        std::min<std::size_t>(header_.chunks.load(std::memory_order_relaxed), trace_most_chunks);
    if (index >= chunks) return false;
    const off_t data = ::lseek(file, static_cast<off_t>(offset_of(index)), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return false;  // No more.
    if (data > 0)                                  // Else: a file system that does not tell.
        index = (static_cast<std::size_t>(data) - trace_chunks_at) / trace_chunk_bytes;
    return index < chunks;
}

// Reads the chunk's records from byte `from` on; returns how many bytes. First how many are
// complete, then these: the other way round, they might not be there yet.
std::size_t recorded_file::read_chunk(int file, std::size_t index, std::size_t from,
                                      char* to) noexcept {
    std::uint32_t told = 0;
    if (read_at(file, &told, sizeof told, offset_of(index) + offsetof(trace_chunk_header, used)) !=
        sizeof told) {
        return 0;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::size_t used =
        std::min<std::size_t>(told, trace_chunk_bytes - sizeof(trace_chunk_header));
    if (used <= from) return 0;
    return read_at(file, to, used - from, offset_of(index) + sizeof(trace_chunk_header) + from);
}

}  // namespace amalgam::detail

#include "recorded_file.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

std::unique_ptr<recorded_file> recorded_file::open(const std::string& path, std::string& why) {
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat what {};
    if (!file || ::fstat(file.get(), &what) != 0) {
        why = std::strerror(errno);
        return nullptr;
    }
    const auto bytes = static_cast<std::size_t>(what.st_size);
    why = "it is too short, or of another release of Amalgam";
    if (bytes < trace_chunks_at) return nullptr;
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (at == MAP_FAILED) {
        why = std::strerror(errno);
        return nullptr;
    }
    std::unique_ptr<recorded_file> made(new recorded_file(static_cast<const char*>(at), bytes));
    return made->header().magic == trace_magic ? std::move(made) : nullptr;
}

recorded_file::~recorded_file() {
    ::munmap(const_cast<char*>(at_), bytes_);
}

}  // namespace amalgam::detail

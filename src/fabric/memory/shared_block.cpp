#include <cerrno>
#include <new>

#include <fmt/format.h>
#include <sys/mman.h>

#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/shared_block.hpp>

namespace amalgam {
namespace {

// From this size a huge page may hold part of it: the kernel copies from those faster.
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

class private_memory final : public shared_block::body {
public:
    explicit private_memory(mutable_bytes bytes) noexcept : bytes_(bytes) {}
    ~private_memory() override { ::munmap(bytes_.data(), bytes_.size()); }

    mutable_bytes bytes() const noexcept override { return bytes_; }
    bool is_shared() const noexcept override { return false; }

private:
    const mutable_bytes bytes_;
};

failure no_memory_for(std::size_t bytes, int error) {
    return {{errc::no_memory, error},
            fmt::format("cannot allocate a block of {} bytes (errno {}); request less, or check "
                        "the memory limit (ulimit -v)",
                        bytes, error)};
}

}  // namespace

result<shared_block> allocate_private(std::size_t bytes) noexcept try {
    if (bytes == 0)
        return {
            errc::invalid,
            "cannot allocate a block of 0 bytes, expected at least 1; example: allocate(1 << 20)"};
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return no_memory_for(bytes, errno);
    const mutable_bytes memory(static_cast<std::byte*>(at), bytes);
    if (bytes >= huge_page_bytes) ::madvise(at, bytes, MADV_HUGEPAGE);
    try {
        return shared_block(std::make_unique<private_memory>(memory));
    } catch (const std::bad_alloc&) {
        ::munmap(at, bytes);
        throw;
    }
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

result<shared_block> port::allocate(std::size_t bytes) noexcept {
    return allocate_private(bytes);
}

}  // namespace amalgam

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::size_t first_piece = std::size_t{64} << 10;

result<std::vector<std::byte>> unreadable() {
    return {errc::not_found, fmt::format("cannot be read ({})", std::strerror(errno))};
}

result<std::vector<std::byte>> too_long(std::size_t most) {
    return {errc::invalid, most % mebibyte == 0
                               ? fmt::format("is longer than {} MiB", most / mebibyte)
                               : fmt::format("is longer than {} bytes", most)};
}

}  // namespace

result<std::vector<std::byte>> read_file(const std::string& path, std::size_t most) {
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat about {};
    if (!file || ::fstat(file.get(), &about) != 0) return unreadable();
    // Files in /proc and non-regular files report 0.
    const auto said = static_cast<std::size_t>(about.st_size);
    if (S_ISREG(about.st_mode) && said > most) return too_long(most);
    std::vector<std::byte> bytes;
    std::size_t used = 0;
    while (used <= most) {
        bytes.resize(std::min(std::max({2 * used, said + 1, first_piece}), most + 1));
        const auto got = read_into(file.get(), std::span(bytes).subspan(used));
        if (!got) return unreadable();
        used += *got;
        if (used == bytes.size()) continue;
        bytes.resize(used);
        bytes.shrink_to_fit();
        return bytes;
    }
    return too_long(most);
}

std::optional<std::size_t> read_into(int file, std::span<std::byte> room) noexcept {
    std::size_t size = 0;
    while (size < room.size()) {
        const ssize_t got = ::read(file, room.data() + size, room.size() - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        if (got == 0) break;
        size += static_cast<std::size_t>(got);
    }
    return size;
}

}  // namespace amalgam::detail

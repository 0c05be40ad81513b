#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include <sys/stat.h>

#include <amalgam/core/detail/open_folder.hpp>

namespace amalgam::detail {
namespace {

/// From the nearest to the root. `path` is absolute.
std::optional<open_folder> open_one_above(const std::string& path) {
    for (std::size_t slash = path.rfind('/'); slash != path.npos;
         slash = slash == 0 ? path.npos : path.rfind('/', slash - 1)) {
        std::string folder = path.substr(0, slash + 1);
        struct stat about {};
        if (::stat(folder.c_str(), &about) == 0 && (about.st_mode & S_IWOTH) != 0 &&
            (about.st_mode & S_ISVTX) == 0)
            return open_folder{std::move(folder), about.st_mode & 07777};
    }
    return std::nullopt;
}

struct free_text {
    void operator()(char* text) const noexcept { std::free(text); }
};

}  // namespace

std::optional<open_folder> open_folder_above(const std::string& path) {
    std::error_code none;
    const std::string whole = std::filesystem::absolute(path, none).string();
    if (auto found = open_one_above(whole)) return found;
    for (const std::string& each : {whole, whole.substr(0, whole.rfind('/') + 1)}) {
        const std::unique_ptr<char, free_text> real(::realpath(each.c_str(), nullptr));
        if (real == nullptr) continue;  // The file may not be there yet.
        // A folder is as if it were a file in it.
        const bool is_folder = each.ends_with('/');
        if (auto found = open_one_above(real.get() + std::string(is_folder ? "/" : "")))
            return found;
    }
    return std::nullopt;
}

}  // namespace amalgam::detail

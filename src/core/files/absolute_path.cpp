#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include <amalgam/core/detail/absolute_path.hpp>
#include <amalgam/core/detail/printable.hpp>

namespace amalgam::detail {

result<std::string> absolute_path(const std::string& path) {
    if (path.empty()) return path;
    std::error_code why;
    const std::filesystem::path whole = std::filesystem::absolute(path, why);
    if (!why) return whole.string();
    return failure{{errc::not_found, why.value()},
                   fmt::format("\"{}\" cannot be found again, as the current folder has no path "
                               "({}), expected an absolute path; example: /srv/{}",
                               printable(path), why.message(),
                               printable(std::filesystem::path(path).filename().string()))};
}

}  // namespace amalgam::detail

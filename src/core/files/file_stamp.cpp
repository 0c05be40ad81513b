#include <sys/stat.h>

#include <amalgam/core/detail/file_stamp.hpp>

namespace amalgam::detail {

file_stamp file_stamp::of(const std::string& path) noexcept {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) return {};
    return {about.st_dev,         about.st_ino,          static_cast<std::uint64_t>(about.st_size),
            about.st_ctim.tv_sec, about.st_ctim.tv_nsec, true};
}

}  // namespace amalgam::detail

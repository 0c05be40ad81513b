#pragma once

#include <string>

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam {

/// Over a folder a file system that answers nothing, as one on the network of which the server is
/// gone: whoever looks at a file in the folder waits until this ends, and is then refused.
class silent_folder {
public:
    explicit silent_folder(std::string path)
        : path_(std::move(path)), server_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
        const std::string how = "fd=" + std::to_string(server_.get()) +
                                ",rootmode=40000,user_id=" + std::to_string(::getuid()) +
                                ",group_id=" + std::to_string(::getgid());
        is_there_ = server_ && ::mount("silent", path_.c_str(), "fuse", MS_NODEV | MS_NOSUID,
                                       how.c_str()) == 0;
    }
    silent_folder(const silent_folder&) = delete;
    ~silent_folder() { end(); }

    void end() {
        if (is_there_) ::umount2(path_.c_str(), MNT_DETACH);
        is_there_ = false;
        server_.reset();
    }

    /// False: this process may not mount one.
    explicit operator bool() const noexcept { return is_there_; }

private:
    const std::string path_;
    unique_fd server_;
    bool is_there_;
};

}  // namespace amalgam

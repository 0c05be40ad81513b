#pragma once

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// A pipe on which processes of a test report that they run, see report() in test_program.cpp. Each
/// keeps the write end open, and so do its children: end of file means all of them have ended.
class test_reports {
public:
    explicit test_reports(std::string path) : path_(std::move(path)) {
        if (::mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("no fifo at " + path_);
        reading_.reset(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    }
    ~test_reports() { ::unlink(path_.c_str()); }

    const std::string& path() const noexcept { return path_; }

    /// Waits for that many processes; returns them by group.
    std::multimap<std::string, pid_t> wait_for(long count) {
        std::string text;
        while (std::count(text.begin(), text.end(), '\n') < count)
            text += read_some();
        std::istringstream lines(text);
        std::multimap<std::string, pid_t> all;
        std::string name;
        for (pid_t pid; lines >> name >> pid;)
            all.emplace(name, pid);
        return all;
    }
    /// Returns when every process that reported, and whatever it started, is gone.
    void wait_until_nothing_is_left() {
        while (!read_some().empty()) {
        }
    }

private:
    std::string read_some() {
        pollfd wait{reading_.get(), POLLIN, 0};
        ::poll(&wait, 1, -1);
        char piece[1024];
        ssize_t got = ::read(reading_.get(), piece, sizeof piece);
        return std::string(piece, got > 0 ? static_cast<std::size_t>(got) : 0);
    }

    std::string path_;
    unique_fd reading_;
};

}  // namespace amalgam::detail

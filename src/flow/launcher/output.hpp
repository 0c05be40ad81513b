#pragma once

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

namespace amalgam::detail {

/// Text on its way to one of our own descriptors. Never blocks: a reader that pauses makes
/// the queue grow, and full() says when to stop feeding it.
class output_queue {
public:
    explicit output_queue(int fd) noexcept : fd_(fd) {}

    int fd() const noexcept { return fd_; }
    void add(std::string_view text) {
        if (broken_ == 0) waiting_.append(text);
    }
    bool empty() const noexcept { return waiting_.empty(); }
    bool full() const noexcept { return waiting_.size() > (std::size_t{1} << 20); }

    /// The errno for which text was lost; 0: none was, or its reader is gone and wants no more.
    int lost_for() const noexcept { return broken_ == EPIPE ? 0 : broken_; }

    /// Writes a piece; call it when poll() says that there is room. A reader that is gone
    /// makes everything from now on vanish.
    void write_some() noexcept;

private:
    int fd_;
    std::string waiting_;
    int broken_ = 0;
};

/// Cuts what a process prints into lines and puts its label in front of each, so that lines
/// of several processes never mix.
class line_prefixer {
public:
    /// Longer lines are cut here, so that a process without line ends cannot fill our memory.
    static constexpr std::size_t max_line_bytes = std::size_t{64} << 10;

    /// Empty `label`: passes nothing on.
    explicit line_prefixer(std::string_view label)
        : prefix_(label.empty() ? "" : "[" + std::string(label) + "] ") {}

    void feed(std::string_view text, output_queue& into);
    /// Ends an unfinished last line.
    void finish(output_queue& into);

private:
    std::string prefix_;
    std::string line_;
};

}  // namespace amalgam::detail

#pragma once

#include <cerrno>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace amalgam::detail {

/// Text queued for one of our own descriptors. Never blocks: if the reader pauses, the queue grows,
/// and full() says when to stop adding to it.
class output_queue {
public:
    explicit output_queue(int fd) noexcept : fd_(fd) {}

    int fd() const noexcept { return fd_; }
    void add(std::string_view text) {
        if (broken_ == 0) waiting_.append(text);
    }
    void add_line(std::string_view prefix, std::string_view line);
    /// Is given each line of add_line(), too, with its prefix.
    void tell_lines_to(std::function<void(std::string_view)> tell) { tell_ = std::move(tell); }
    bool empty() const noexcept { return waiting_.empty(); }
    bool full() const noexcept { return waiting_.size() > (std::size_t{1} << 20); }

    /// The errno that made text get lost; 0 if none was, or the reader closed its end.
    int lost_for() const noexcept { return broken_ == EPIPE ? 0 : broken_; }

    /// Writes a piece; call it when poll() reports room. If the reader is gone, everything from now
    /// on is dropped.
    void write_some() noexcept;

private:
    int fd_;
    std::string waiting_;
    int broken_ = 0;
    std::function<void(std::string_view)> tell_;
};

/// Splits a process's output into lines and prefixes each with its label, so that lines of several
/// processes never mix.
class line_prefixer {
public:
    /// Empty `label`: discards the text.
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

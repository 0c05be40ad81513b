#include "flow/launcher/output.hpp"

#include <algorithm>
#include <cerrno>

#include <unistd.h>

#include "flow/limits.hpp"

namespace amalgam::detail {

void output_queue::add_line(std::string_view prefix, std::string_view line) {
    add(prefix);
    add(line);
    add("\n");
    if (tell_) tell_(std::string(prefix).append(line));
}

void output_queue::write_some() noexcept {
    // poll() guarantees room for PIPE_BUF bytes in a pipe; more could block.
    std::size_t piece = std::min<std::size_t>(waiting_.size(), 4096);
    ssize_t written = ::write(fd_, waiting_.data(), piece);
    if (written >= 0) {
        waiting_.erase(0, static_cast<std::size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
        broken_ = errno;
        waiting_.clear();
    }
}

void line_prefixer::feed(std::string_view text, output_queue& into) {
    if (prefix_.empty()) return;
    while (!text.empty()) {
        std::size_t end = text.find('\n');
        std::size_t room = limits::max_line_bytes - line_.size();
        std::size_t take = std::min({text.size(), end, room});
        line_.append(text.substr(0, take));
        text.remove_prefix(take);
        bool ended = !text.empty() && text.front() == '\n';
        if (ended) text.remove_prefix(1);
        if (ended || line_.size() == limits::max_line_bytes) {
            into.add_line(prefix_, line_);
            line_.clear();
        }
    }
}

void line_prefixer::finish(output_queue& into) {
    if (!line_.empty()) feed("\n", into);
}

}  // namespace amalgam::detail

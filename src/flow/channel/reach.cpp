#include "flow/channel/reach.hpp"

#include <algorithm>

#include <amalgam/tasks/ult.hpp>

#include "flow/limits.hpp"

namespace amalgam::detail {

bool may_come(errc code) noexcept {
    return code == errc::unreachable || code == errc::disconnected || code == errc::timed_out ||
           code == errc::not_found;
}

result<peer> reach(
    engine& over, const std::string& address, clock::time_point deadline,
    const std::function<result<void>(const peer& who, std::chrono::nanoseconds time_left)>& ask,
    const std::function<bool()>& is_over) {
    clock::duration pause = std::chrono::milliseconds(5);
    for (;;) {
        result<peer> found = over.try_lookup(address);
        if (found) {
            const auto time_left = std::max<clock::duration>(deadline - over.now(), pause);
            const result<void> answer = ask(*found, time_left);
            if (answer) return found;
            found = answer.why();
        }
        const bool late = over.now() + pause >= deadline;
        if (is_over() || late || !may_come(found.why().what.code)) return found;
        this_task::sleep_for(pause);
        pause = std::min(pause * 2, clock::duration(limits::longest_reach_pause));
    }
}

}  // namespace amalgam::detail

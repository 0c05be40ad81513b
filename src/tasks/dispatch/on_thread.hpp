#pragma once

#include <utility>

#include <sys/types.h>
#include <unistd.h>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/overflow.hpp"
#include "tasks/dispatch/thread_store.hpp"

namespace amalgam::detail {

/// While it exists, the calling thread acts as that stream.
///
/// In line, as an event loop may do this for each message. Only for the loop's own stack, which
/// stays on its thread: what is inlined may keep that thread's addresses.
class dispatcher::on_thread {
public:
    explicit on_thread(dispatcher& self) noexcept
        : on_thread(self, thread_store::own::get_in_line()) {}
    ~on_thread() { current_ = before_; }
    on_thread(const on_thread&) = delete;
    on_thread& operator=(const on_thread&) = delete;

private:
    // `own`: null while the thread ends.
    [[gnu::always_inline]] on_thread(dispatcher& self, thread_store* own) noexcept
        : before_(std::exchange(current_, &self)), watched_(self, own) {
        self.caches_ = own != nullptr
                           ? thread_caches{own->exceptions, &own->stacks, &own->blocks}
                           : thread_caches{exception_state::of_thread(), nullptr, nullptr};
        self.below_ = before_;
        self.loop_.stack.floats.renew();
        self.thread_id_ = own != nullptr ? own->id : ::gettid();
        self.loop_.sanitizer.adopt_thread();
        self.renew_time();
    }

    dispatcher* before_;
    overflow_watch watched_;
};

}  // namespace amalgam::detail

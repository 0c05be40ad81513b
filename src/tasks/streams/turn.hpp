#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "tasks/streams/stream.hpp"
#include "tasks/ult/overflow.hpp"

namespace amalgam::detail {

/// While it exists, the calling thread acts as a stream.
class stream::turn {
public:
    explicit turn(stream& self) noexcept
        : self_(self), before_(set_current(&self)), watched_(self) {
        self.thread_exceptions_ = exception_state::of_thread();
        self.stock_ = ult_core::thread_stock();
        self.blocks_ = block_cache::of_thread();
        self.loop_.stack.floats = float_control::now();
        self.thread_id_ = own_thread_id();
        self.loop_.sanitizer.adopt_thread();
        self.coarse_now_ = cycles();
        self.pollers_.set_running(true);
    }
    ~turn() {
        self_.pollers_.set_running(false);
        set_current(before_);
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;

private:
    // Cached: a driven stream may begin a turn for each unit.
    static pid_t own_thread_id() noexcept {
        [[gnu::tls_model("initial-exec")]] static constinit thread_local pid_t id = 0;
        if (id == 0) id = ::gettid();
        return id;
    }

    stream& self_;
    stream* before_;
    overflow_watch watched_;
};

}  // namespace amalgam::detail

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <ff/config.hpp>
#include <ff/mapping_utils.hpp>
#include <ff/thread.hpp>
#include <ff/utils.hpp>

namespace ff {

struct ff_thread::state {
    std::mutex mutex;
    std::condition_variable changed;
    std::thread thread;
    enum { runs, freezes, freezes_again } wanted = runs;
    bool stop = true;  // one round, unless it is to freeze
    bool frozen = false;
    bool failed = false;
    bool done = false;
    std::atomic<size_t> id{0};
};

ff_thread::ff_thread() : state_(std::make_unique<state>()) {}

ff_thread::~ff_thread() {
    if (!state_->thread.joinable()) return;
    error("an ff_thread was destroyed before wait(), expected wait() in the program\n");
    ff_thread::wait();
}

int ff_thread::spawn(int) {
    if (state_->thread.joinable()) return -1;
    state_->failed = state_->done = state_->frozen = false;
    try {
        state_->thread = std::thread([this] { main(); });
        return 0;
    } catch (const std::exception& failure) {
        error("a thread cannot be started: %s\n", failure.what());
        return -2;
    }
}

/// False: it ends.
bool ff_thread::round() {
    if (svc_init() < 0) {
        error("svc_init() of an ff_thread failed, and ends it\n");
        return false;
    }
    void* const result = svc(nullptr);
    svc_end();
    state& mine = *state_;
    std::unique_lock hold(mine.mutex);
    if (result != FF_EOS_NOFREEZE && !mine.stop) {
        if (mine.wanted == state::runs && result == FF_EOS) mine.stop = true;
        while (mine.wanted == state::freezes) {
            mine.frozen = true;
            mine.changed.notify_all();
            mine.changed.wait(hold);
        }
    }
    if (mine.wanted == state::freezes_again) mine.wanted = state::freezes;
    return !mine.stop;
}

void ff_thread::main() {
    state& mine = *state_;
    mine.id = ff_getThreadID();
    bool failed = false;
    try {
        while (round())
            continue;
    } catch (const std::exception& failure) {
        error("an exception out of an ff_thread: %s\n", failure.what());
        failed = true;
    } catch (...) {
        error("an exception out of an ff_thread, which is no std::exception\n");
        failed = true;
    }
    const std::lock_guard hold(mine.mutex);
    mine.failed = failed || !mine.stop;
    mine.frozen = mine.done = true;  // who waits for it to freeze need not wait any longer
    mine.changed.notify_all();
}

int ff_thread::wait() {
    stop();
    if (isfrozen()) {
        wait_freezing();
        thaw();
    }
    if (state_->thread.joinable()) state_->thread.join();
    return 0;
}

int ff_thread::wait_freezing() {
    std::unique_lock hold(state_->mutex);
    state_->changed.wait(hold, [&] { return state_->frozen || !state_->thread.joinable(); });
    return state_->failed ? -1 : 0;
}

void ff_thread::stop() {
    const std::lock_guard hold(state_->mutex);
    state_->stop = true;
}

void ff_thread::freeze() {
    const std::lock_guard hold(state_->mutex);
    state_->stop = false;
    state_->wanted = state::freezes;
}

void ff_thread::thaw(bool again, ssize_t) {
    const std::lock_guard hold(state_->mutex);
    state_->wanted = again ? state::freezes_again : state::runs;
    state_->frozen = false;
    state_->changed.notify_all();
}

bool ff_thread::isfrozen() const {
    const std::lock_guard hold(state_->mutex);
    return state_->wanted != state::runs;
}

bool ff_thread::done() const {
    const std::lock_guard hold(state_->mutex);
    return state_->done || (state_->frozen && !state_->stop);
}

pthread_t ff_thread::get_handle() const {
    return state_->thread.native_handle();
}

size_t ff_thread::getOSThreadId() const {
    return state_->id;
}

}  // namespace ff

#include "fabric/trust/credentials/file_watch.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <pthread.h>

#include <amalgam/core/blocked_signals.hpp>

#include "fabric/limits.hpp"

namespace amalgam::detail {

struct file_watch::state {
    explicit state(std::function<void()> function) : look(std::move(function)) {}

    void run() {
        ::pthread_setname_np(::pthread_self(), "credentials");
        std::unique_lock hold(lock);
        while (!changed.wait_for(hold, limits::credentials_interval, [this] { return ended; })) {
            hold.unlock();
            look();
            hold.lock();
        }
    }

    const std::function<void()> look;
    std::mutex lock;
    std::condition_variable changed;
    bool ended = false;
};

file_watch::file_watch(std::function<void()> look)
    : state_(std::make_shared<state>(std::move(look))) {
    const blocked_signals not_ours;
    std::thread([kept = state_] { kept->run(); }).detach();
}

file_watch::~file_watch() {
    // The thread of the parent may have held the lock. What it shares stays in the child, as its
    // reference does.
    if (is_of_parent()) return;
    const std::lock_guard hold(state_->lock);
    state_->ended = true;
    state_->changed.notify_all();
}

}  // namespace amalgam::detail

#include "inject/run/forking_thread.hpp"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>

#include <unistd.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/status.hpp>

#include "inject/link/image_thread_blocks.hpp"
#include "inject/link/linked_image.hpp"

namespace amalgam::detail {

namespace {

class forking_thread {
public:
    forking_thread() {
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            std::thread([this] { serve(); }).detach();
        } catch (const std::system_error& why) {
            ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw error(errc::no_memory, "cannot create a thread to run confined code");
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    pid_t fork_to(apart what, void* context) {
        if (forked_.is_in_child())
            throw error(errc::unsupported,
                        "a child of fork() cannot run confined code when its parent has; call "
                        "exec() first");
        const std::lock_guard one(one_asks_);
        std::unique_lock hold(lock_);
        what_ = what;
        context_ = context;
        changed_.notify_all();
        changed_.wait(hold, [&] { return what_ == nullptr; });
        return child_;
    }

private:
    [[noreturn]] void serve() {
        std::unique_lock hold(lock_);
        for (;;) {
            changed_.wait(hold, [&] { return what_ != nullptr; });
            // A lock held by another thread would stay locked in the child forever.
            std::unique_lock images = linked_image::hold_all();
            std::unique_lock blocks = image_thread_blocks::hold_all();
            child_ = ::fork();
            if (child_ < 0) child_ = -errno;
            blocks.unlock();
            images.unlock();
            if (child_ == 0) what_(context_);
            what_ = nullptr;
            changed_.notify_all();
        }
    }

    const fork_check forked_;
    std::mutex one_asks_;
    std::mutex lock_;
    std::condition_variable changed_;
    apart what_ = nullptr;
    void* context_ = nullptr;
    pid_t child_ = 0;
};

}  // namespace

pid_t fork_apart(apart what, void* context) {
    static forking_thread* const one = new forking_thread;  // Never freed.
    return one->fork_to(what, context);
}

}  // namespace amalgam::detail

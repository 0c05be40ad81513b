#include "fabric/transports/shm/listener.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/random.hpp>

namespace amalgam::detail {
namespace {

unique_fd any_descriptor() noexcept {
    return unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// The owner of the name, for the error message.
std::string owner_of(std::string_view name) {
    const unique_fd there = connect_to(name);
    const pid_t pid = there ? who_is(there.get()).pid : 0;
    return pid > 0 ? fmt::format("process {}", pid) : std::string("a live process");
}

}  // namespace

result<shm_listener> shm_listener::open(std::string_view name, const shm_users& others) {
    shm_listener made;
    made.others_ = others;
    made.name_ = name.empty() ? fmt::format("{:016x}", random_u64()) : std::string(name);
    made.socket_ = listen_at(made.name_);
    const int error = errno;
    if (!made.socket_ && error == EADDRINUSE)
        return failure{{errc::in_use, error},
                       fmt::format("shm://{}: the name is in use by {}; choose another, or none "
                                   "for a random one; example: shm://",
                                   name, owner_of(name))};
    if (!made.socket_)
        return failure{{errc::no_memory, error},
                       fmt::format("shm://{}: cannot create a listening socket (errno {}); check "
                                   "the limit on open files (ulimit -n)",
                                   name, error)};
    made.spare_ = any_descriptor();
    return made;
}

unique_fd shm_listener::accept_one() noexcept {
    auto take = [&] {
        return unique_fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    };
    unique_fd came = take();
    if (came || (errno != EMFILE && errno != ENFILE)) return came;
    // Left in the backlog, it would keep the wait handle readable: accept it and close it.
    limited_log(log_level::warn, "shm", "refused a connection: out of file descriptors",
                {{"port", name_}});
    spare_.reset();
    (void)take();
    spare_ = any_descriptor();
    return {};
}

bool shm_listener::lets_in(const shm_credentials& who) const noexcept {
    return who.same_user || (who.known && others_.have(who.uid));
}

/// Others who connect and do not greet leave room for this user's processes.
bool shm_listener::is_crowded_by_others() const noexcept {
    return static_cast<std::size_t>(std::count_if(
               pending_.begin(), pending_.end(),
               [](const auto& one) { return !one->who.same_user; })) >= limits::shm_max_pending / 2;
}

shm_pending* shm_listener::accept(clock::time_point deadline, int& most) noexcept try {
    while (!is_crowded() && most > 0) {
        --most;
        unique_fd came = accept_one();
        if (!came) return nullptr;
        const shm_credentials who = who_is(came.get());
        if (!lets_in(who)) {
            ++refused_;
            limited_log(log_level::warn, "shm",
                        "refused a connection from a process of another user",
                        {{"port", name_}, {"uid", who.uid}, {"pid", who.pid}});
            shm_hello no;
            no.refused = static_cast<std::uint32_t>(errc::denied);
            send_hello(came.get(), no, -1, -1);
            continue;
        }
        if (!who.same_user && is_crowded_by_others()) continue;  // Dropped: they may try again.
        auto pending = std::make_unique<shm_pending>();
        pending->socket = std::move(came);
        pending->who = who;
        pending->deadline = deadline;
        pending_.push_back(std::move(pending));
        return pending_.back().get();
    }
    return nullptr;
} catch (const std::bad_alloc&) {
    return nullptr;
}

void shm_listener::remove(shm_pending& who) noexcept {
    std::erase_if(pending_, [&](const auto& one) { return one.get() == &who; });
}

void shm_listener::drop_expired(clock::time_point now) noexcept {
    std::erase_if(pending_, [&](const auto& one) { return one->deadline <= now; });
}

}  // namespace amalgam::detail

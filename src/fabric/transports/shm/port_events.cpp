// Kernel events of a port: connections, disconnections, rings.
#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/port.hpp"

namespace amalgam::detail {
namespace {

// How often deadlines are checked if nothing else happens.
constexpr long timer_nanoseconds = 20'000'000;

// Bells taken at once. Whoever rings all the time must not hold up the others.
constexpr int bells_at_once = 64;

// Drains bell bytes from a socket.
void silence(int socket) noexcept {
    std::array<char, 16> bells;
    for (int i = 0; i < bells_at_once; ++i)
        if (::recv(socket, bells.data(), bells.size(), MSG_DONTWAIT) <= 0) return;
}

}  // namespace

bool shm_port::watch(int fd, shm_watch& what) noexcept {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.ptr = &what;
    return ::epoll_ctl(events_.get(), EPOLL_CTL_MOD, fd, &event) == 0 ||
           ::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void shm_port::unwatch(shm_link& link) noexcept {
    // Not left to close(): a fork() child may hold the descriptors too.
    for (const unique_fd* fd : {&link.socket_, &link.process_})
        if (*fd) ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd->get(), nullptr);
}

void shm_port::watch_listener() noexcept {
    const bool wanted = listener_.is_open() && !listener_.is_crowded();
    if (std::exchange(listener_watched_, wanted) == wanted) return;
    if (wanted)
        watch(listener_.fd(), door_watch_);
    else
        ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, listener_.fd(), nullptr);
}

void shm_port::look_at_events() noexcept {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(events_.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i)
        on_event(*static_cast<const shm_watch*>(events[static_cast<std::size_t>(i)].data.ptr),
                 events[static_cast<std::size_t>(i)].events);
    // After the events, because it drops pending connections that an event may refer to.
    if (is_expecting() || timer_set_) look_at_time();
    watch_listener();
    cool_links();
    for (shm_link* link : hot_)
        link->drop_freed_blocks();
    if (is_expecting()) has_more_ = true;
    events_seen_ = cycles();
}

void shm_port::on_event(const shm_watch& what, std::uint32_t events) noexcept {
    switch (what.what) {
        case shm_watch::kind::listener:
            return on_connection_waiting();
        case shm_watch::kind::pending:
            return on_pending(*static_cast<shm_pending*>(what.owner));
        case shm_watch::kind::link:
            return on_link(*static_cast<shm_link*>(what.owner), events);
        case shm_watch::kind::process:
            return static_cast<shm_link*>(what.owner)->peer_left();
        case shm_watch::kind::timer: {
            std::uint64_t times;
            (void)!::read(timer_.get(), &times, sizeof times);
            return;  // look_at_time() follows.
        }
    }
}

shm_hello shm_port::hello() const noexcept {
    shm_hello say;
    say.flags = barriers_ ? shm_hello::joined_barriers : 0;
    say.incarnation = incarnation();
    say.probe = probe_.address();
    say.set_name(listener_.name());
    return say;
}

// ---- accepting

void shm_port::on_connection_waiting() noexcept {
    const clock::time_point deadline = time().now() + options().silence_limit;
    int most = limits::shm_accepts_at_once;
    while (shm_pending* came = listener_.accept(deadline, most)) {
        if (watch(came->socket.get(), came->watch))
            on_pending(*came);  // Connectors greet at once.
        else
            listener_.remove(*came);
    }
}

void shm_port::on_pending(shm_pending& who) noexcept {
    shm_received_hello heard;
    switch (receive_hello(who.socket.get(), /*with_pair=*/true, heard)) {
        case shm_hearing::nothing_yet:
            return;
        case shm_hearing::heard:
            welcome(who, heard);
            break;
        case shm_hearing::nonsense:
            limited_log(log_level::warn, "shm",
                        "refused a connection that does not speak the shm protocol",
                        {{"port", listener_.name()}, {"pid", who.who.pid}});
            break;
        case shm_hearing::ended:
            break;
    }
    listener_.remove(who);
}

bool shm_port::has_room_for(const shm_credentials& who) const noexcept {
    if (who.same_user) return true;
    std::size_t others = 0, its = 0;
    for (const auto& link : links_) {
        if (link->user() == ::geteuid()) continue;
        ++others;
        its += link->user() == who.uid ? 1 : 0;
    }
    return others < settings_.most_of_others && its < settings_.most_of_one_user;
}

void shm_port::welcome(shm_pending& who, shm_received_hello& heard) noexcept try {
    shm_hello answer = hello();
    if (heard.said.version != shm_version) {
        answer.refused = static_cast<std::uint32_t>(errc::mismatch);
        send_hello(who.socket.get(), answer, -1, -1);
        return;
    }
    if (!has_room_for(who.who)) {
        limited_log(log_level::warn, "shm", "refused a connection: its user has too many",
                    {{"port", listener_.name()}, {"uid", who.who.uid}, {"pid", who.who.pid}});
        answer.refused = static_cast<std::uint32_t>(errc::overloaded);
        send_hello(who.socket.get(), answer, -1, -1);
        return;
    }
    result<shm_pair> pair =
        shm_pair::map(heard.pair.get(), shm_pair::side::acceptor,
                      {heard.said.origin_to_acceptor, heard.said.origin_to_connector});
    if (!pair) {
        answer.refused = static_cast<std::uint32_t>(errc::no_memory);
        send_hello(who.socket.get(), answer, -1, -1);
        return;
    }
    const std::string name(heard.said.listens_at());
    std::string address = name.empty() ? fmt::format("shm://(process {})", who.who.pid)
                                       : fmt::format("shm://{}", name);
    if (!who.who.same_user) address += fmt::format("?uid={}", who.who.uid);
    shm_link& link = adopt(std::make_unique<shm_link>(*this, name, who.who.uid, std::move(*pair)));
    const int socket = who.socket.get();
    if (bring_up(link, std::move(who.socket), who.who, heard) &&
        send_hello(socket, answer, -1, shown_to(who.who)) && accepted(link, std::move(address)))
        return;
    link.shut();
    release(link);
} catch (const std::bad_alloc&) {
    // Dropped: to the other side we are unreachable.
}

// ---- connecting

result<frame_link*> shm_port::connect(std::string_view address) noexcept try {
    const uri where = parse_uri(address).value();
    const auto user = where.option("uid");
    const uid_t owner = user ? parse_uid(*user).value() : ::geteuid();
    result<unique_fd> memory = make_shm_memory(shm_pair_layout::bytes);
    if (!memory) return memory.why();
    const shm_pair::origins origins{random_u64(), random_u64()};
    result<shm_pair> pair = shm_pair::map(memory->get(), shm_pair::side::connector, origins);
    if (!pair) return pair.why();
    shm_link& link = adopt(std::make_unique<shm_link>(*this, where.name, owner, std::move(*pair)));
    link.pair_memory_ = std::move(*memory);
    link.origins_ = origins;
    link.answer_deadline_ = time().now() + options().silence_limit;
    reaching_.push_back(&link);
    has_more_ = true;
    return static_cast<frame_link*>(&link);
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

void shm_port::reach(shm_link& link) noexcept {
    unique_fd socket = connect_to(link.name(), link.user());
    if (!socket) {
        // Backlog full or out of descriptors: retry while there is time.
        if (errno != EAGAIN && errno != EMFILE && errno != ENFILE)
            link.fail({errc::unreachable, errno});
        return;
    }
    const shm_credentials who = who_is(socket.get());
    // Anybody can take a free name, with whatever number in it.
    if (!who.known || who.uid != link.user()) return link.fail({errc::unreachable, EPERM});
    shm_hello say = hello();
    say.origin_to_acceptor = link.origins_.to_acceptor;
    say.origin_to_connector = link.origins_.to_connector;
    if (!send_hello(socket.get(), say, link.pair_memory_.get(), shown_to(who)) ||
        !watch(socket.get(), link.socket_watch_)) {
        const int error = errno;
        if (!was_refused(link, socket.get())) link.fail({errc::unreachable, error});
        return;
    }
    link.pair_memory_.reset();
    link.socket_ = std::move(socket);
}

/// Whether the peer refused before it heard us. Fails the link then.
bool shm_port::was_refused(shm_link& link, int socket) noexcept {
    shm_received_hello heard;
    if (receive_hello(socket, /*with_pair=*/false, heard) != shm_hearing::heard ||
        heard.said.refused == 0)
        return false;
    refuse(link, heard.said);
    return true;
}

void shm_port::refuse(shm_link& link, const shm_hello& said) noexcept {
    if (said.refused == static_cast<std::uint32_t>(errc::denied)) {
        log(log_level::warn, "shm", "the peer does not let in processes of this user",
            {{"port", link.name()}, {"its uid", link.user()}});
        return link.fail({errc::denied, EPERM});
    }
    if (said.refused == static_cast<std::uint32_t>(errc::overloaded)) {
        limited_log(log_level::warn, "shm", "the peer has too many connections of other users",
                    {{"port", link.name()}, {"its uid", link.user()}});
        return link.fail({errc::overloaded, EAGAIN});
    }
    log(log_level::warn, "shm", "the peer refused the connection",
        {{"port", link.name()}, {"its version", said.version}, {"ours", shm_version}});
    link.fail({errc::unreachable, EPROTO});
}

void shm_port::on_link(shm_link& link, std::uint32_t events) noexcept {
    if (link.is_reaching()) on_welcome(link);
    if (link.where() == shm_link::phase::up) {
        if ((events & EPOLLIN) != 0) silence(link.socket_.get());
        heat(link);
    }
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) link.peer_left();
}

void shm_port::on_welcome(shm_link& link) noexcept {
    shm_received_hello heard;
    switch (receive_hello(link.socket_.get(), /*with_pair=*/false, heard)) {
        case shm_hearing::nothing_yet:
            return;
        case shm_hearing::ended:
            return link.fail({errc::unreachable});
        case shm_hearing::nonsense:
            return link.fail({errc::unreachable, EPROTO});
        case shm_hearing::heard:
            break;
    }
    if (heard.said.refused != 0 || heard.said.version != shm_version)
        return refuse(link, heard.said);
    const shm_credentials who = who_is(link.socket_.get());
    if (!bring_up(link, std::move(link.socket_), who, heard)) link.fail({errc::unreachable, errno});
    // look_at_time() follows and removes it from reaching_.
}

bool shm_port::bring_up(shm_link& link, unique_fd socket, const shm_credentials& who,
                        shm_received_hello& heard) noexcept {
    if (!link.come_up(std::move(socket), who, heard) ||
        !watch(link.socket_.get(), link.socket_watch_))
        return false;
    if (link.process_) watch(link.process_.get(), link.process_watch_);
    heat(link);
    if (link.has_work()) push_later(link);
    return true;
}

shm_link& shm_port::adopt(std::unique_ptr<shm_link> link) {
    links_.push_back(std::move(link));
    // A link is in each list at most once; later additions must not fail.
    for (auto* list : {&hot_, &quiet_, &pushing_, &draining_, &reaching_})
        list->reserve(links_.size());
    sleepers_.reserve(sleepers_.size() + links_.size());
    return *links_.back();
}

// ---- deadlines

void shm_port::look_at_time() noexcept {
    const clock::time_point now = time().now();
    listener_.drop_expired(now);
    for (std::size_t i = 0; i < reaching_.size();) {
        shm_link& link = *reaching_[i];
        if (link.is_reaching() && !link.socket_) reach(link);
        if (link.is_reaching() && link.answer_deadline_ <= now)
            link.fail({errc::unreachable, ETIMEDOUT});
        if (link.is_reaching()) {
            ++i;
            continue;
        }
        reaching_[i] = reaching_.back();
        reaching_.pop_back();
    }
    if (!is_expecting()) set_timer();
}

void shm_port::set_timer() noexcept {
    const bool wanted = is_expecting();
    if (std::exchange(timer_set_, wanted) == wanted) return;
    itimerspec when{};
    if (wanted) when.it_interval.tv_nsec = when.it_value.tv_nsec = timer_nanoseconds;
    ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

}  // namespace amalgam::detail

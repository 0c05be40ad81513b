#include "fabric/transports/shm/link.hpp"

#include <utility>

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <amalgam/core/log.hpp>

#include "fabric/transports/shm/memory/cross_memory.hpp"
#include "fabric/transports/shm/memory/process.hpp"
#include "fabric/transports/shm/port.hpp"

namespace amalgam::detail {

shm_link::shm_link(shm_port& port, std::string name, uid_t user, shm_pair pair)
    : port_(port),
      pair_(std::move(pair)),
      receiver_(*this, pair_),
      sender_(*this, pair_, port.lent()),
      name_(std::move(name)),
      user_(user),
      socket_watch_{shm_watch::kind::link, this},
      process_watch_{shm_watch::kind::process, this} {}

bool shm_link::come_up(unique_fd socket, const shm_credentials& who,
                       shm_received_hello& heard) noexcept {
    shm_mapping registrations = shm_mapping::of(
        heard.registrations.get(), 0, shm_registrations_layout::bytes, /*writable=*/false);
    if (!registrations) return false;
    registrations_ = shm_registrations_view(std::move(registrations));
    socket_ = std::move(socket);
    incarnation_ = heard.said.incarnation;
    pid_ = who.pid;
    who_ = who;
    process_ = watch_process(pid_);
    if (is_outsider()) {
        blocks_.deny({errc::unsupported, EPERM});
        if (!receiver_.copy_all()) {
            errno = ENOMEM;
            return false;
        }
    } else if (port_.uses_cross_memory()) {
        const status probed = pid_ > 0 ? try_cross_memory(pid_, heard.said.probe, incarnation_)
                                       : status{errc::mismatch};
        crosses_ = probed.ok();
        if (!crosses_) port_.cross_memory_denied(probed);
    }
    phase_ = phase::up;
    const bool fenced = !port_.has_barriers() || !heard.said.has(shm_hello::joined_barriers);
    sender_.open(registrations_.sleeping(), fenced);
    return true;
}

identity shm_link::who() const {
    if (phase_ != phase::up || !who_.known) return {};
    identity who;
    who.kind = identity_kind::process;
    who.uid = who_.uid;
    who.gid = who_.gid;
    who.pid = who_.pid;
    return who;
}

bool shm_link::is_there() const noexcept {
    return phase_ == phase::up && still_there(socket_.get());
}

void shm_link::take_down() noexcept {
    phase_ = phase::over;
    // seq_cst: a copier declares itself before it checks this; we check for copiers afterwards.
    pair_.mine().closed.store(1, std::memory_order_seq_cst);
    last_ = current_touch();
    receiver_.pause();
    sender_.drop();
    blocks_.clear();
    port_.unwatch(*this);
}

void shm_link::shut() noexcept {
    if (phase_ == phase::over) return;
    take_down();
    // After the word above, so that whoever sees the end of the connection also sees the word.
    socket_.reset();
}

void shm_link::fail(status why) noexcept {
    if (phase_ == phase::over) return;
    shut();
    port_.link_down(*this, why);
}

void shm_link::peer_left() noexcept {
    if (phase_ == phase::reaching) return fail({errc::unreachable});
    if (phase_ != phase::up) return;
    phase_ = phase::draining;
    port_.unwatch(*this);
    port_.drain(*this);
}

void shm_link::ring() noexcept {
    const char bell = 0;
    // Full: it was rung often enough. Broken: noticed elsewhere.
    (void)!::send(socket_.get(), &bell, sizeof bell, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void shm_link::wake_writer() noexcept {
    const std::uint64_t now = pair_.theirs().wants.load(std::memory_order_seq_cst);
    if (now % 2 != 0 && std::exchange(rung_, now) != now) ring();
}

void shm_link::push_later() noexcept {
    port_.push_later(*this);
}

void shm_link::want() noexcept {
    if (!std::exchange(wants_, true)) pair_.mine().wants.fetch_add(1, std::memory_order_seq_cst);
}

bool shm_link::may_sleep() noexcept {
    if (phase_ == phase::draining) return false;
    if (phase_ != phase::up) return true;
    return !(wants_ && sender_.can_push()) && !receiver_.ready_at_last();
}

void shm_link::woke() noexcept {
    if (std::exchange(wants_, false)) pair_.mine().wants.fetch_add(1, std::memory_order_seq_cst);
}

shm_link::a_touch shm_link::current_touch() const noexcept {
    const shm_side& theirs = pair_.theirs();
    a_touch now{theirs.touching.load(std::memory_order_seq_cst), 0};
    if (now.number % 2 == 0) return {};
    now.what = theirs.touched.load(std::memory_order_acquire);
    // The second word belongs to that touch only if it has not ended meanwhile. A later touch
    // checks what it may copy after our update.
    return theirs.touching.load(std::memory_order_seq_cst) == now.number ? now : a_touch{};
}

void shm_link::wait_until_region_untouched(std::uint64_t id) noexcept {
    if (is_outsider()) return;  // It cannot reach it, and must not be able to say it does.
    const a_touch now = phase_ == phase::over ? last_ : current_touch();
    if (now.number != 0 && (now.what & ~shm_touched::writes) == id) wait_for_end_of(now);
}

bool shm_link::may_write_yet() const noexcept {
    return !is_outsider() && last_.writes() && pair_.theirs().touching.load() == last_.number &&
           !is_gone();
}

bool shm_link::is_gone() const noexcept {
    if (process_) return has_process_ended(process_.get());
    // A peer in another PID namespace may still see us.
    return !socket_ || !still_there(socket_.get());
}

bool shm_link::is_stopped() const noexcept {
    return is_process_stopped(pid_);
}

void shm_link::wait_for_end_of(const a_touch& one) noexcept {
    constexpr auto spinning = std::chrono::milliseconds(1);
    // It will see the end of the connection before it uses what it reads.
    if (phase_ == phase::over && !one.writes()) return;
    const clock::time_point began = clock::steady().now();
    clock::time_point until = began + port_.silence_limit();
    bool told = false;
    // The process may have died halfway; its copying has ended by the time it is gone.
    while (pair_.theirs().touching.load(std::memory_order_seq_cst) == one.number && !is_gone()) {
        const clock::time_point now = clock::steady().now();
        if (now >= until) {
            const bool stopped = one.writes() && is_stopped();
            if (!std::exchange(told, true)) {
                log(log_level::warn, "shm",
                    stopped ? "a process was stopped while it wrote to a region; closing that "
                              "region waits until it continues or exits"
                            : "closed the connection to a peer that stalled while it copied from "
                              "or to local memory",
                    {{"port", name_}, {"pid", pid_}});
                fail({errc::disconnected, ETIMEDOUT});
            }
            if (!stopped) {
                last_ = {};  // No correct peer takes so long: stop waiting.
                return;
            }
            until = now + port_.silence_limit();  // Once resumed it has that long to finish.
        }
        if (now - began < spinning) {
            ::sched_yield();
        } else {
            pollfd end{process_.get(), POLLIN, 0};
            ::poll(&end, process_ ? 1 : 0, 1);
        }
    }
}

}  // namespace amalgam::detail

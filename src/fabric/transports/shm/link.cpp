#include "fabric/transports/shm/link.hpp"

#include <utility>

#include <sched.h>
#include <sys/socket.h>

#include "fabric/transports/shm/cross_memory.hpp"
#include "fabric/transports/shm/port.hpp"

namespace amalgam::detail {

shm_link::shm_link(shm_port& port, std::string name, shm_pair pair)
    : port_(port),
      pair_(std::move(pair)),
      inward_(*this, pair_),
      outward_(*this, pair_, port.lent()),
      name_(std::move(name)),
      socket_watch_{shm_watch::kind::link, this},
      process_watch_{shm_watch::kind::process, this} {}

bool shm_link::come_up(unique_fd socket, const shm_stranger& who,
                       shm_received_greeting& heard) noexcept {
    shm_mapping board =
        shm_mapping::of(heard.board.get(), 0, shm_board_layout::bytes, /*writable=*/false);
    if (!board) return false;
    board_ = shm_board_view(std::move(board));
    socket_ = std::move(socket);
    incarnation_ = heard.said.incarnation;
    pid_ = who.pid;
    process_ = watch_process(pid_);
    if (port_.uses_cross_memory()) {
        const status probed = pid_ > 0 ? try_cross_memory(pid_, heard.said.probe, incarnation_)
                                       : status{errc::mismatch};
        crosses_ = takes_offers_ = probed.ok();
        if (!crosses_) port_.cross_memory_denied(probed);
    }
    pair_.mine().pulls.store(crosses_ ? 1 : 0, std::memory_order_relaxed);
    phase_ = phase::up;
    const bool fenced = !port_.has_barriers() || !heard.said.has(shm_greeting::joined_barriers);
    outward_.open(board_.sleeping(), fenced, port_.uses_cross_memory());
    return true;
}

void shm_link::denied(status why) noexcept {
    crosses_ = false;
    pair_.mine().pulls.store(0, std::memory_order_relaxed);
    port_.cross_memory_denied(why);
}

bool shm_link::is_there() const noexcept {
    return phase_ == phase::up && still_there(socket_.get());
}

void shm_link::take_down() noexcept {
    phase_ = phase::over;
    // seq_cst: whoever copies has said so before it looks here; we look there afterwards.
    pair_.mine().closed.store(1, std::memory_order_seq_cst);
    inward_.pause();
    outward_.drop();
    blocks_.clear();
    port_.unwatch(*this);
}

void shm_link::shut() noexcept {
    if (phase_ == phase::over) return;
    take_down();
    // After the word above, so that who sees the end of the connection sees the word, too.
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
    // Full: it has been rung often enough. Broken: that is noticed elsewhere.
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
    return !(wants_ && outward_.can_push()) && !inward_.ready_at_last();
}

void shm_link::woke() noexcept {
    if (std::exchange(wants_, false)) pair_.mine().wants.fetch_add(1, std::memory_order_seq_cst);
}

void shm_link::wait_until_untouched() noexcept {
    const shm_word& touching = pair_.theirs().touching;
    const std::uint64_t now = touching.load(std::memory_order_seq_cst);
    if (now % 2 == 0) return;
    const clock::time_point until = clock::steady().now() + port_.patience();
    // The process may have died in the midst of it; its copying has ended by the time it is gone.
    while (touching.load(std::memory_order_seq_cst) == now) {
        if (process_ && has_process_ended(process_.get())) return;
        // One that is not of our namespace of processes may still see us.
        if (!process_ && socket_ && !still_there(socket_.get())) return;
        if (clock::steady().now() > until) return;
        ::sched_yield();
    }
}

}  // namespace amalgam::detail

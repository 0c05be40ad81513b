#include "fabric/transports/mpi/carrier.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/uri.hpp>

#include "fabric/limits.hpp"

namespace amalgam::detail {
namespace {

// A sleeper polls at intervals as long as the silence so far, within these bounds.
constexpr std::chrono::microseconds shortest_nap{100};
constexpr std::chrono::milliseconds longest_nap{20};

void add_to(int set, int fd, std::uint64_t what) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = what;
    if (fd < 0 || ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
        throw error(
            status{errc::no_memory, errno},
            "out of file descriptors for the port; raise the limit on open files (ulimit -n)");
}

}  // namespace

std::string mpi_place::to_string() const {
    return fmt::format("mpi+static://{}:{}", rank, port);
}

// ---- links

posted mpi_link::send(packet& one) noexcept {
    if (state_ != state::open) return posted::full;
    mpi_header header;
    header.to = their_id_;
    header.port = home_->number_;
    header.encode(one.data - mpi_header::wire_bytes);
    const posted how = home_->outbox_.send(peer_.rank, peer_.port, one);
    if (how == posted::full) waits_for_room_ = home_->some_wait_for_room_ = true;
    return how;
}

void mpi_link::close() noexcept {
    home_->end(*this);
}

/// Ends the link: nothing more is sent or reported on it, and the other end is told.
void mpi_carrier::end(mpi_link& link) noexcept {
    if (link.state_ == mpi_link::state::over) return;
    if (link.state_ == mpi_link::state::contacting) --contacting_;
    const bool was_open = link.state_ == mpi_link::state::open;
    link.state_ = mpi_link::state::over;
    if (!was_open) return;
    say(link.peer_, mpi_kind::farewell, link.their_id_, link.own_id_);
    if (!link.heard_farewell_) unfinished_.push_back({link.own_id_, link.peer_.rank});
}

void mpi_carrier::lost(mpi_link& link, status why) noexcept {
    if (link.state_ == mpi_link::state::over) return;
    end(link);
    ++upcalls_;
    events_->down(link, why);
}

mpi_link* mpi_carrier::find(std::uint64_t id) noexcept {
    const std::size_t slot = slot_ids::slot(id);
    if (slot >= links_.size() || links_[slot] == nullptr || links_[slot]->own_id_ != id)
        return nullptr;
    return links_[slot].get();
}

mpi_link& mpi_carrier::add(const mpi_place& peer) {
    const std::size_t slot = ids_.make_room();
    if (links_.size() <= slot) links_.resize(slot + 1);
    // Capacity for all, so that ending a link cannot fail.
    const std::size_t most = unfinished_.size() + links_.size() + 1;
    if (unfinished_.capacity() < most) unfinished_.reserve(2 * most);
    watch(peer.rank);
    auto made = std::make_unique<mpi_link>();
    made->home_ = this;
    made->peer_ = peer;
    made->own_id_ = ids_.take();
    links_[slot] = std::move(made);
    return *links_[slot];
}

void mpi_carrier::release(packet_link& link) noexcept {
    auto& one = static_cast<mpi_link&>(link);
    end(one);
    const std::uint64_t id = one.own_id_;
    links_[slot_ids::slot(id)].reset();
    ids_.give_back(id);
}

// ---- opening and ending

mpi_carrier::mpi_carrier(mpi_library& mpi, std::uint16_t number,
                         std::chrono::milliseconds silence_limit)
    : mpi_(mpi),
      number_(number),
      silence_limit_(silence_limit),
      inbox_(std::make_unique<mpi_inbox>(mpi, number)),
      outbox_(mpi),
      sleep_on_(::epoll_create1(EPOLL_CLOEXEC)),
      deaths_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      nap_(shortest_nap) {
    add_to(sleep_on_.get(), deaths_.get(), 0);
    add_to(sleep_on_.get(), timer_.get(), 0);
}

mpi_carrier::~mpi_carrier() {
    ending_ = true;
    for (const auto& each : links_)
        if (each != nullptr) end(*each);
    const auto until = clock::steady().now() + limits::flush_limit;
    do {
        inbox_->take(64, [&](int rank, const_bytes bytes) { on_message(rank, bytes); });
        outbox_.tell(*events_);
        mpi_.tend();
        look_around();
    } while (!outbox_.is_empty() && clock::steady().now() < until);
    outbox_.abandon(-1, *events_);
    std::vector<std::uint64_t> awaited;
    try {
        for (const unfinished& each : unfinished_)
            awaited.push_back(each.id);
    } catch (const std::bad_alloc&) {
    }
    mpi_.linger(std::move(inbox_), std::move(awaited));
    mpi_.tend();
}

// ---- addresses

std::string mpi_carrier::address() const {
    return mpi_place{mpi_.rank(), number_}.to_string();
}

std::string mpi_carrier::explain() const {
    return fmt::format(
        "{} carries messages between the {} rank{} of this job, who alone can connect, and does "
        "not "
        "encrypt them; this is port {} of rank {}",
        mpi_.version(), mpi_.size(), mpi_.size() == 1 ? "" : "s", number_, mpi_.rank());
}

result<mpi_place> mpi_carrier::read(std::string_view address) const {
    result<uri> parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    const auto wrong = [&](std::string_view what) {
        return failure{{errc::invalid},
                       fmt::format("uri \"{}\": {}; example: mpi+static://0", address, what)};
    };
    if (parsed->scheme != "mpi" || parsed->protocol != "static")
        return wrong("an mpi+static port reaches mpi+static addresses only");
    if (!parsed->options.empty()) return wrong("an address to connect to must not have options");
    if (parsed->host.empty()) return wrong("the rank is missing");
    const long long rank = std::stoll(parsed->host);
    if (rank >= mpi_.size()) {
        if (mpi_.size() == 1)
            return wrong(
                "this job has only one rank, expected rank 0, or a start by mpirun, as in \"mpirun "
                "-n 2 PROGRAM\"");
        return wrong(fmt::format("this job has no rank {}, expected a number from 0 to {}", rank,
                                 mpi_.size() - 1));
    }
    if (parsed->port == 0)
        return wrong("the port is 0, expected a number from 1 to 65535, or none");
    return mpi_place{static_cast<int>(rank), parsed->port.value_or(mpi_place::first_port)};
}

result<std::string> mpi_carrier::canonical(std::string_view address) const {
    const result<mpi_place> place = read(address);
    if (!place) return place.why();
    return place->to_string();
}

// ---- connecting

result<packet_link*> mpi_carrier::connect(std::string_view address) {
    const result<mpi_place> place = read(address);
    if (!place) return place.why();
    mpi_link& made = add(*place);
    ++contacting_;
    made.gives_up_at_ = clock::steady().now();
    if (place->rank != mpi_.rank() || mpi_.is_taken(place->port)) {
        made.gives_up_at_ += silence_limit_;
        say(*place, mpi_kind::contact, 0, made.own_id_);
    }
    events_->due();
    return static_cast<packet_link*>(&made);
}

void mpi_carrier::say(const mpi_place& to, mpi_kind kind, std::uint64_t to_id,
                      std::uint64_t own) noexcept {
    mpi_word word;
    word.header.to = to_id;
    word.header.kind = kind;
    word.header.port = number_;
    word.from = own;
    // A lost message looks like silence: an unanswered contact, or a lingering port.
    (void)outbox_.say(to.rank, to.port, word);
}

void mpi_carrier::on_message(int rank, const_bytes bytes) noexcept {
    if (bytes.size() < mpi_header::wire_bytes) return;
    const mpi_header header = mpi_header::decode(bytes.data());
    if (header.version != mpi_header::current_version) return;
    if (header.kind == mpi_kind::packet) [[likely]] {
        mpi_link* const link = find(header.to);
        if (link == nullptr || link->state_ != mpi_link::state::open) return;
        ++upcalls_;
        return events_->received(*link, bytes.subspan(mpi_header::wire_bytes));
    }
    if (bytes.size() != mpi_word::wire_bytes) return;
    const std::uint64_t their_id = mpi_word::from_of(bytes);
    const mpi_place from{rank, header.port};
    if (header.kind == mpi_kind::contact) on_contact(from, their_id);
    if (header.kind == mpi_kind::accept) on_accept(from, header.to, their_id);
    if (header.kind == mpi_kind::farewell) on_farewell(header.to);
}

void mpi_carrier::on_contact(const mpi_place& from, std::uint64_t their_id) noexcept {
    mpi_link* made = nullptr;
    try {
        if (!ending_) made = &add(from);
    } catch (const std::exception&) {
        // Out of memory or descriptors.
    }
    if (made == nullptr) return say(from, mpi_kind::farewell, their_id, 0);
    made->their_id_ = their_id;
    made->state_ = mpi_link::state::open;
    say(from, mpi_kind::accept, their_id, made->own_id_);
    ++upcalls_;
    std::string address;
    try {
        address = from.to_string();
    } catch (const std::bad_alloc&) {
    }
    if (!events_->accepted(*made, std::move(address))) release(*made);
}

void mpi_carrier::on_accept(const mpi_place& from, std::uint64_t to,
                            std::uint64_t their_id) noexcept {
    mpi_link* const link = find(to);
    // Too late: nobody here uses that connection any more.
    if (link == nullptr || link->state_ != mpi_link::state::contacting)
        return say(from, mpi_kind::farewell, their_id, to);
    --contacting_;
    link->their_id_ = their_id;
    link->state_ = mpi_link::state::open;
    ++upcalls_;
    events_->room(*link);
}

void mpi_carrier::on_farewell(std::uint64_t to) noexcept {
    mpi_link* const link = find(to);
    if (link != nullptr && link->state_ != mpi_link::state::over) {
        link->heard_farewell_ = true;
        const bool was_open = link->state_ == mpi_link::state::open;
        return lost(*link, {was_open ? errc::disconnected : errc::unreachable});
    }
    std::erase_if(unfinished_, [&](const unfinished& one) { return one.id == to; });
}

// ---- rounds

std::size_t mpi_carrier::progress(std::size_t budget) noexcept {
    upcalls_ = 0;
    inbox_->take(budget, [&](int rank, const_bytes bytes) { on_message(rank, bytes); });
    if (outbox_.tell(*events_) > 0) nap_ = shortest_nap;
    if (const int rank = outbox_.take_failed(); rank >= 0) rank_is_gone(rank);
    if (some_wait_for_room_ && outbox_.has_room()) tell_room();
    if (++rounds_ % rounds_per_look == 0 || slept_ || contacting_ > 0 || mpi_.has_leftovers())
        look_around();
    if (upcalls_ > 0) nap_ = shortest_nap;
    return upcalls_;
}

/// Work that packets do not need and that costs system calls.
void mpi_carrier::look_around() noexcept {
    slept_ = false;
    if (mpi_.has_leftovers()) mpi_.tend();
    if (contacting_ > 0) give_up_contacts();
    if (watched_.empty()) return;
    epoll_event gone[8];
    const int count = ::epoll_wait(deaths_.get(), gone, 8, 0);
    for (int i = 0; i < count; ++i)
        rank_is_gone(static_cast<int>(gone[i].data.u64));
}

void mpi_carrier::give_up_contacts() noexcept {
    const clock::time_point now = clock::steady().now();
    for (std::size_t i = 0; i < links_.size(); ++i) {
        mpi_link* const link = links_[i].get();
        if (link != nullptr && link->state_ == mpi_link::state::contacting &&
            now >= link->gives_up_at_)
            lost(*link, {errc::unreachable});
    }
}

void mpi_carrier::watch(int rank) {
    const bool known = std::any_of(watched_.begin(), watched_.end(),
                                   [&](const watched& one) { return one.rank == rank; });
    if (known) return;
    unique_fd process = mpi_.watch(rank);
    if (!process) return;
    watched_.reserve(watched_.size() + 1);
    add_to(deaths_.get(), process.get(), static_cast<std::uint64_t>(rank));
    watched_.push_back({rank, std::move(process)});
}

void mpi_carrier::rank_is_gone(int rank) noexcept {
    // Take what it had sent before.
    constexpr int most_rounds = 64;
    for (int i = 0; i < most_rounds; ++i)
        if (inbox_->take(64, [&](int from, const_bytes bytes) { on_message(from, bytes); }) == 0)
            break;
    inbox_->forget(rank);
    outbox_.abandon(rank, *events_);
    std::erase_if(watched_, [&](const watched& one) { return one.rank == rank; });
    for (std::size_t i = 0; i < links_.size(); ++i) {
        mpi_link* const link = links_[i].get();
        if (link == nullptr || link->peer_.rank != rank) continue;
        link->heard_farewell_ = true;
        const bool was_open = link->state_ == mpi_link::state::open;
        lost(*link, {was_open ? errc::disconnected : errc::unreachable});
    }
    std::erase_if(unfinished_, [&](const unfinished& one) { return one.rank == rank; });
}

void mpi_carrier::tell_room() noexcept {
    some_wait_for_room_ = false;
    for (std::size_t i = 0; i < links_.size(); ++i) {
        mpi_link* const link = links_[i].get();
        if (link == nullptr || !std::exchange(link->waits_for_room_, false)) continue;
        if (link->state_ != mpi_link::state::open) continue;
        ++upcalls_;
        events_->room(*link);
    }
}

bool mpi_carrier::arm() noexcept {
    slept_ = true;
    // Data in flight progresses only by calls into MPI.
    if (!outbox_.is_empty() || inbox_->is_busy() || contacting_ > 0) nap_ = shortest_nap;
    itimerspec soon{};
    soon.it_value.tv_nsec = nap_.count();
    ::timerfd_settime(timer_.get(), 0, &soon, nullptr);
    nap_ = std::min<std::chrono::nanoseconds>(2 * nap_, longest_nap);
    return true;
}

}  // namespace amalgam::detail

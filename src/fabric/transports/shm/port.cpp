#include "fabric/transports/shm/port.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/sleep_barrier.hpp"

namespace amalgam::detail {
namespace {

// From this size, a transfer without a copy through a ring pays for its system call.
constexpr std::size_t eager_bytes = std::size_t{16} << 10;

// A ring line that nobody writes stays in the cache, so polling it costs a nanosecond; up to this
// many links are polled in every turn.
constexpr std::size_t hot_links = 8;
// If there are more, links idle for this many turns are polled in rotation.
constexpr std::uint64_t turns_until_quiet = 512;
constexpr std::size_t quiet_links_at_once = 4;
// A watch in which fewer frames moved is short; after a long one, fences are no longer wanted. They
// cost each frame about 5 ns; sleep_barrier() costs 0.6 us, or 30 us if it must interrupt a
// processor of a virtual machine.
constexpr std::size_t short_watch = 64;
constexpr unsigned watches_until_fences = 8;
constexpr std::size_t long_watch = 1024;

// Closed peers that have not ended a copy to our memory, before we investigate.
constexpr std::size_t max_sleepers = 16;

capabilities facts(const shm_port_settings& settings) noexcept {
    capabilities can;
    can.transport = "shm";
    can.inline_bytes = limits::shm_whole_bytes;
    can.max_message_bytes = limits::max_message_bytes;
    can.eager_bytes = settings.cross_memory ? eager_bytes : limits::shm_whole_bytes;
    can.rma = settings.cross_memory ? rma_mode::cross_memory : rma_mode::emulated;
    can.shares_blocks = settings.shares_blocks;
    can.listens = settings.listens;
    can.atomics = settings.shares_blocks ? atomic_mode::native : atomic_mode::emulated;
    return can;
}

std::string address_of(std::string_view name, uid_t user, bool own) {
    return own ? fmt::format("shm://{}", name) : fmt::format("shm://{}?uid={}", name, user);
}

void erase(std::vector<shm_link*>& list, shm_link& link) noexcept {
    std::erase(list, &link);
}

}  // namespace

result<std::unique_ptr<port>> shm_port::open(std::string_view name,
                                             const shm_port_settings& settings,
                                             const port_options& options) {
    shm_listener listener;
    if (settings.listens) {
        result<shm_listener> opened = shm_listener::open(name, settings.users);
        if (!opened) return opened.why();
        listener = std::move(*opened);
    }
    result<shm_registrations> registrations = shm_registrations::make();
    if (!registrations) return registrations.why();
    std::optional<outside> for_others;
    if (!settings.users.are_none()) {
        result<outside> made = make_outside();
        if (!made) return made.why();
        for_others = std::move(*made);
    }
    unique_fd events(::epoll_create1(EPOLL_CLOEXEC));
    unique_fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!events || !timer)
        return failure{{errc::no_memory, errno},
                       fmt::format("shm: out of file descriptors for the port (errno {}); raise "
                                   "the limit on open files (ulimit -n)",
                                   errno)};
    return std::unique_ptr<port>(new shm_port(settings, options, std::move(listener),
                                              std::move(*registrations), std::move(for_others),
                                              std::move(events), std::move(timer)));
}

result<shm_port::outside> shm_port::make_outside() {
    result<shm_registrations> table = shm_registrations::make();
    if (!table) return table.why();
    unique_fd to_read = reopen_to_read(table->fd());
    if (!to_read)
        return failure{{errc::unsupported, errno},
                       fmt::format("shm: other users' processes cannot be let in without /proc/self"
                                   "/fd (errno {}); mount /proc, or leave users= out",
                                   errno)};
    return outside{std::move(*table), std::move(to_read)};
}

int shm_port::shown_to(const shm_credentials& who) const noexcept {
    return who.same_user ? registrations_.fd() : outside_->to_read.get();
}

shm_port::shm_port(const shm_port_settings& settings, const port_options& options,
                   shm_listener listener, shm_registrations registrations,
                   std::optional<outside> for_others, unique_fd events, unique_fd timer)
    : framed_port(options, facts(settings)),
      settings_(settings),
      barriers_(join_sleep_barriers()),
      listener_(std::move(listener)),
      registrations_(std::move(registrations)),
      outside_(std::move(for_others)),
      events_(std::move(events)),
      timer_(std::move(timer)) {
    registrations_.want_fences();
    if (outside_) outside_->registrations.want_fences();
    watch(timer_.get(), timer_watch_);
    watch_listener();
}

shm_port::~shm_port() {
    if (is_inherited()) {
        end_without_links();
        return;
    }
    end_everything();
    assert(lent_.taken() == 0);  // No links are left.
}

std::string shm_port::address() const {
    if (!listener_.is_open()) return {};
    return address_of(listener_.name(), ::geteuid(), settings_.users.are_none());
}

std::string shm_port::explain() const {
    const shm_users& users = settings_.users;
    const std::string others =
        users.all ? " and of any other"
                  : (users.are_none() ? "" : fmt::format(" and of users {}", users.text()));
    std::string text = listener_.is_open()
                           ? fmt::format(
                                 "shm: listens as \"{}\" for processes of this user{} in "
                                 "this network namespace.",
                                 listener_.name(), others)
                           : std::string("shm: connects to others, and does not listen.");
    text += fmt::format(
        " Nothing is encrypted or leaves this host, and only processes of this user{} connect.",
        others);
    text += fmt::format(
        " Messages are copied through a ring in shared memory, those of more than {} KiB in "
        "pieces.",
        limits::shm_whole_bytes / 1024);
    if (settings_.cross_memory)
        text +=
            " Transfers are copied directly between processes by the kernel (cross-memory attach).";
    else
        text += fmt::format(" Transfers also go through the ring: {}.", settings_.why_not);
    if (denied_ > 0)
        text += fmt::format(
            " With {} of the peers so far they go through the ring, as the kernel denied "
            "cross-memory attach ({}).",
            denied_, to_string(denied_why_));
    if (!users.are_none())
        text += " With processes of other users they go through the ring, always.";
    if (listener_.refused() > 0)
        text += fmt::format(" Refused {} connections of users who are not let in.",
                            listener_.refused());
    if (!settings_.shares_blocks) return text;
    text +=
        " Transfers within allocated blocks are copied by the initiator, which maps the blocks, "
        "and "
        "atomic operations on them are its processor's.";
    if (blocks_denied_ > 0)
        text += fmt::format(
            " With {} of the peers so far they are not, as the kernel denied access to the peer's "
            "descriptors in /proc ({}).",
            blocks_denied_, to_string(blocks_denied_why_));
    if (const auto [blocks, why] = blocks_.private_blocks(); blocks > 0)
        text += fmt::format(
            " Of the blocks so far, {} are private memory ({}); raise the limit on open files "
            "(ulimit -n), or allocate fewer and larger blocks.",
            blocks, to_string(why));
    return text;
}

result<std::string> shm_port::canonical(std::string_view address) const noexcept try {
    result<uri> parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    if (parsed->scheme != "shm")
        return {errc::unsupported,
                fmt::format("\"{}\": an shm port reaches shm addresses only; example: shm://server",
                            address)};
    if (parsed->name.empty())
        return {errc::invalid,
                fmt::format("\"{}\": the peer's name is missing; example: shm://server", address)};
    const auto user = parsed->option("uid");
    if (!user) return "shm://" + parsed->name;
    const auto uid = parse_uid(*user);
    if (!uid)
        return {errc::invalid,
                fmt::format("\"{}\": uid is \"{}\", but must be a user's number; example: "
                            "shm://server?uid=1000",
                            address, *user)};
    if (*uid != ::geteuid() && !settings_.users.have(*uid))
        return {errc::denied,
                fmt::format("\"{}\": this port connects with processes of its own user only; open "
                            "it with the option users; example: shm://?users={}",
                            address, *uid)};
    return address_of(parsed->name, *uid, *uid == ::geteuid());
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

short_lane* shm_port::lane_to(peer_id to) noexcept {
    auto* const link = static_cast<shm_link*>(link_to(to));
    return link == nullptr || !tells_at_once() ? nullptr : &link->sender().lane();
}

// Ends in calls that need nothing of this one, so that it saves no registers.
posted shm_port::post_send(peer_id to, std::uint64_t tag, gather bytes,
                           completion& on_done) noexcept {
    auto* const link = static_cast<shm_link*>(link_to(to));
    if (link == nullptr || bytes.size() != 1 || !link->sender().takes_short(bytes.front()))
        [[unlikely]] {
        return framed_port::post_send(to, tag, bytes, on_done);
    }
    return link->sender().send_short(tag, bytes.front());
}

std::optional<std::uint32_t> shm_port::user_of(peer_id peer) const noexcept {
    const auto* const link = static_cast<const shm_link*>(link_to(peer));
    if (link == nullptr) return std::nullopt;
    return link->user();
}

/// Many programs have one peer.
[[gnu::always_inline]] inline std::size_t shm_port::poll_links(std::size_t budget) noexcept {
    if (only_ == nullptr) return poll_several(budget);
    if (!only_->is_there()) return 0;
    shm_link& only = *hot_.front();
    only.last_turn_ = turn_;
    return only.receiver().take(budget);
}

[[gnu::noinline]] std::size_t shm_port::poll_several(std::size_t budget) noexcept {
    std::size_t moved = 0;
    const std::size_t count = hot_.size();
    std::size_t at = next_hot_;
    for (std::size_t left = count; left > 0; --left) {
        if (at >= count) at = 0;
        shm_link& link = *hot_[at++];
        if (!link.receiver().ready()) continue;
        link.last_turn_ = turn_;
        moved += link.receiver().take(budget - moved);
        if (moved < budget) continue;
        next_hot_ = at;  // Links not reached are first next time.
        break;
    }
    return moved;
}

std::size_t shm_port::move_frames(std::size_t budget) noexcept {
    ++turn_;
    const std::size_t moved = has_more_ ? move_all(budget) : poll_links(budget);
    watched_ += moved;
    if (wants_fences_ && watched_ >= long_watch) [[unlikely]]
        go_without_fences();
    if (turn_ % turns_between_looks == 0 && events_are_due()) look_at_events();
    return moved;
}

void shm_port::choose_only() noexcept {
    const bool has_one = hot_.size() == 1 && !hot_.front()->receiver().paused();
    only_ = has_one ? &hot_.front()->receiver().next() : nullptr;
}

bool shm_port::finds_work() noexcept {
    return (has_more_ && (has_due() || armed_ || finds_more())) || finds_ready();
}

bool shm_port::finds_ready() noexcept {
    for (shm_link* link : hot_)
        if (link->receiver().ready()) return true;
    return is_time_to_look();
}

bool shm_port::asks_to_look() noexcept {
    if (!events_are_due()) return false;
    turn_ |= turns_between_looks - 1;  // The next turn looks.
    return true;
}

[[gnu::noinline]] bool shm_port::finds_more() noexcept {
    if (!pushing_.empty() || !draining_.empty() || is_expecting()) return true;
    for (std::size_t i = 0; i < quiet_links_at_once; ++i)
        if (next_quiet() != nullptr) return true;
    return false;
}

/// Where more than the hot links is to be looked at.
[[gnu::noinline]] std::size_t shm_port::move_all(std::size_t budget) noexcept {
    if (armed_) {
        disarm();
        look_at_events();
    }
    const std::size_t moved = poll_links(budget);
    return moved + move_more(budget - moved);
}

std::size_t shm_port::move_more(std::size_t budget) noexcept {
    std::size_t moved = poll_quiet(budget);
    moved += push_links(budget - moved);
    drain_links();
    if (moved == 0 && is_expecting()) look_at_events();
    has_more_ =
        !quiet_.empty() || !pushing_.empty() || !draining_.empty() || is_expecting() || has_due();
    return moved;
}

std::size_t shm_port::poll_quiet(std::size_t budget) noexcept {
    std::size_t moved = 0;
    for (std::size_t i = 0; i < quiet_links_at_once && !quiet_.empty() && moved < budget; ++i) {
        if (shm_link* const link = next_quiet()) moved += link->receiver().take(budget - moved);
    }
    return moved;
}

/// Looks at the next one; if it has something, it is quiet no more. Null: nothing.
shm_link* shm_port::next_quiet() noexcept {
    if (quiet_.empty()) return nullptr;
    if (++next_quiet_ >= quiet_.size()) next_quiet_ = 0;
    shm_link& link = *quiet_[next_quiet_];
    if (!link.receiver().ready()) return nullptr;
    heat(link);
    return &link;
}

void shm_port::heat(shm_link& link) noexcept {
    link.last_turn_ = turn_;
    if (link.is_hot_) return;
    erase(quiet_, link);
    hot_.push_back(&link);
    link.is_hot_ = true;
    choose_only();
}

void shm_port::cool_links() noexcept {
    for (std::size_t i = 0; i < hot_.size() && hot_.size() > hot_links;) {
        shm_link& link = *hot_[i];
        if (turn_ - link.last_turn_ <= turns_until_quiet) {
            ++i;
            continue;
        }
        hot_[i] = hot_.back();
        hot_.pop_back();
        quiet_.push_back(&link);
        link.is_hot_ = false;
        has_more_ = true;
    }
    choose_only();
}

void shm_port::push_later(shm_link& link) noexcept {
    if (std::exchange(link.is_pushing_, true)) return;
    pushing_.push_back(&link);
    has_more_ = true;
}

std::size_t shm_port::push_links(std::size_t budget) noexcept {
    std::size_t ended = 0;
    for (std::size_t i = 0; i < pushing_.size();) {
        shm_link& link = *pushing_[i];
        ended += link.push(budget - ended);
        if (link.has_work()) {
            ++i;
            continue;
        }
        link.is_pushing_ = false;
        pushing_[i] = pushing_.back();
        pushing_.pop_back();
    }
    return ended;
}

void shm_port::drain(shm_link& link) noexcept {
    heat(link);
    draining_.push_back(&link);
    has_more_ = true;
}

void shm_port::drain_links() noexcept {
    for (std::size_t i = 0; i < draining_.size();) {
        shm_link& link = *draining_[i];
        if (link.receiver().ready()) {
            ++i;
            continue;
        }
        link.fail({errc::disconnected});
        draining_[i] = draining_.back();
        draining_.pop_back();
    }
}

bool shm_port::arm() noexcept {
    if (std::exchange(room_came_, false) || !draining_.empty()) return false;
    for (const shm_link* link : reaching_)
        if (!link->socket_) return false;  // Not asked yet: the next progress() does.
    for (shm_link* link : pushing_)
        link->want();
    has_more_ = true;
    if (!std::exchange(armed_, true)) lie_down();
    for (const auto& link : links_) {
        if (link->may_sleep()) continue;
        heat(*link);
        disarm();
        return false;
    }
    set_timer();
    return true;
}

/// A reader that sleeps often, with little traffic in between, lets its senders fence: one fence
/// per record for a few records is cheaper than a barrier in all processes. So does a new one,
/// which will sleep between the messages of its first handshakes.
void shm_port::lie_down() noexcept {
    short_watches_ = std::exchange(watched_, 0) < short_watch ? short_watches_ + 1 : 0;
    const bool had_fences = wants_fences_;
    wants_fences_ = wants_fences_ || short_watches_ >= watches_until_fences;
    registrations_.sleep(wants_fences_);
    if (outside_) outside_->registrations.sleep(wants_fences_);
    if (barriers_ && !had_fences) sleep_barrier();  // From then on they have seen it.
}

void shm_port::go_without_fences() noexcept {
    wants_fences_ = false;
    registrations_.want_no_fences();
    if (outside_) outside_->registrations.want_no_fences();
}

void shm_port::disarm() noexcept {
    armed_ = false;
    registrations_.wake();
    if (outside_) outside_->registrations.wake();
    for (shm_link* link : pushing_)
        link->woke();
}

void shm_port::resume(frame_link& link) noexcept {
    static_cast<shm_link&>(link).receiver().resume();
}

void shm_port::forget(shm_link& link) noexcept {
    for (auto* list : {&hot_, &quiet_, &pushing_, &draining_, &reaching_})
        erase(*list, link);
    choose_only();
}

void shm_port::release(frame_link& which) noexcept {
    auto& link = static_cast<shm_link&>(which);
    forget(link);
    const auto at = std::find_if(links_.begin(), links_.end(),
                                 [&](const auto& one) { return one.get() == &link; });
    // Regions that close later must know of it. Capacity: see adopt().
    if (link.may_write_yet()) sleepers_.push_back(std::move(*at));
    links_.erase(at);
    look_at_sleepers();
}

void shm_port::look_at_sleepers() noexcept {
    std::erase_if(sleepers_, [](const auto& one) { return !one->may_write_yet(); });
    if (sleepers_.size() <= max_sleepers) return;
    // Only a stopped peer takes so long over one copy: the others are not correct peers.
    const auto lies = std::find_if(sleepers_.begin(), sleepers_.end(),
                                   [](const auto& one) { return !one->is_stopped(); });
    if (lies != sleepers_.end()) sleepers_.erase(lies);
}

std::optional<status> shm_port::direct_put(frame_link& link, gather from, const remote_key& key,
                                           std::uint64_t offset) noexcept {
    return static_cast<shm_link&>(link).put(from, key, offset);
}

std::optional<status> shm_port::direct_get(frame_link& link, scatter into, const remote_key& key,
                                           std::uint64_t offset) noexcept {
    return static_cast<shm_link&>(link).get(into, key, offset);
}

std::optional<status> shm_port::direct_atomic(frame_link& link, const remote_key& key,
                                              std::uint64_t offset, const atomic_operation& what,
                                              std::uint64_t& old) noexcept {
    return static_cast<shm_link&>(link).atomic(key, offset, what, old);
}

result<shared_block> shm_port::allocate(std::size_t bytes) noexcept {
    return settings_.shares_blocks ? blocks_.allocate(bytes) : framed_port::allocate(bytes);
}

void shm_port::region_opened(const remote_key& key, scatter segments) noexcept {
    if (segments.size() > shm_region_slot::max_segments) return;
    const std::uint64_t blocks = settings_.shares_blocks ? blocks_.names_of(segments) : 0;
    if (settings_.cross_memory || blocks != 0) registrations_.publish(key, segments, blocks);
}

void shm_port::region_closed(const remote_key& key) noexcept {
    if (!registrations_.withdraw(key)) return;
    for (const auto& link : links_)
        link->wait_until_region_untouched(key.region);
    if (sleepers_.empty()) return;
    for (const auto& link : sleepers_)
        link->wait_until_region_untouched(key.region);
    look_at_sleepers();
}

}  // namespace amalgam::detail

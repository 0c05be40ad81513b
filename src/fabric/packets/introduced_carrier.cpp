#include "fabric/packets/introduced_carrier.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>

#include "fabric/packets/introduction.hpp"

namespace amalgam::detail {
namespace {

// Message tags between the tcp ports. Specified in docs/wire/packets.md.
constexpr std::uint64_t introduction_tag = 0x316f7274'6c616d41u;  // "Amaltro1" on the wire.
constexpr std::uint64_t farewell_tag = introduction_tag + 1;
constexpr std::size_t max_scheme_bytes = 64;

// How long packets announced in a farewell may take to arrive on their own path.
constexpr std::chrono::milliseconds last_packets{1000};

constexpr long longest_nap_ms = 64;

// introduction = own_id:u64 scheme_bytes:u16 scheme [ciphers:u8] name
constexpr std::size_t greeting_head = 10;

/// For logs. Empty where there is no memory for it.
std::string address_of(const port& tcp, peer_id who) noexcept try {
    return tcp.peer_address(who);
} catch (const std::bad_alloc&) {
    return {};
}

}  // namespace

void introduced_link::close() noexcept {
    if (state_ == state::over) return;
    home_->say_farewell(*this);
    home_->drop(*this, {errc::closed});
}

introduced_carrier::introduced_carrier(introducer by)
    : tcp_(std::move(by.tcp)),
      scheme_(std::move(by.scheme)),
      trust_(by.trust),
      both_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!both_)
        throw error(
            status{errc::no_memory, errno},
            "out of file descriptors for the port; raise the limit on open files (ulimit -n)");
    sleep_also_on(tcp_->wait_handle());
}

void introduced_carrier::sleep_also_on(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (fd < 0 || ::epoll_ctl(both_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        throw error(
            status{errc::no_memory, errno},
            "out of file descriptors for the port; raise the limit on open files (ulimit -n)");
}

bool introduced_carrier::sleep_on_busy(std::span<const pollfd> those) noexcept {
    const auto same = [](const pollfd& one, const pollfd& other) {
        return one.fd == other.fd && one.events == other.events;
    };
    if (std::equal(those.begin(), those.end(), busy_.begin(), busy_.begin() + busy_count_, same))
        return true;
    wake_by_busy_no_more();
    if (those.size() > busy_.size()) return false;
    for (const pollfd& each : those) {
        epoll_event event{};
        event.events = static_cast<std::uint32_t>(each.events);  // EPOLLIN is POLLIN, and so on.
        if (::epoll_ctl(both_.get(), EPOLL_CTL_ADD, each.fd, &event) != 0) return false;
        busy_[busy_count_++] = each;
    }
    return true;
}

void introduced_carrier::wake_by_busy_no_more() noexcept {
    for (; busy_count_ > 0; --busy_count_) {
        epoll_event event{};
        ::epoll_ctl(both_.get(), EPOLL_CTL_DEL, busy_[busy_count_ - 1].fd, &event);
    }
}

void introduced_carrier::sleep_briefly(bool soon) {
    if (!timer_) {
        timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
        sleep_also_on(timer_.get());
    }
    if (soon) nap_ms_ = 1;
    const itimerspec in_a_moment{{0, 0}, {0, nap_ms_ * 1'000'000}};
    ::timerfd_settime(timer_.get(), 0, &in_a_moment, nullptr);
    timer_is_set_ = true;
    nap_ms_ = std::min(2 * nap_ms_, longest_nap_ms);
}

void introduced_carrier::end_introductions() noexcept {
    ending_ = true;
    tcp_->set_sink(nullptr);
    tcp_.reset();
    release_parted();
}

void introduced_carrier::start(packet_events& events) noexcept {
    events_ = &events;
    tcp_->set_sink(this);
}

// ---- addresses

std::string introduced_carrier::address() const {
    const std::string inner = tcp_->address();
    return inner.empty() ? inner : scheme_ + inner.substr(inner.find(':'));
}

std::string introduced_carrier::explain() const {
    return fmt::format("{}; {}; connections are set up over tcp, which {}", explain_paths(),
                       proves() ? "packets are encrypted, with keys from that set-up"
                                : "what it carries is not encrypted",
                       tcp_->explain());
}

std::string introduced_carrier::to_tcp(std::string_view address) const {
    if (proves())
        return to_string(
            introduction_uri(without_option(uri::parse(address), trusted_wire_option)));
    const std::size_t rest = address.find("://");
    return "tcp" + std::string(address.substr(rest));
}

result<std::string> introduced_carrier::canonical(std::string_view address) const {
    result<uri> parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    const auto wrong = [&](std::string_view what) {
        return failure{
            {errc::invalid},
            fmt::format("uri \"{}\": {}; example: {}://127.0.0.1:7000", address, what, scheme_)};
    };
    const std::string scheme = parsed->scheme + "+" + parsed->protocol;
    if (scheme != scheme_)
        return wrong(fmt::format("a {0} port reaches {0} addresses only", scheme_));
    if (!parsed->device.empty()) return wrong("an address to connect to must not name a device");
    if (parsed->host.empty()) return wrong("the host is missing");
    if (parsed->port.value_or(0) == 0) return wrong("the port number is missing");
    // Its listener says that, for both.
    if (proves()) {
        *parsed = without_option(std::move(*parsed), credentials_option);
        *parsed = without_option(std::move(*parsed), trusted_wire_option);
    } else {
        *parsed = without_option(std::move(*parsed), "insecure");
    }
    if (!parsed->options.empty()) return wrong("an address to connect to must not have options");
    return to_string(*parsed);
}

// ---- introductions

result<packet_link*> introduced_carrier::connect(std::string_view address) {
    // While a tcp peer lives, the tcp port returns it for every lookup of its address, even if we
    // are leaving it. That connection must end first.
    result<peer_id> peer = tcp_->lookup(to_tcp(address));
    if (!peer)
        return proves() ? retold(uri::parse(address), peer.why(), scheme_ + "://127.0.0.1:7000")
                        : peer.why();
    if (of(*peer) != nullptr)
        return {errc::internal, "the previous connection to this address is still closing"};
    introduced_link& made = add(*peer);
    try {
        greet(made);
    } catch (const std::bad_alloc&) {
        release(made);
        throw;
    }
    return static_cast<packet_link*>(&made);
}

introduced_link& introduced_carrier::add(peer_id who) {
    std::unique_ptr<introduced_link> link = make_link();
    introduced_link& made = *link;
    made.home_ = this;
    made.peer_ = who;
    made.own_id_ = random_nonzero_u64();
    leaving_.reserve(links_.size() + 1);
    parted_.reserve(links_.size() + 1);
    try {
        by_peer_.emplace(who, &made);
        by_id_.emplace(made.own_id_, &made);
        links_.push_back(std::move(link));
    } catch (const std::bad_alloc&) {
        by_peer_.erase(who);
        by_id_.erase(made.own_id_);
        throw;
    }
    return made;
}

void introduced_carrier::greet(introduced_link& link) {
    const const_bytes name = own_name(link);
    auto& out = link.said_;
    const std::size_t own = proves() ? 1 : 0;
    out.bytes.resize(greeting_head + scheme_.size() + own + name.size());
    store_le(out.bytes.data(), link.own_id_);
    store_le(out.bytes.data() + 8, static_cast<std::uint16_t>(scheme_.size()));
    std::memcpy(out.bytes.data() + greeting_head, scheme_.data(), scheme_.size());
    if (own != 0)
        out.bytes[greeting_head + scheme_.size()] = static_cast<std::byte>(trust_.ciphers);
    if (!name.empty())
        std::memcpy(out.bytes.data() + greeting_head + scheme_.size() + own, name.data(),
                    name.size());
    out.piece = out.bytes;
    // The first message on its connection: there is room.
    const posted how = tcp_->post_send(link.peer_, introduction_tag, {&out.piece, 1}, out);
    out.pending = how == posted::pending;
    if (how == posted::full) throw std::bad_alloc();
}

void introduced_carrier::on_message(message& arrived) noexcept {
    introduced_link* link = of(arrived.from());
    const const_bytes bytes = arrived.bytes();
    if (arrived.tag() == introduction_tag && link == nullptr) {
        try {
            link = &add(arrived.from());
            const std::string from = tcp_->peer_address(arrived.from());
            link->was_accepted_ = true;
            ++upcalls_;
            if (!events_->accepted(*link,
                                   scheme_ + from.substr(std::min(from.find(':'), from.size()))))
                throw std::bad_alloc();
            greet(*link);
        } catch (const std::bad_alloc&) {
            if (link == nullptr || link->user == nullptr) {
                tcp_->close(arrived.from());
                if (link != nullptr) refuse(*link);
            } else {
                lost(*link, {errc::no_memory});
            }
            return;
        }
        return take_greeting(*link, bytes);
    }
    if (link == nullptr) return;
    if (arrived.tag() == introduction_tag && link->state_ == introduced_link::state::introduction)
        return take_greeting(*link, bytes);
    if (arrived.tag() == farewell_tag && bytes.size() == 8) {
        link->farewell_ = true;
        link->announced_ = load_le<std::uint64_t>(bytes.data());
        return;
    }
    log(log_level::warn, "fabric", "dropped a peer that violated the protocol",
        {{"peer", address_of(*tcp_, arrived.from())}});
    lost(*link, {errc::disconnected, EPROTO});
}

void introduced_carrier::take_greeting(introduced_link& link, const_bytes bytes) noexcept {
    const auto refuse = [&](status why) { lost(link, why); };
    if (bytes.size() < greeting_head) return refuse({errc::disconnected, EPROTO});
    const std::size_t scheme_bytes = load_le<std::uint16_t>(bytes.data() + 8);
    const const_bytes rest = bytes.subspan(greeting_head);
    if (scheme_bytes > std::min(rest.size(), max_scheme_bytes))
        return refuse({errc::disconnected, EPROTO});
    const std::string_view theirs(reinterpret_cast<const char*>(rest.data()), scheme_bytes);
    if (theirs != scheme_) {
        log(log_level::warn, "fabric", "dropped a peer of another transport",
            {{"peer", address_of(*tcp_, link.peer_)}, {"its_kind", theirs}, {"our_kind", scheme_}});
        return refuse({errc::mismatch});
    }
    link.their_id_ = load_le<std::uint64_t>(bytes.data());
    const_bytes name = rest.subspan(scheme_bytes);
    if (proves()) {
        if (name.empty()) return refuse({errc::disconnected, EPROTO});
        const status shared = share_secrets(link, static_cast<std::uint8_t>(name[0]));
        if (!shared.ok()) return refuse(shared);
        name = name.subspan(1);
    }
    if (!link.was_accepted_ || !caller_goes_first()) return open(link, name);
    try {
        link.name_.assign(name.begin(), name.end());
    } catch (const std::bad_alloc&) {
        refuse({errc::no_memory});
    }
}

status introduced_carrier::share_secrets(introduced_link& link, std::uint8_t their_ciphers) noexcept
    try {
    const auto export_key = [&](const_bytes context, link_secrets::key& into) {
        return trust_.export_key(*tcp_, link.peer_, link_key_label, context, into);
    };
    link.secrets_ = detail::share_secrets(link.own_id_, link.their_id_, their_ciphers, export_key);
    if (link.secrets_ == nullptr) return {errc::disconnected, EPROTO};
    link.secrets_->who = tcp_->who(link.peer_);
    return {};
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ENOMEM};
}

std::unique_ptr<link_secrets> introduced_carrier::take_secrets(packet_link& link) noexcept {
    return std::move(static_cast<introduced_link&>(link).secrets_);
}

void introduced_carrier::open(introduced_link& link, const_bytes name) noexcept {
    const status opened = open_path(link, name);
    if (!opened.ok()) return lost(link, opened);
    link.state_ = introduced_link::state::open;
    ++upcalls_;
    events_->room(link);
}

introduced_link* introduced_carrier::of(peer_id who) noexcept {
    const auto found = by_peer_.find(who);
    return found == by_peer_.end() ? nullptr : found->second;
}

introduced_link* introduced_carrier::find(std::uint64_t own_id) noexcept {
    const auto found = by_id_.find(own_id);
    return found == by_id_.end() ? nullptr : found->second;
}

// ---- packets

void introduced_carrier::arrived(introduced_link& link, const_bytes packet) noexcept {
    if (link.state_ == introduced_link::state::introduction && !link.name_.empty()) {
        const std::vector<std::byte> name = std::exchange(link.name_, {});
        open(link, name);
    }
    if (link.state_ == introduced_link::state::over) return;
    ++link.received_;
    ++upcalls_;
    events_->received(link, packet);
}

std::size_t introduced_carrier::progress(std::size_t budget) noexcept {
    upcalls_ = 0;
    if (++awake_ >= long_awake && busy_count_ > 0) wake_by_busy_no_more();
    move_packets(budget);
    // The tcp port is rarely needed, and asking it costs a system call.
    if (++rounds_ % rounds_per_look == 0 || std::exchange(slept_, false)) tcp_->progress();
    if (!leaving_.empty()) let_go();
    if (!parted_.empty()) release_parted();
    if (upcalls_ > 0) nap_ms_ = 1;
    return upcalls_;
}

bool introduced_carrier::arm() noexcept {
    slept_ = true;
    awake_ = 0;
    if (std::exchange(timer_is_set_, false)) {
        constexpr itimerspec never{};
        ::timerfd_settime(timer_.get(), 0, &never, nullptr);
    }
    return leaving_.empty() && tcp_->prepare_to_sleep() && arm_paths();
}

// ---- ending

void introduced_carrier::say_farewell(introduced_link& link) noexcept {
    auto& out = link.said_;
    if (link.state_ != introduced_link::state::open || tcp_ == nullptr || out.pending) return;
    out.bytes.resize(sizeof link.sent_);  // Shorter than the introduction was.
    store_le(out.bytes.data(), link.sent_);
    out.piece = out.bytes;
    // If it is not sent, the other end notices the end only by the lost connection.
    out.pending =
        tcp_->post_send(link.peer_, farewell_tag, {&out.piece, 1}, out) == posted::pending;
}

/// Forgets the link; it gets no more upcalls.
void introduced_carrier::drop(introduced_link& link, status why) noexcept {
    if (link.state_ == introduced_link::state::over) return;
    if (link.state_ == introduced_link::state::leaving)
        leaving_.erase(std::find(leaving_.begin(), leaving_.end(), &link));
    else if (tcp_ != nullptr)
        tcp_->close(link.peer_);
    link.state_ = introduced_link::state::over;
    by_peer_.erase(link.peer_);
    by_id_.erase(link.own_id_);
    close_path(link, why.code != errc::closed);
}

void introduced_carrier::lost(introduced_link& link, status why) noexcept {
    if (link.state_ == introduced_link::state::over) return;
    drop(link, why);
    ++upcalls_;
    events_->down(link, why);
}

void introduced_carrier::on_peer_down(peer_id who, status why) noexcept {
    introduced_link* link = of(who);
    if (link == nullptr || link->state_ == introduced_link::state::leaving) return;
    leave(*link, why);
}

/// The other end is gone, but packets it sent before may still be in flight.
void introduced_carrier::leave(introduced_link& link, status why) noexcept {
    link.state_ = introduced_link::state::leaving;
    link.why_ = why;
    link.leaves_at_ = clock::steady().now();
    if (link.farewell_) link.leaves_at_ += last_packets;
    leaving_.push_back(&link);
}

void introduced_carrier::let_go() noexcept {
    const clock::time_point now = clock::steady().now();
    // One at a time: an upcall may close others.
    for (bool again = true; again;) {
        again = false;
        for (introduced_link* link : leaving_) {
            const bool all_came = link->farewell_ && link->received_ >= link->announced_;
            if (!all_came && now < link->leaves_at_) continue;
            if (!link->farewell_) {  // Packets from a killed process.
                for (int i = 0; i < 64 && move_packets(64) > 0; ++i) {
                }
                if (link->state_ != introduced_link::state::leaving) {
                    again = true;
                    break;
                }
            }
            lost(*link, link->why_);
            again = true;
            break;
        }
    }
}

void introduced_carrier::release(packet_link& link) noexcept {
    auto& one = static_cast<introduced_link&>(link);
    drop(one, {errc::closed});
    std::unique_ptr<introduced_link> taken = take(one);
    if (taken->said_.pending)
        parted_.push_back(std::move(taken));
    else
        release_path(std::move(taken));
}

/// The port had no memory for it. Inside progress(), which releases it at its end.
void introduced_carrier::refuse(introduced_link& link) noexcept {
    drop(link, {errc::no_memory});
    parted_.push_back(take(link));
}

std::unique_ptr<introduced_link> introduced_carrier::take(introduced_link& link) noexcept {
    const auto at = std::find_if(links_.begin(), links_.end(),
                                 [&](const auto& each) { return each.get() == &link; });
    std::unique_ptr<introduced_link> taken = std::move(*at);
    at->swap(links_.back());
    links_.pop_back();
    return taken;
}

void introduced_carrier::release_parted() noexcept {
    for (std::size_t i = 0; i < parted_.size();) {
        if (parted_[i]->said_.pending) {
            ++i;
            continue;
        }
        release_path(std::move(parted_[i]));
        parted_[i].swap(parted_.back());
        parted_.pop_back();
    }
}

}  // namespace amalgam::detail

#include "fabric/transports/tcp/port.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/limited_log.hpp>

#include "fabric/limits.hpp"
#include "fabric/sockets/open_ports.hpp"

namespace amalgam::detail {
namespace {

// Reading a recently busy socket costs as much as querying epoll, and returns the bytes at once. So
// epoll, which covers all others, is queried only after this many reads.
constexpr std::size_t reads_per_poll = 32;

// No connection is evicted for lack of descriptors before it had time to send something.
constexpr std::chrono::milliseconds fair_chance{100};

/// Fruitless reads after which one of `busy` connections is left to epoll: the more there are, the
/// less likely the next bytes are for this one.
constexpr std::size_t fruitless_rounds_among(std::size_t busy) noexcept {
    return busy == 1 ? 1024 : std::max<std::size_t>(128 / busy, 2);
}

capabilities abilities(const tcp_port::setup& with) {
    capabilities can;
    can.transport = with.trust == nullptr ? "tcp" : "tcp+tls";
    can.inline_bytes = limits::max_copy_bytes;
    can.max_message_bytes = limits::max_message_bytes;
    can.eager_bytes = std::size_t{64} << 10;
    can.rma = rma_mode::emulated;
    can.listens = static_cast<bool>(with.listener);
    can.between_processes = true;
    can.between_hosts = true;
    return can;
}

template <typename T>
void remove_from(std::vector<T*>& all, T& one) noexcept {
    all.erase(std::remove(all.begin(), all.end(), &one), all.end());
}

}  // namespace

tcp_port::tcp_port(const port_options& options, setup with)
    : framed_port(options, abilities(with)),
      chosen_(std::move(with.chosen)),
      shown_(std::move(with.shown)),
      credentials_(std::move(with.proof)),
      tls_(with.trust == nullptr ? nullptr : std::make_unique<tls_sessions>(std::move(with.trust))),
      memory_(buffers()),
      hello_{.incarnation = incarnation(), .address = address()},
      setting_{events_, chosen_, hello_, options.silence_limit, tls_.get()} {
    grow_placements();
    guard_memory();
    events_.watch(times_.fd(), on_time_, EPOLLIN);
    if (with.listener) reception_ = std::make_unique<reception>(*this, std::move(with.listener));
}

tcp_port::~tcp_port() {
    end_everything();
    connections_.clear();  // What remains: pending handshakes.
}

std::string tcp_port::address() const {
    return shown_.address ? shown_.address.uri(scheme()) : std::string();
}

std::string tcp_port::explain() const {
    const std::string where = explain_binding(chosen_, shown_, scheme());
    return tls_ == nullptr
               ? where + "; " + explain_who_reaches(chosen_)
               : fmt::format("{}; encrypted by TLS 1.3, {} handshakes refused so far; {}", where,
                             refused_.value(), tls_->trust().explain());
}

bool tcp_port::export_key(peer_id peer, std::string_view label, const_bytes context,
                          mutable_bytes into) const noexcept {
    const auto* const link = static_cast<const connection*>(link_to(peer));
    return link != nullptr && link->export_key(label, context, into);
}

// ---- peers

result<std::string> tcp_port::canonical(std::string_view address) const noexcept try {
    auto parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    const auto wrong = [&](std::string_view what) {
        return failure{
            {errc::invalid},
            fmt::format("uri \"{}\": {}; example: {}://127.0.0.1:7000", address, what, scheme())};
    };
    if (parsed->scheme != "tcp" || parsed->protocol.empty() != (tls_ == nullptr))
        return wrong(fmt::format("a {0} port reaches {0} addresses only", scheme()));
    if (parsed->host.empty()) return wrong("the host is missing");
    if (parsed->port.value_or(0) == 0) return wrong("the port number is missing");
    // Of a URI that others listen at too, as those of a configuration: what its own port needs.
    const std::string_view of_its_port = tls_ != nullptr ? "credentials" : insecure_option;
    if (!without_option(*parsed, of_its_port).options.empty())
        return wrong("an address to connect to must not have options");
    // A port proves itself in one way to all.
    if (const auto other = parsed->option("credentials"); other && *other != credentials_)
        return wrong(fmt::format(
            "the credentials of a port are those that it was opened with ({}), expected no other "
            "ones here; leave the option out, or open another port",
            credentials_.empty() ? "port_options::trust" : "\"" + credentials_ + "\""));
    auto numeric = socket_address::numeric(parsed->host, *parsed->port);
    if (!numeric) return fmt::format("{}://{}:{}", scheme(), parsed->host, *parsed->port);
    if (numeric->is_wildcard()) return wrong("a wildcard address cannot be connected to");
    if (chosen_.source && chosen_.source.family() != numeric->family())
        return failure{{errc::unsupported},
                       fmt::format("uri \"{}\": a port bound to {} cannot reach this address: one "
                                   "is IPv4, the other IPv6",
                                   address, chosen_.source.host())};
    return numeric->uri(scheme());
} catch (const std::bad_alloc&) {
    return failure{{errc::no_memory}, {}};
}

result<frame_link*> tcp_port::connect(std::string_view address) noexcept {
    connection* made = nullptr;
    const auto failed = [&](failure why) {
        if (made != nullptr) remove(*made);
        return why;
    };
    try {
        const uri target = uri::parse(address);
        made = &make_connection(std::string(address.substr(0, address.find('?'))));
        made->begin(std::make_unique<handshake>(setting_, *made, made->address(), target.host));
        if (auto numeric = socket_address::numeric(target.host, *target.port))
            made->follow(made->way_in().dial({*numeric}));
        else
            ask_for_addresses(*made, target);
        return static_cast<frame_link*>(made);
    } catch (const std::bad_alloc&) {
        return failed({{errc::no_memory}, {}});
    } catch (const error& why) {
        return failed({why.code(), why.what()});
    }
}

connection& tcp_port::make_connection(std::string address) {
    auto made = std::make_unique<connection>(*this, std::move(address));
    made->index = connections_.size();
    connections_.push_back(std::move(made));
    try {
        make_room_for_lists();
    } catch (const std::bad_alloc&) {
        connections_.pop_back();
        throw;
    }
    return *connections_.back();
}

/// Reserves capacity for all connections, so that adding one to a list later cannot fail.
void tcp_port::make_room_for_lists() {
    for (auto* list : {&active_, &with_work_, &working_, &turned_away_})
        if (list->capacity() < connections_.size()) list->reserve(connections_.capacity());
}

void tcp_port::ask_for_addresses(connection& who, const uri& target) {
    if (!resolver_) {
        auto made = std::make_unique<resolver>();
        if (!events_.watch(made->fd(), on_answers_, EPOLLIN))
            throw error(status{errc::no_memory, errno},
                        fmt::format("cannot wait for the address of a host: {}; raise the limit "
                                    "on watched descriptors (fs.epoll.max_user_watches)",
                                    std::strerror(errno)));
        resolver_ = std::move(made);
    }
    resolving_.insert_or_assign(resolver_->ask(target.host, *target.port), &who);
}

void tcp_port::take_answers() noexcept {
    for (resolver::answer& one : resolver_->take()) {
        auto asked = resolving_.find(one.question);
        if (asked == resolving_.end()) continue;
        connection& who = *asked->second;
        resolving_.erase(asked);
        if (!who.entering()) continue;
        who.follow(one.addresses ? who.way_in().dial(std::move(one.addresses).value())
                                 : who.way_in().give_up(one.addresses.why()));
    }
}

bool tcp_port::take_in(unique_fd accepted) noexcept {
    connection* made = nullptr;
    try {
        const socket_address from = socket_address::far_end(accepted.get());
        made = &make_connection(from ? from.uri(scheme()) : fmt::format("{}://?", scheme()));
        made->begin(
            std::make_unique<handshake>(setting_, *made, made->address(), std::move(accepted)));
    } catch (const std::bad_alloc&) {
        if (made != nullptr) remove(*made);
        return false;
    }
    made->is_stranger = made->came_to_us = true;
    return true;
}

bool tcp_port::entered(connection& who) noexcept {
    if (who.is_stranger) {
        try {
            if (!accepted(who, who.address())) return false;
        } catch (const std::bad_alloc&) {  // From copying its address.
            return false;
        }
        who.is_stranger = false;
        reception_->stranger_settled();
    }
    activate(who);
    return true;
}

void tcp_port::forget_turned_away(connection& who) noexcept {
    remove_from(turned_away_, who);
}

void tcp_port::report_turned_away() noexcept {
    // Not by iterator: link_down() may cause one to be released.
    while (!turned_away_.empty()) {
        connection& who = *turned_away_.back();
        turned_away_.pop_back();
        const failure& why = who.way_in().why();
        // A stranger that only leaves, as a killed process or a port scan does, is not unusual.
        if (who.way_in().is_refused()) refused_.add(1);
        const bool odd =
            why.what.code == errc::denied || (who.is_stranger && why.what.native != ECONNRESET);
        if (!why.sentence.empty())
            limited_log(odd ? log_level::warn : log_level::info, "tcp", "connection setup failed",
                        {{"why", why.sentence}});
        if (who.is_stranger)
            remove(who);
        else
            link_down(who, why.what);
    }
}

void tcp_port::release(frame_link& link) noexcept {
    remove(static_cast<connection&>(link));
}

void tcp_port::remove(connection& who) noexcept {
    if (who.is_stranger && !who.is_evicted) reception_->stranger_settled();
    if (who.is_active) remove_from(active_, who);
    if (who.has_work) remove_from(with_work_, who);
    if (!resolving_.empty())
        std::erase_if(resolving_, [&](const auto& open) { return open.second == &who; });
    const std::size_t index = who.index;
    connections_[index].swap(connections_.back());
    connections_[index]->index = index;
    connections_.pop_back();
}

// ---- bounds

bool tcp_port::evict_stranger(std::chrono::milliseconds age) noexcept {
    connection* oldest = nullptr;
    for (const auto& one : connections_)
        if (one->is_stranger && one->entering() &&
            (oldest == nullptr || one->way_in().deadline() < oldest->way_in().deadline()))
            oldest = one.get();
    if (oldest == nullptr) return false;
    const auto since = oldest->way_in().deadline() - silence_limit();
    if (clock::steady().now() - since < age) return false;
    oldest->is_evicted = true;  // Freed at the end of the round: an event may still refer to it.
    reception_->stranger_settled();
    count_evicted();
    oldest->follow(oldest->way_in().evict());
    return true;
}

bool tcp_port::evict_for_newcomer() noexcept {
    if (evict_stranger(fair_chance)) return true;
    connection* chosen = nullptr;
    std::chrono::milliseconds longest{0};
    for (const auto& one : connections_) {
        if (!one->is_up() || !one->came_to_us || !is_idle(*one)) continue;
        if (chosen != nullptr && !chosen->is_proven() && one->is_proven()) continue;
        const std::chrono::milliseconds idle = one->idle_for();
        if (idle < (one->is_proven() ? silence_limit() : fair_chance)) continue;
        const bool better = chosen == nullptr || (chosen->is_proven() && !one->is_proven());
        if (!better && idle <= longest) continue;
        chosen = one.get();
        longest = idle;
    }
    if (chosen == nullptr) return false;
    count_evicted();
    limited_log(log_level::warn, "tcp", "dropped an idle peer: out of file descriptors",
                {{"peer", chosen->address()}, {"idle_ms", longest.count()}});
    chosen->down({errc::overloaded, EMFILE});
    return true;
}

void tcp_port::watch_frames() noexcept {
    if (options().frame_limit.count() == 0 || std::exchange(frames_are_watched_, true)) return;
    times_.add(clock::steady().now() + options().frame_limit / connection::frame_checks,
               frame_watch_);
}

void tcp_port::check_frames(clock::time_point now) noexcept {
    bool some = false;
    for (const auto& one : connections_)
        some = one->check_frame() || some;
    frames_are_watched_ = some;
    if (some) times_.add(now + options().frame_limit / connection::frame_checks, frame_watch_);
}

// ---- rounds

void tcp_port::activate(connection& who) noexcept {
    if (std::exchange(who.is_active, true)) return;
    active_.push_back(&who);
}

void tcp_port::has_work(connection& who) noexcept {
    if (std::exchange(who.has_work, true)) return;
    with_work_.push_back(&who);
}

std::size_t tcp_port::work_off(std::size_t budget) noexcept {
    if (with_work_.empty()) return 0;
    std::size_t done = 0;
    std::swap(with_work_, working_);  // Callbacks may add to with_work_ meanwhile.
    for (connection* who : working_) {
        who->has_work = false;
        done += who->work_off(budget - done);
    }
    working_.clear();
    return done;
}

std::size_t tcp_port::read_all(std::size_t budget) noexcept {
    const std::size_t count = active_.size();
    if (count == 0) return 0;
    std::size_t done = 0;
    ++turn_;
    for (std::size_t i = 0; i < count && done < budget; ++i) {
        connection& who = *active_[(turn_ + i) % count];
        done += who.read(budget - done);
    }
    prune_active();
    return done;
}

void tcp_port::prune_active() noexcept {
    const std::size_t most_fruitless = fruitless_rounds_among(active_.size());
    std::erase_if(active_, [&](connection* who) {
        const bool stays =
            who->is_readable() || (who->is_up() && who->fruitless() < most_fruitless);
        who->is_active = stays;
        if (!stays) who->rest();
        return !stays;
    });
}

std::size_t tcp_port::move_frames(std::size_t budget) noexcept {
    ++round_;
    reads_unasked_ += active_.size();
    if (active_.empty() || blocked_ > 0 || reads_unasked_ >= reads_per_poll) {
        reads_unasked_ = 0;
        events_.poll();
    }
    std::size_t done = work_off(budget);
    done += read_all(budget - done);
    work_off(0);
    if (!turned_away_.empty()) report_turned_away();
    return done;
}

bool tcp_port::arm() noexcept {
    if (std::exchange(has_new_room_, false)) return false;
    if (!with_work_.empty() || !turned_away_.empty()) return false;
    reads_unasked_ = reads_per_poll;
    return std::none_of(active_.begin(), active_.end(),
                        [](const connection* who) { return who->is_readable(); });
}

}  // namespace amalgam::detail

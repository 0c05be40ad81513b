#include "fabric/sealing/packet_introducer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>

namespace amalgam::detail {
namespace {

// What each end says within TLS once the handshake is done: magic:u64 own_id:u64 ciphers:u8.
constexpr std::uint64_t greeting_magic = 0x31616573'6c616d41u;  // "Amalsea1" on the wire.
constexpr std::size_t greeting_bytes = 17;

constexpr std::string_view tls_suffix = "+tls";

constexpr std::uint64_t rounds_per_look = 64;

/// "mpi+static://1:2" as "mpi+static+tls://1:2".
std::string with_tls(std::string address) {
    const std::size_t at = address.find("://");
    if (at != address.npos) address.insert(at, tls_suffix);
    return address;
}

}  // namespace

struct packet_introduced_link::handshake {
    unique_fd inside;   ///< Of TLS.
    unique_fd outside;  ///< Its other end, where packets are filled from and emptied to.
    std::unique_ptr<tls_session> session;
    std::uint64_t own_id = random_nonzero_u64();
    std::size_t taken = 0;      ///< Bytes of the peer.
    packet* refused = nullptr;  ///< The carrier below had no room for it.
    bool is_complete = false;   ///< TLS.
    std::array<std::byte, greeting_bytes> heard{};
    std::size_t heard_bytes = 0;
    clock::time_point ends_at;
};

void packet_introduced_link::handshake_end::operator()(handshake* one) const noexcept {
    delete one;
}

packet_introducer::packet_introducer(std::unique_ptr<packet_carrier> below,
                                     std::size_t packet_bytes,
                                     std::shared_ptr<const credentials> trust,
                                     std::chrono::milliseconds limit, std::uint8_t ciphers,
                                     const clock& time)
    : trust_(std::move(trust)),
      limit_(limit),
      late_(fmt::format("no answer within {} ms", limit.count())),
      ciphers_(ciphers),
      time_(time),
      contexts_(trust_),
      pool_(packet_bytes),
      below_(std::move(below)) {}

packet_introducer::~packet_introducer() = default;

void packet_introducer::start(packet_events& events) noexcept {
    events_ = &events;
    below_->start(*this);
}

// ---- addresses

std::string packet_introducer::address() const {
    return with_tls(below_->address());
}

std::string packet_introducer::explain() const {
    return fmt::format(
        "{}; peers are introduced by TLS 1.3 over it, {} handshakes refused so far; {}",
        below_->explain(), refused_, trust_->explain());
}

result<std::string> packet_introducer::canonical(std::string_view address) const {
    const auto parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    uri plain = without_option(*parsed, "credentials");
    if (!plain.protocol.ends_with(tls_suffix))
        return failure{{errc::invalid},
                       fmt::format("uri \"{}\": a port that encrypts reaches addresses of its kind "
                                   "only; example: {}",
                                   address, this->address())};
    plain.protocol.resize(plain.protocol.size() - tls_suffix.size());
    const auto found = below_->canonical(to_string(plain));
    if (!found) return found.why();
    return with_tls(*found);
}

// ---- links

packet_introducer::link& packet_introducer::add(std::string address) {
    links_.push_back(std::make_unique<link>(*this));
    links_.back()->address_ = std::move(address);
    return *links_.back();
}

void packet_introducer::remove(link& one) noexcept {
    stop_shaking(one);
    const auto at = std::find_if(links_.begin(), links_.end(),
                                 [&](const auto& each) { return each.get() == &one; });
    at->swap(links_.back());
    links_.pop_back();
}

result<packet_link*> packet_introducer::connect(std::string_view address) {
    const auto plain = canonical(address);
    if (!plain) return plain.why();
    std::string below = *plain;
    below.erase(below.find(std::string(tls_suffix) + "://"), tls_suffix.size());
    link& made = add(*plain);
    try {
        begin(made, tls_session::side::connecting);
        const result<packet_link*> found = below_->connect(below);
        if (found) {
            made.below_ = *found;
            made.below_->user = &made;
            return static_cast<packet_link*>(&made);
        }
        remove(made);
        return found.why();
    } catch (...) {
        remove(made);
        throw;
    }
}

bool packet_introducer::accepted(packet_link& below, std::string address) noexcept {
    link* made = nullptr;
    const auto undo = [&] {
        below.user = nullptr;
        if (made != nullptr) remove(*made);
        return false;
    };
    try {
        made = &add(with_tls(std::move(address)));
        made->below_ = &below;
        below.user = made;
        begin(*made, tls_session::side::accepting);
        std::string shown = made->address_;
        return events_->accepted(*made, std::move(shown)) || undo();
    } catch (const std::exception&) {  // Out of memory or descriptors.
        return undo();
    }
}

void packet_introducer::release(packet_link& which) noexcept {
    auto& one = static_cast<link&>(which);
    below_->release(*one.below_);
    remove(one);
}

void packet_introduced_link::close() noexcept {
    if (std::exchange(is_over_, true)) return;
    is_open_ = false;
    home_.stop_shaking(*this);
    below_->close();
}

void packet_introducer::down(packet_link& below, status why) noexcept {
    link& one = *static_cast<link*>(below.user);
    if (std::exchange(one.is_over_, true)) return;
    one.is_open_ = false;
    stop_shaking(one);
    events_->down(one, why);
}

std::unique_ptr<link_secrets> packet_introducer::take_secrets(packet_link& which) noexcept {
    return std::move(static_cast<link&>(which).secrets_);
}

// ---- the handshake

void packet_introducer::begin(link& one, tls_session::side which) {
    std::unique_ptr<link::handshake, link::handshake_end> made(new link::handshake);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        throw error(status{errc::no_memory, errno},
                    "out of file descriptors for a connection; raise the limit on open files "
                    "(ulimit -n)");
    made->inside.reset(ends[0]);
    made->outside.reset(ends[1]);
    const auto context =
        which == tls_session::side::connecting ? contexts_.connecting() : contexts_.accepting();
    if (!context) throw std::bad_alloc();
    made->session =
        std::make_unique<tls_session>(**context, which, made->inside.get(), record_, time_);
    made->ends_at = time_.now() + limit_;
    one.shaking_ = std::move(made);
    ++shaking_;
}

void packet_introducer::stop_shaking(link& one) noexcept {
    if (one.shaking_ == nullptr) return;
    if (one.shaking_->refused != nullptr) pool_.give_back(*one.shaking_->refused);
    one.shaking_.reset();
    --shaking_;
}

/// As far as TLS gets with what has arrived.
void packet_introducer::advance(link& one) noexcept try {
    // The end of a handshake is flushed, too: it says why.
    if (shake(one) && hear(one) && flush(one)) open(one);
} catch (const std::bad_alloc&) {
    fail(one, {errc::no_memory, ENOMEM}, "out of memory");
}

/// True: the handshake is complete.
bool packet_introducer::shake(link& one) {
    auto& now = *one.shaking_;
    if (now.is_complete) return true;
    switch (now.session->shake_hands(true)) {
        case tls_session::state::waiting:
            (void)flush(one);
            return false;
        case tls_session::state::failed:
            (void)flush(one);
            fail(one, now.session->why().what, now.session->why().sentence);
            return false;
        case tls_session::state::complete:
            break;
    }
    now.is_complete = true;
    std::array<std::byte, greeting_bytes> ours;
    store_le(ours.data(), greeting_magic);
    store_le(ours.data() + 8, now.own_id);
    ours[16] = static_cast<std::byte>(ciphers_);
    if (now.session->write_whole(ours)) return true;
    fail(one, {errc::no_memory, ENOMEM}, "out of memory");
    return false;
}

/// True: the peer's greeting is there.
bool packet_introducer::hear(link& one) {
    auto& now = *one.shaking_;
    while (now.heard_bytes < greeting_bytes) {
        const iovec room{now.heard.data() + now.heard_bytes, greeting_bytes - now.heard_bytes};
        const ssize_t got = now.session->read({&room, 1}, false);
        if (got > 0) {
            now.heard_bytes += static_cast<std::size_t>(got);
            continue;
        }
        const bool starves = got < 0 && errno == EAGAIN;
        (void)flush(one);
        if (starves && now.session->drained()) return false;
        if (starves) continue;
        const failure& why = now.session->why();
        why.what.ok() ? fail(one, {errc::unreachable, ECONNRESET}, "the peer ended it")
                      : fail(one, why.what, why.sentence);
        return false;
    }
    if (load_le<std::uint64_t>(now.heard.data()) == greeting_magic) return true;
    fail(one, {errc::mismatch}, "the peer speaks another protocol, or another version of it");
    return false;
}

/// Sends what TLS has said. False: some of it waits for room.
bool packet_introducer::flush(link& one) {
    auto& now = *one.shaking_;
    for (;;) {
        packet* next = std::exchange(now.refused, nullptr);
        if (next == nullptr) {
            next = pool_.take();
            if (next == nullptr) throw std::bad_alloc();
            const ssize_t got = ::recv(now.outside.get(), next->data, pool_.packet_bytes(), 0);
            if (got <= 0) {
                pool_.give_back(*next);
                if (!now.session->has_pending()) return true;
                (void)now.session->drain();
                if (now.session->has_pending() && now.session->write_error() != 0)
                    throw std::bad_alloc();
                continue;
            }
            next->bytes = static_cast<std::uint32_t>(got);
        }
        try {
            lent_.reserve(lent_.size() + 1);
        } catch (const std::bad_alloc&) {
            pool_.give_back(*next);
            throw;
        }
        switch (one.below_->send(*next)) {
            case posted::done:
                pool_.give_back(*next);
                break;
            case posted::pending:
                lent_.push_back(next);
                break;
            case posted::full:
                now.refused = next;
                return false;
        }
    }
}

void packet_introducer::open(link& one) {
    auto& now = *one.shaking_;
    const auto export_key = [&](const_bytes context, link_secrets::key& into) {
        return now.session->export_key(link_key_label, context, into);
    };
    auto shared = share_secrets(now.own_id, load_le<std::uint64_t>(now.heard.data() + 8),
                                static_cast<std::uint8_t>(now.heard[16]), export_key);
    if (shared == nullptr)
        return fail(one, {errc::disconnected, EPROTO}, "there is no key for this connection");
    shared->who = now.session->peer();
    one.secrets_ = std::move(shared);
    stop_shaking(one);
    one.is_open_ = true;
    ++told_;
    events_->room(one);
}

/// `why` may be of its session, and must need no memory: this is where there may be none.
void packet_introducer::fail(link& one, status what, std::string_view why) noexcept {
    if (std::exchange(one.is_over_, true)) return;
    ++refused_;
    try {
        limited_log(log_level::warn, "fabric", "connection setup failed",
                    {{"why", fmt::format("no TLS with {}: {}", one.address_, why)}});
    } catch (const std::bad_alloc&) {  // Not logged then.
    }
    one.below_->close();
    stop_shaking(one);
    ++told_;
    events_->down(one, what);
}

void packet_introducer::look_at_limits() noexcept {
    const clock::time_point now = time_.now();
    for (std::size_t i = 0; i < links_.size(); ++i) {
        link& one = *links_[i];
        if (one.shaking_ == nullptr || now < one.shaking_->ends_at) continue;
        fail(one, {errc::unreachable, ETIMEDOUT}, late_);
    }
}

// ---- packets

void packet_introducer::received(packet_link& below, const_bytes bytes) noexcept {
    link& one = *static_cast<link*>(below.user);
    if (one.is_open_) [[likely]]
        return events_->received(one, bytes);
    if (one.is_over_ || one.shaking_ == nullptr) return;
    auto& now = *one.shaking_;
    now.taken += bytes.size();
    if (now.taken > max_handshake_bytes)
        return fail(one, {errc::unreachable, EPROTO}, "its handshake is too long");
    const ssize_t went = ::send(now.outside.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (went != static_cast<ssize_t>(bytes.size()))
        return fail(one, {errc::no_memory, ENOBUFS}, "out of socket memory");
    advance(one);
}

void packet_introducer::room(packet_link& below) noexcept {
    link& one = *static_cast<link*>(below.user);
    if (one.is_open_) return events_->room(one);
    if (!one.is_over_ && one.shaking_ != nullptr) advance(one);
}

bool packet_introducer::take_lent(packet& one) noexcept {
    const auto at = std::find(lent_.begin(), lent_.end(), &one);
    if (at == lent_.end()) return false;
    *at = lent_.back();
    lent_.pop_back();
    return true;
}

void packet_introducer::returned(packet& one) noexcept {
    take_lent(one) ? pool_.give_back(one) : events_->returned(one);
}

void packet_introducer::abandoned(packet& one) noexcept {
    take_lent(one) ? pool_.abandon(one) : events_->abandoned(one);
}

std::size_t packet_introducer::progress(std::size_t budget) noexcept {
    told_ = 0;
    const std::size_t ran = below_->progress(budget);
    if (shaking_ > 0 && (ran == 0 || ++rounds_ % rounds_per_look == 0)) look_at_limits();
    return ran + told_;
}

}  // namespace amalgam::detail

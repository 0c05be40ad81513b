#include "fabric/transports/ofi/connected_carrier.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <sys/timerfd.h>
#include <unistd.h>

#include <amalgam/core/uri.hpp>

namespace amalgam::detail {
namespace {

constexpr std::size_t packets_posted = 64;  // One window.
constexpr std::uint64_t rounds_between_looks = 64;

// A closing endpoint keeps reading this long, so that the kernel does not drop what it sent.
constexpr std::chrono::milliseconds lingering{1200};
constexpr long alarm_ns = 50'000'000;

/// Replaces an address that fi_freeinfo() will free.
void replace(void*& old, std::size_t& old_bytes, const socket_address& by) {
    std::free(std::exchange(old, nullptr));
    old_bytes = 0;
    if (!by) return;
    old = std::malloc(by.bytes());
    if (old == nullptr) throw std::bad_alloc();
    std::memcpy(old, by.data(), by.bytes());
    old_bytes = by.bytes();
}

ofi_info between(const fi_info& model, const socket_address& near, const socket_address& far) {
    ofi_info made(fi_dupinfo(&model));
    if (!made) throw std::bad_alloc();
    replace(made->src_addr, made->src_addrlen, near);
    replace(made->dest_addr, made->dest_addrlen, far);
    made->addr_format = (near ? near : far).family() == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    return made;
}

}  // namespace

ofi_connected_carrier::ofi_connected_carrier(introducer by, ofi_choice choice, const place& at,
                                             std::chrono::milliseconds silence_limit)
    : ofi_carrier(std::move(by), std::move(choice)),
      source_(at.source),
      silence_limit_(silence_limit),
      alarm_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    fi_eq_attr wanted{};
    wanted.wait_obj = FI_WAIT_FD;
    fid_eq* queue = nullptr;
    require_ofi(fi_eq_open(fabric(), &wanted, &queue, nullptr), "open an event queue");
    happenings_.reset(queue);
    int descriptor = -1;
    require_ofi(fi_control(&queue->fid, FI_GETWAIT, &descriptor),
                "get the event queue's descriptor");
    sleep_also_on(descriptor);
    if (!alarm_)
        throw error(
            status{errc::no_memory, errno},
            "out of file descriptors for the port; raise the limit on open files (ulimit -n)");
    sleep_also_on(alarm_.get());

    fi_rx_attr shared_by_all = *info().rx_attr;
    fid_ep* shared = nullptr;
    require_ofi(fi_srx_context(domain(), &shared_by_all, &shared, nullptr),
                "open a shared receive context");
    shared_.reset(shared);
    begin_to_receive(shared, packets_posted);
    if (at.listen) listen(at.listen);
}

ofi_connected_carrier::~ofi_connected_carrier() {
    end_packets();
    end_introductions();
    end_paths();
    listener_.reset();
    shared_.reset();
    happenings_.reset();
}

void ofi_connected_carrier::end_paths() noexcept {
    for (ofi_connected_link* one : all_)
        close_end(*one, one->end_);
    take_back_all();
}

void ofi_connected_carrier::listen(const socket_address& at) {
    const ofi_info here = between(info(), at.with_port(0), {});
    fid_pep* listener = nullptr;
    require_ofi(fi_passive_ep(fabric(), here.get(), &listener, nullptr), "listen");
    listener_.reset(listener);
    require_ofi(fi_pep_bind(listener, &happenings_->fid, 0), "listen");
    require_ofi(fi_listen(listener), "listen");

    sockaddr_storage raw{};
    std::size_t bytes = sizeof raw;
    require_ofi(fi_getname(&listener->fid, &raw, &bytes), "get the listening address");
    socket_address where(reinterpret_cast<const sockaddr&>(raw), static_cast<socklen_t>(bytes));
    if (where.is_wildcard()) {
        const result<uri> shown = parse_uri(address());
        if (shown)
            if (auto told = socket_address::numeric(shown->host, where.port())) where = *told;
    }
    name_ = where.uri();
}

const_bytes ofi_connected_carrier::own_name(const introduced_link&) const noexcept {
    return std::as_bytes(std::span(name_));
}

// ---- connecting

std::unique_ptr<introduced_link> ofi_connected_carrier::make_link() {
    auto made = std::make_unique<ofi_connected_link>();
    for (auto* list : {&waiting_, &all_})
        if (list->capacity() <= all_.size()) list->reserve(2 * all_.size() + 1);
    expect(*made);
    all_.push_back(made.get());
    return made;
}

/// The address over which the other end was introduced, with the port number from its name. So it
/// may listen at several addresses without knowing which of them we see.
socket_address ofi_connected_carrier::place_of(const introduced_link& link,
                                               const_bytes name) const {
    const auto read = [](std::string_view text) {
        const result<uri> parsed = parse_uri(text);
        const auto found =
            parsed ? socket_address::numeric(parsed->host, parsed->port.value_or(0)) : std::nullopt;
        return found.value_or(socket_address());
    };
    const socket_address told = read({reinterpret_cast<const char*>(name.data()), name.size()});
    const socket_address met = read(met_at(link));
    return met && told ? met.with_port(told.port()) : told;
}

status ofi_connected_carrier::open_path(introduced_link& link, const_bytes name) noexcept try {
    auto& one = static_cast<ofi_connected_link&>(link);
    wait_for(one, silence_limit_);
    if (one.was_accepted()) return {};  // It connects to us.
    const socket_address far = place_of(link, name);
    if (!far || far.port() == 0) return {errc::disconnected, EPROTO};
    const bool bind = source_ && source_.family() == far.family();
    const ofi_info way = between(info(), bind ? source_ : socket_address(), far);
    if (status made = make_end(one, way.get()); !made.ok()) return made;
    std::byte theirs[8];
    store_le(theirs, one.their_id());
    return from_ofi(fi_connect(one.end_.get(), far.data(), theirs, sizeof theirs),
                    errc::unreachable);
} catch (const std::bad_alloc&) {
    return {errc::no_memory};
}

status ofi_connected_carrier::make_end(ofi_connected_link& link, fi_info* way) noexcept {
    fid_ep* made = nullptr;
    int how = fi_endpoint(domain(), way, &made, nullptr);
    if (how != 0) return from_ofi(how, errc::unreachable);
    link.end_.reset(made);
    fid_cq* completions = completions_of(link);
    if (completions == nullptr) return {errc::no_memory};
    how = fi_ep_bind(made, &happenings_->fid, 0);
    if (how == 0) how = fi_ep_bind(made, &completions->fid, FI_TRANSMIT | FI_RECV);
    if (how == 0) how = fi_ep_bind(made, &shared_->fid, 0);
    if (how == 0) how = fi_enable(made);
    return from_ofi(how, errc::unreachable);
}

void ofi_connected_carrier::take_caller(fi_info* way, const_bytes introduction) noexcept {
    auto* link =
        introduction.size() == 8
            ? static_cast<ofi_connected_link*>(find(load_le<std::uint64_t>(introduction.data())))
            : nullptr;
    if (link == nullptr || !link->was_accepted() || link->end_ != nullptr) {
        fi_reject(listener_.get(), way->handle, nullptr, 0);
        return;
    }
    status how = make_end(*link, way);
    if (how.ok()) how = from_ofi(fi_accept(link->end_.get(), nullptr, 0));
    if (!how.ok()) fail(*link, how);
}

// ---- connection events

ofi_connected_link* ofi_connected_carrier::with_end(const fid* end) noexcept {
    const auto at = std::find_if(all_.begin(), all_.end(), [&](const ofi_connected_link* one) {
        return one->end_ != nullptr && &one->end_->fid == end;
    });
    return at == all_.end() ? nullptr : *at;
}

void ofi_connected_carrier::read_events() noexcept {
    alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + 256> raw;
    while (true) {
        std::uint32_t what = 0;
        const auto bytes = fi_eq_read(happenings_.get(), &what, raw.data(), raw.size(), 0);
        if (bytes == -FI_EAVAIL) {
            failed_event();
            continue;
        }
        if (bytes < static_cast<long>(sizeof(fi_eq_cm_entry))) return;
        const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(raw.data());
        if (what == FI_CONNREQ) {
            take_caller(entry.info, const_bytes(raw).first(bytes).subspan(sizeof(fi_eq_cm_entry)));
            fi_freeinfo(entry.info);
            continue;
        }
        ofi_connected_link* link = with_end(entry.fid);
        if (link == nullptr) continue;
        if (what == FI_CONNECTED) {
            link->is_connected_ = true;
            link->by_ = link->end_.get();
            if (!link->closing_) events().room(*link);
        } else if (what == FI_SHUTDOWN) {
            link->is_shut_ = true;
            wait_for(*link, {});
        }
    }
}

void ofi_connected_carrier::failed_event() noexcept {
    fi_eq_err_entry what{};
    if (fi_eq_readerr(happenings_.get(), &what, 0) < 1) return;
    if (ofi_connected_link* link = with_end(what.fid); link != nullptr && !link->closing_)
        fail(*link, {link->is_connected_ ? errc::disconnected : errc::unreachable, what.err});
}

void ofi_connected_carrier::wait_for(ofi_connected_link& link,
                                     std::chrono::milliseconds limit) noexcept {
    link.give_up_ = clock::steady().now() + limit;
    if (std::exchange(link.waits_, true)) return;
    if (waiting_.empty()) {
        const itimerspec ticking{{0, alarm_ns}, {0, alarm_ns}};
        ::timerfd_settime(alarm_.get(), 0, &ticking, nullptr);
    }
    waiting_.push_back(&link);
}

/// Whether not even the other end's kernel has answered: a filter may pass the introducing
/// connection but not this one. Otherwise the other end is only busy or stopped. Then there is no
/// limit, as with tcp: the introducing connection tells when it is gone.
bool ofi_connected_carrier::nobody_answers(const ofi_connected_link& link) noexcept {
    if (link.was_accepted()) return false;  // The caller decides when to give up.
    sockaddr_storage raw{};
    std::size_t bytes = sizeof raw;
    return fi_getpeer(link.end_.get(), &raw, &bytes) != 0;
}

void ofi_connected_carrier::look_at_waiting() noexcept {
    std::uint64_t ticks = 0;
    [[maybe_unused]] const auto read = ::read(alarm_.get(), &ticks, sizeof ticks);
    const clock::time_point now = clock::steady().now();
    for (std::size_t i = 0; i < waiting_.size();) {
        ofi_connected_link& one = *waiting_[i];
        bool waits = true;
        if (one.closing_) {
            if ((one.lent_ == 0 && (one.is_shut_ || !one.is_connected_)) || now >= one.give_up_) {
                cut_off(one);
                waits = false;
            }
        } else if (one.is_shut_) {
            // Everything that arrived before has been read: see tend().
            fail(one, {errc::disconnected, ECONNRESET});
            waits = false;
        } else if (one.is_connected_) {
            waits = false;
        } else if (now >= one.give_up_) {
            if (nobody_answers(one)) fail(one, {errc::unreachable, ETIMEDOUT});
            waits = false;
        }
        if (waits) {
            ++i;
            continue;
        }
        one.waits_ = false;
        waiting_[i] = waiting_.back();
        waiting_.pop_back();
    }
    if (waiting_.empty()) {
        const itimerspec never{};
        ::timerfd_settime(alarm_.get(), 0, &never, nullptr);
    }
}

void ofi_connected_carrier::tend() noexcept {
    // Packets do not need this, and it costs system calls.
    if (++rounds_ % rounds_between_looks != 0 && !std::exchange(slept_, false) && waiting_.empty())
        return;
    read_events();
    if (waiting_.empty()) return;
    while (read_completions()) {  // Read what arrived before an end was shut.
    }
    look_at_waiting();
}

bool ofi_connected_carrier::may_sleep() noexcept {
    slept_ = true;
    fid* queue = &happenings_->fid;
    return fi_trywait(fabric(), &queue, 1) == 0;
}

// ---- ending

void ofi_connected_carrier::close_path(introduced_link& link, bool dead) noexcept {
    auto& one = static_cast<ofi_connected_link&>(link);
    if (std::exchange(one.closing_, true)) return;
    if (one.end_ != nullptr) {
        // Cut off before the port gives up on transfers.
        wait_for(one,
                 dead ? std::chrono::milliseconds(0) : std::min(lingering, silence_limit_ / 2));
        events().due();
    }
}

void ofi_connected_carrier::cut_off(ofi_connected_link& link) noexcept {
    close_end(link, link.end_);
    take_back_all_of(link);
}

bool ofi_connected_carrier::may_destroy(ofi_link& link) noexcept {
    auto& one = static_cast<ofi_connected_link&>(link);
    if (one.end_ != nullptr && one.waits_) return false;
    cut_off(one);
    if (one.waits_) waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &one));
    all_.erase(std::find(all_.begin(), all_.end(), &one));
    return true;
}

}  // namespace amalgam::detail

#include "fabric/transports/shm/memory/cross_memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

#include <sys/uio.h>

#include "fabric/memory/guarded_memory.hpp"

namespace amalgam::detail {
namespace {

/// The part of a segment list that one call takes.
struct window {
    static constexpr std::size_t most = 64;
    std::array<iovec, most> parts;
    std::size_t count = 0;

    /// Takes the next `bytes` from `at`, or fewer if they are in too many parts; returns how many.
    template <typename Bytes>
    std::size_t fill(const cross_place<Bytes>& place, std::size_t bytes) noexcept {
        std::size_t held = 0;
        std::size_t within = place.at.within;
        count = 0;
        for (std::size_t i = place.at.index; held < bytes && count < most; ++i, within = 0) {
            const Bytes& segment = place.segments[i];
            const std::size_t some = std::min(segment.size() - within, bytes - held);
            if (some == 0) continue;
            // No pointer arithmetic: another process may claim any address.
            const auto begin = reinterpret_cast<std::uintptr_t>(segment.data()) + within;
            parts[count++] = {reinterpret_cast<void*>(begin), some};
            held += some;
        }
        return held;
    }
};

status why_not(int error) noexcept {
    switch (error) {
        case ESRCH:
            return {errc::disconnected, error};
        case EPERM:
        case EACCES:
        case ENOSYS:
            return {errc::unsupported, error};
        case ENOMEM:
            return {errc::no_memory, error};
        default:
            return {errc::denied, error};
    }
}

/// Tells which side's memory is inaccessible: a copy stops exactly at the first bad byte.
status whose_fault(pid_t pid, const iovec& here, const iovec& there, bool reads_there) noexcept {
    if (!reads_there)
        return is_readable({static_cast<const std::byte*>(here.iov_base), 1}) ? no_access_there
                                                                              : no_access;
    std::byte one;
    const iovec into{&one, 1}, from{there.iov_base, 1};
    return ::process_vm_readv(pid, &into, 1, &from, 1, 0) == 1 ? no_access : no_access_there;
}

template <typename Local, typename Call>
status copy(pid_t pid, cross_place<Local>& local, cross_place<const_bytes>& remote,
            std::size_t bytes, Call&& call) noexcept {
    window here, there;
    while (bytes > 0) {
        std::size_t some = there.fill(remote, here.fill(local, bytes));
        here.fill(local, some);
        const ssize_t copied =
            call(pid, here.parts.data(), here.count, there.parts.data(), there.count, 0);
        if (copied == 0 || (copied < 0 && errno == EFAULT))
            return whose_fault(pid, here.parts[0], there.parts[0],
                               std::is_same_v<Local, mutable_bytes>);
        if (copied < 0) return why_not(errno);
        const auto moved = static_cast<std::size_t>(copied);
        walk(local.segments, local.at, moved, [](Local) {});
        walk(remote.segments, remote.at, moved, [](const_bytes) {});
        bytes -= moved;
    }
    return {};
}

/// All probes ever created, and the free ones. Never destroyed: peers may write there while the
/// process lives.
struct probe_places {
    std::deque<shm_probe> all;
    std::vector<shm_probe*> free;
};

constinit std::mutex places_lock;
constinit probe_places* all_places = nullptr;  // Under it.

/// A child of fork() opens ports of its own, whatever other threads were opening.
constinit fork_handlers place_handlers([] { places_lock.lock(); }, [] { places_lock.unlock(); },
                                       [] { places_lock.unlock(); });

shm_probe& take_place() {
    if (!place_handlers.watch()) throw std::bad_alloc();
    const std::lock_guard hold(places_lock);
    if (all_places == nullptr) all_places = new probe_places;
    if (all_places->free.empty()) {
        all_places->free.reserve(all_places->all.size() + 1);  // So that returning it cannot throw.
        return all_places->all.emplace_back();
    }
    shm_probe& one = *all_places->free.back();
    all_places->free.pop_back();
    return one;
}

}  // namespace

shm_own_probe::shm_own_probe(std::uint64_t token) : place_(take_place()) {
    place_.token = token;
}

shm_own_probe::~shm_own_probe() {
    if (forked_.is_in_child()) return;  // It is its parent's.
    place_.token = 0;
    const std::lock_guard hold(places_lock);
    all_places->free.push_back(&place_);
}

status copy_from_process(pid_t from, cross_place<mutable_bytes>& to,
                         cross_place<const_bytes>& source, std::size_t bytes) noexcept {
    return copy(from, to, source, bytes, ::process_vm_readv);
}

status copy_to_process(pid_t to, cross_place<const_bytes>& source, cross_place<const_bytes>& target,
                       std::size_t bytes) noexcept {
    return copy(to, source, target, bytes, ::process_vm_writev);
}

status try_cross_memory(pid_t of, std::uint64_t address, std::uint64_t token) noexcept {
    std::uint64_t found = 0;
    const mutable_bytes into = as_writable_bytes_of(found);
    const_bytes there = foreign_bytes(address + offsetof(shm_probe, token), sizeof found);
    cross_place<mutable_bytes> to{{&into, 1}, {}};
    cross_place<const_bytes> source{{&there, 1}, {}};
    if (status what = copy_from_process(of, to, source, sizeof found); !what.ok())
        return {errc::unsupported, what.native};
    // Another process with that id, in another PID namespace.
    if (found != token) return {errc::mismatch};

    const const_bytes from = as_bytes_of(token);
    there = foreign_bytes(address + offsetof(shm_probe, scratch), sizeof token);
    cross_place<const_bytes> out{{&from, 1}, {}};
    cross_place<const_bytes> target{{&there, 1}, {}};
    if (status what = copy_to_process(of, out, target, sizeof token); !what.ok())
        return {errc::unsupported, what.native};
    return {};
}

}  // namespace amalgam::detail

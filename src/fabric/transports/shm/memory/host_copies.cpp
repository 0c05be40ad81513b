#include "fabric/transports/shm/memory/host_copies.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>

#include "fabric/transports/shm/memory/process.hpp"

namespace amalgam::detail {
namespace {

// Bounds how long a closing region waits: about 300 us.
constexpr std::size_t copied_at_once = std::size_t{4} << 20;
// Peers that left in the middle of a write, before we look whether they are stopped.
constexpr std::size_t max_sleepers = 16;

failure denied_by_kernel(status why) {
    return {{errc::unsupported, why.native},
            fmt::format("the kernel denies copies between processes ({})", to_string(why))};
}

}  // namespace

void host_name::encode(std::byte* to) const noexcept {
    for (const std::uint64_t each : {pid, descriptor, device, inode, probe, token, slot}) {
        store_le(to, each);
        to += sizeof each;
    }
}

host_name host_name::decode(const std::byte* from) noexcept {
    host_name one;
    for (std::uint64_t* each :
         {&one.pid, &one.descriptor, &one.device, &one.inode, &one.probe, &one.token, &one.slot}) {
        *each = load_le<std::uint64_t>(from);
        from += sizeof *each;
    }
    return one;
}

bool host_peer::is_gone() const noexcept {
    return has_process_ended(process.get());
}

// ---- opening

result<std::unique_ptr<host_copies>> host_copies::make(
    std::chrono::milliseconds silence_limit) try {
    result<shm_registrations> table = shm_registrations::make();
    if (!table) return table.why();
    std::unique_ptr<host_copies> made(new host_copies(std::move(*table), silence_limit));
    // Reaching itself needs all that reaching others does.
    const auto itself = made->reach(made->name_);
    if (!itself) return itself.why();
    return made;
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

host_copies::host_copies(shm_registrations table, std::chrono::milliseconds silence_limit)
    : silence_limit_(silence_limit),
      table_(std::move(table)),
      token_(random_nonzero_u64()),
      probe_(token_),
      name_(host_name::wire_bytes),
      slots_(shm_registrations_layout::admitted_count) {
    struct stat facts {};
    (void)::fstat(table_.fd(), &facts);
    host_name own;
    own.pid = static_cast<std::uint64_t>(::getpid());
    own.descriptor = static_cast<std::uint64_t>(table_.fd());
    own.device = facts.st_dev;
    own.inode = facts.st_ino;
    own.probe = probe_.address();
    own.token = token_;
    own.encode(name_.data());
    table_.set_token(token_);
}

result<std::unique_ptr<host_peer>> host_copies::meet(const_bytes name) noexcept try {
    if (name.size() != host_name::wire_bytes) return {errc::invalid, "not a name of this kind"};
    auto made = std::make_unique<host_peer>();
    made->name = host_name::decode(name.data());
    const pid_t pid = made->pid();
    if (pid <= 0 || static_cast<std::uint64_t>(pid) != made->name.pid)
        return {errc::invalid, "not a process"};
    made->process = watch_process(pid);
    if (!made->process) return denied_by_kernel({errc::unsupported, errno});
    const unique_fd fd =
        reopen_shm_memory(pid, made->name.descriptor, made->name.device, made->name.inode,
                          shm_registrations_layout::bytes, /*writable=*/false);
    if (!fd) return denied_by_kernel({errc::unsupported, errno});
    shm_mapping memory =
        shm_mapping::of(fd.get(), 0, shm_registrations_layout::bytes, /*writable=*/false);
    if (!memory) return {errc::no_memory, ""};
    made->table = shm_registrations_view(std::move(memory));
    // Otherwise it is a process of another host or PID namespace.
    if (made->table.token() != made->name.token) return {errc::mismatch, "another process"};
    return made;
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

/// As meet(), for who copies. Only reads, as the name comes from the other end: a port must not be
/// made to write where a peer likes.
result<std::unique_ptr<host_peer>> host_copies::reach(const_bytes name) noexcept {
    result<std::unique_ptr<host_peer>> met = meet(name);
    if (!met) return met;
    const host_peer& peer = *met.value();
    std::uint64_t found = 0;
    const mutable_bytes into = as_writable_bytes_of(found);
    const const_bytes there = foreign_bytes(peer.name.probe, sizeof found);
    cross_place<mutable_bytes> to{{&into, 1}, {}};
    cross_place<const_bytes> from{{&there, 1}, {}};
    const status how = copy_from_process(peer.pid(), to, from, sizeof found);
    if (is_refusal_of_kernel(how)) return denied_by_kernel(how);
    if (!how.ok() || found != peer.name.token) return {errc::mismatch, "another process"};
    return met;
}

one_sided_facts host_copies::one_sided_traits() const noexcept {
    one_sided_facts facts;
    facts.mode = rma_mode::cross_memory;
    facts.registers_memory = false;
    facts.has_region_keys = false;
    facts.is_synchronous = true;
    facts.piece_bytes = copied_at_once;
    return facts;
}

std::string host_copies::explain() const {
    std::string text =
        "to processes of this host are copied directly by the kernel (cross-memory attach), after "
        "a look at the key in memory that the peer shares";
    if (denied_ > 0)
        text += fmt::format(", but to {} of the peers so far they go in packets ({})", denied_,
                            to_string(denied_why_));
    return text;
}

// ---- the target

void host_copies::show(const remote_key& key, scatter segments) noexcept {
    table_.set_incarnation(key.incarnation);
    table_.publish(key, segments);
}

result<std::size_t> host_copies::expose(packet_link& to, const_bytes name, const remote_key&,
                                        scatter, std::size_t,
                                        std::span<std::byte, max_key_bytes> told) noexcept try {
    result<std::unique_ptr<host_peer>> met = meet(name);
    if (!met) {
        ++denied_;
        denied_why_ = met.why().what;
        return met.why();
    }
    sleepers_.reserve(sleepers_.size() + visitors_.size() + 1);  // For left().
    auto& visitor = visitors_[&to];
    if (visitor == nullptr) {
        const auto free = std::find(slots_.begin(), slots_.end(), false);
        if (free == slots_.end()) {
            visitors_.erase(&to);
            return {errc::no_memory, "too many peers"};
        }
        *free = true;
        visitor = std::move(*met);
        visitor->slot = static_cast<std::size_t>(free - slots_.begin());
        table_.admit(visitor->slot, visitor->name.token);
    }
    host_name own = host_name::decode(name_.data());
    own.slot = visitor->slot;
    own.encode(told.data());
    return name_.size();
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

void host_copies::hide(const remote_key& key) noexcept {
    if (!table_.withdraw(key)) return;
    for (const auto& [link, peer] : visitors_)
        wait_until_untouched(*peer, key.region);
    if (sleepers_.empty()) return;
    for (const auto& peer : sleepers_)
        wait_until_untouched(*peer, key.region);
    forget_sleepers();
}

void host_copies::wait_until_untouched(host_peer& peer, std::uint64_t region) noexcept {
    constexpr auto spinning = std::chrono::milliseconds(1);
    const auto one = peer.table.current_touch(token_);
    if (!one.is_of(region)) return;
    const clock::time_point began = clock::steady().now();
    clock::time_point until = began + silence_limit_;
    bool told = false;
    // Its process may have died halfway; its copying has ended by the time it is gone.
    while (peer.table.is_touching(one) && !peer.is_gone()) {
        const clock::time_point now = clock::steady().now();
        if (now >= until) {
            // One that reads looks again whether the region is open before it uses what it read.
            // No correct peer that runs takes so long.
            if (!one.writes() || !is_process_stopped(peer.pid())) return;
            if (!std::exchange(told, true))
                log(log_level::warn, "fabric",
                    "a process was stopped while it wrote to a region; closing that region waits "
                    "until it continues or exits",
                    {{"pid", peer.pid()}});
            until = now + silence_limit_;
        }
        if (now - began < spinning) {
            ::sched_yield();
        } else {
            pollfd end{peer.process.get(), POLLIN, 0};
            ::poll(&end, 1, 1);
        }
    }
}

void host_copies::left(packet_link& link) noexcept {
    const auto at = visitors_.find(&link);
    if (at == visitors_.end()) return;
    // From now on it begins no copy.
    table_.admit(at->second->slot, 0);
    slots_[at->second->slot] = false;
    // Regions that close later must know of a write that has not ended.
    if (at->second->table.current_touch(token_).writes() && !at->second->is_gone())
        sleepers_.push_back(std::move(at->second));  // There is capacity.
    visitors_.erase(at);
    forget_sleepers();
}

void host_copies::forget_sleepers() noexcept {
    std::erase_if(sleepers_, [&](const auto& one) {
        return !one->table.current_touch(token_).writes() || one->is_gone();
    });
    if (sleepers_.size() <= max_sleepers) return;
    // Only a stopped process takes so long over one copy.
    std::erase_if(sleepers_, [](const auto& one) { return !is_process_stopped(one->pid()); });
}

// ---- the initiator

result<void*> host_copies::open_key(packet_link&, const remote_key&, std::size_t, std::uint64_t,
                                    const_bytes told) noexcept {
    result<std::unique_ptr<host_peer>> met = reach(told);
    if (met && met.value()->name.slot < shm_registrations_layout::admitted_count) {
        met.value()->slot = static_cast<std::size_t>(met.value()->name.slot);
        return static_cast<void*>(met.value().release());
    }
    if (met) return {errc::invalid, "not a name of this kind"};
    ++denied_;
    denied_why_ = met.why().what;
    return met.why();
}

void host_copies::close_key(void* key) noexcept {
    delete static_cast<host_peer*>(key);
}

class host_copies::touch {
public:
    touch(shm_registrations& table, std::uint64_t what, std::uint64_t of) noexcept : table_(table) {
        table_.touch(what, of);
    }
    ~touch() { table_.let_go(); }
    touch(const touch&) = delete;

private:
    shm_registrations& table_;
};

posted host_copies::start(packet_link&, one_sided_transfer& what) noexcept {
    what.how = copy(*static_cast<host_peer*>(what.key), what);
    return posted::done;
}

/// Looks the region up; also after a get, as its owner does not wait forever for who reads.
bool host_copies::may_copy(const host_peer& peer, const one_sided_transfer& what,
                           shm_found_region& found) const noexcept {
    found = peer.table.find(*what.region, what.offset, what.bytes,
                            what.is_put ? access::write : access::read);
    return found.what == shm_found_region::kind::open &&
           peer.table.incarnation() == what.region->incarnation;
}

status host_copies::copy(host_peer& peer, one_sided_transfer& what) noexcept {
    const remote_key& key = *what.region;
    if (peer.denied) return {errc::unsupported};
    const touch touching(table_, shm_touched::region(key.region, what.is_put), peer.name.token);
    if (!peer.table.admits(peer.slot, token_)) return {errc::disconnected};
    shm_found_region found;
    // Where it is unknown or refused, the owner tells why.
    if (!may_copy(peer, what, found)) return {errc::unsupported};
    // The id of a process that is gone may have been reused.
    if (what.is_put && peer.is_gone()) return {errc::disconnected};
    cross_place<const_bytes> there{foreign_segments(found.segments, found.segment_count), {}};
    walk(there.segments, there.at, static_cast<std::size_t>(what.offset), [](const_bytes) {});
    status how;
    if (what.is_put) {
        const const_bytes here(what.here, what.bytes);
        cross_place<const_bytes> from{{&here, 1}, {}};
        how = copy_to_process(peer.pid(), from, there, what.bytes);
    } else {
        const mutable_bytes here(what.here, what.bytes);
        cross_place<mutable_bytes> into{{&here, 1}, {}};
        how = copy_from_process(peer.pid(), into, there, what.bytes);
        if (how.ok() && !may_copy(peer, what, found)) return {errc::denied};
        if (how.ok() && (!peer.table.admits(peer.slot, token_) || peer.is_gone()))
            return {errc::disconnected};
    }
    if (is_refusal_of_kernel(how)) {
        peer.denied = true;
        ++denied_;
        denied_why_ = how;
    }
    return how;
}

}  // namespace amalgam::detail

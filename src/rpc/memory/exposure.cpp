#include <atomic>
#include <exception>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/detail/returned_child.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/extension/bound_key.hpp>
#include <amalgam/fabric/extension/port_users.hpp>
#include <amalgam/rpc/extension/exposure.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "rpc/memory/exposure_table.hpp"

namespace amalgam::detail {

namespace {

std::uint64_t length_of(scatter segments) {
    std::uint64_t bytes = 0;
    for (const mutable_bytes& each : segments) {
        if (each.size() > std::numeric_limits<std::uint64_t>::max() - bytes) {
            throw error(errc::invalid,
                        "the segments to expose add up to more than the address space: list each "
                        "byte once");
        }
        bytes += each.size();
    }
    return bytes;
}

/// The port as one that lets in other users' processes; null: it does not.
const port_users* users_at(const port& which) noexcept {
    const auto* const users = cast_if_typed<const port_users>(which);
    return users != nullptr && users->lets_in_others() ? users : nullptr;
}

/// Our own user's processes get the key itself, by which they copy directly. `uid` empty: nobody
/// knows whose process will show the key; then it is for our own user's only.
remote_key key_of_user(const remote_key& key, std::optional<std::uint32_t> uid) {
    const std::uint32_t own = own_process().uid;
    return uid == own ? key : bound_to_user(key, uid.value_or(own));
}

}  // namespace

bool binds_remote_keys(const port& which) noexcept {
    return is_encrypted(which.can().transport) || users_at(which) != nullptr;
}

exposure::exposure(engine_core& core, scatter segments, access rights)
    : table_(exposures_of(core)),
      segments_(segments.begin(), segments.end()),
      close_(&run_close, *this) {
    own_key_.bytes = length_of(segments);
    own_key_.rights = rights;
    table_.context().on_stream([this] { table_.open(*this, nullptr); });
}

exposure::exposure(engine_core& core, scatter segments, access rights, const peer& only)
    : table_(exposures_of(core)),
      segments_(segments.begin(), segments.end()),
      close_(&run_close, *this) {
    own_key_.bytes = length_of(segments);
    own_key_.rights = rights;
    table_.context().on_stream([this, &only] { table_.open(*this, &only); });
}

void exposure::close() noexcept {
    if (!is_open()) return;
    const cancel_later it_must_not_throw;
    try {
        table_.context().on_stream([this] { table_.close(*this); });
    } catch (...) {
        // In virtual time nothing runs meanwhile: waiting would be forever.
        if (table_.context().driven()) return table_.close(*this);
        // The caller cannot park, but must wait: the bytes may be freed next. Unless the engine has
        // ended, which closed it.
        std::atomic<bool> closed{false};
        then_context_ = &closed;
        then_ = [](exposure& mine) noexcept {
            static_cast<std::atomic<bool>*>(mine.then_context_)->store(true);
        };
        if (!table_.context().hand_over(close_)) return;
        while (!closed.load())
            std::this_thread::yield();
    }
}

const remote_key& exposure::key(std::size_t port) const noexcept {
    static const remote_key none;
    if (port == peer::self_port) return own_key_;
    return port < keys_.size() ? keys_[port] : none;
}

void exposure::close(void (*then)(exposure&) noexcept) noexcept {
    then_ = then;
    if (table_.context().on_owner()) return run_close(close_);
    if (!table_.context().hand_over(close_)) then(*this);
}

void exposure::run_close(work_unit& self) noexcept {
    exposure& mine = static_cast<posted_task&>(self).whose;
    mine.table_.close(mine);
    const ends_children of_what_it_held;
    mine.then_(mine);
}

exposure_table::exposure_table(engine_context& context,
                               const std::vector<std::unique_ptr<port>>& ports) noexcept
    : context_(context), ports_(ports), incarnation_(random_nonzero_u64()) {}

remote_key exposure_table::bound_at_port(const peer& holder, std::size_t port,
                                         const remote_key& key) const {
    const bool is_its_peer = port == holder.port();
    const amalgam::port* const where = port < ports_.size() ? ports_[port].get() : nullptr;
    identity who;
    if (!is_its_peer) {
        who = holder.who();
    } else if (where != nullptr) {
        who = where->who(holder.id());
    }
    if (const port_users* const users = where != nullptr ? users_at(*where) : nullptr) {
        std::optional<std::uint32_t> uid;
        if (is_its_peer) {
            uid = users->user_of(holder.id());
        } else if (who.kind == identity_kind::process) {
            uid = who.uid;
        }
        return key_of_user(key, uid);
    }
    if (who.kind == identity_kind::certificate) return bound_to(key, who.key);
    return is_its_peer ? bound_to(key, holder.id()) : bound_to_nobody(key);
}

remote_key exposure_table::key_for(const peer& holder, std::size_t port,
                                   const remote_key& key) const noexcept {
    const cancel_later it_must_not_throw;
    try {
        remote_key bound;
        context_.on_stream([&] { bound = bound_at_port(holder, port, key); });
        return bound;
    } catch (const std::exception&) {
        // Here nobody can ask the stream; what is known without it is the connection.
        return port == holder.port() ? bound_to(key, holder.id()) : bound_to_nobody(key);
    }
}

std::vector<remote_key> exposure_table::keys_at_home(const remote_key& home) const noexcept {
    std::vector<remote_key> keys;
    const cancel_later it_must_not_throw;
    try {
        context_.on_stream([&] {
            const exposure* const mine = find(home, 0, 0, home.rights);
            if (mine != nullptr && !mine->shareable) keys = mine->keys_;
        });
    } catch (const std::exception&) {
        keys.clear();
    }
    return keys;
}

void exposure_table::open(exposure& mine, const peer* only) {
    if (ports_.empty()) throw error(errc::closed, context_.why_closed());
    std::vector<region> regions;
    std::vector<remote_key> keys(ports_.size());
    regions.reserve(ports_.size());
    for (std::size_t i = 0; i < ports_.size(); ++i) {
        if (only != nullptr && only->port() != i) continue;
        result<region> one = ports_[i]->open_region(scatter(mine.segments_), mine.own_key_.rights);
        if (!one) {
            throw error(one.code(), one.sentence().empty()
                                        ? "out of memory while registering the segments with a port"
                                        : one.sentence());
        }
        regions.push_back(std::move(*one));
        keys[i] = regions.back().key();
        if (only != nullptr && binds_keys(context_.core(), i))
            keys[i] = bound_at_port(*only, i, keys[i]);
    }
    const std::uint64_t secret = random_u64();
    registered_.resize(ports_.size());
    by_secret_.emplace(secret, &mine);
    for (std::size_t i = 0; i < ports_.size(); ++i)
        registered_[i] += only == nullptr || only->port() == i ? 1 : 0;
    mine.own_key_.secret = secret;
    mine.own_key_.incarnation = incarnation_;
    mine.keys_ = std::move(keys);
    mine.regions_ = std::move(regions);
    mine.open_.store(true, std::memory_order_release);
}

void exposure_table::close(exposure& mine) noexcept {
    if (!mine.is_open()) return;
    by_secret_.erase(mine.own_key_.secret);
    mine.regions_.clear();
    mine.open_.store(false, std::memory_order_release);
}

registered_memory exposure_table::registered_at(std::size_t port) const noexcept {
    registered_memory all;
    all.so_far = port < registered_.size() ? registered_[port] : 0;
    for (const auto& [secret, each] : by_secret_) {
        if (each->keys_[port] == remote_key{}) continue;
        ++all.regions;
        all.bytes += each->own_key_.bytes;
    }
    return all;
}

void exposure_table::close_all() noexcept {
    while (!by_secret_.empty())
        close(*by_secret_.begin()->second);
}

const exposure* exposure_table::find(const remote_key& key, std::uint64_t offset,
                                     std::uint64_t bytes, access asked) const noexcept {
    const auto at = by_secret_.find(key.secret);
    if (at == by_secret_.end() || !at->second->own_key_.grants(key, offset, bytes, asked))
        return nullptr;
    return at->second;
}

}  // namespace amalgam::detail

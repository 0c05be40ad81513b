#include "rpc/peers/lost_peers.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <netdb.h>

#include <amalgam/core/hash.hpp>

#include "rpc/limits.hpp"

namespace amalgam::detail {

void lost_peers::keep(const peer& gone, lost_peer&& what) noexcept {
    std::deque<peer>& order = what.looked_up ? looked_up_ : came_;
    const std::size_t most = what.looked_up ? limits::max_lost_looked_up : limits::max_lost_came;
    try {
        order.push_back(gone);
        all_.insert_or_assign(gone, std::move(what));
    } catch (const std::bad_alloc&) {
        return;  // Messages then say "a peer that is gone".
    }
    if (order.size() <= most) return;
    all_.erase(order.front());
    order.pop_front();
}

const lost_peer* lost_peers::find(const peer& who) const noexcept {
    const auto at = all_.find(who);
    return at == all_.end() ? nullptr : &at->second;
}

void lost_peers::give_up(const peer& gone) noexcept {
    const std::uint64_t mark = mark_of(gone);
    marks_[mark % marks_.size()].store(mark, std::memory_order_relaxed);
}

void lost_peers::forget(const peer& back) noexcept {
    const std::uint64_t mark = mark_of(back);
    std::atomic<std::uint64_t>& mine = marks_[mark % marks_.size()];
    if (mine.load(std::memory_order_relaxed) == mark) mine.store(0, std::memory_order_relaxed);
    all_.erase(back);
}

/// Unique per port: mix() is a bijection.
std::uint64_t lost_peers::mark_of(const peer& who) noexcept {
    return mix(who.id().value) + who.port();
}

std::string_view reason_of(status why, std::string_view transport) noexcept {
    if (why.native > 0) {
        const char* const text = ::strerrordesc_np(why.native);
        return text != nullptr ? text : std::string_view();
    }
    // Negative codes come from the name resolver.
    if (why.native < 0 && transport.starts_with("tcp")) return ::gai_strerror(why.native);
    return {};
}

}  // namespace amalgam::detail

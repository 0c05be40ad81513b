#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/extension/loans.hpp>
#include <amalgam/rpc/extension/origin.hpp>

#include "bulk/bulk_source.hpp"

// Descriptors and their wire format.

namespace amalgam {
namespace detail {

namespace {

/// Copies a range of a segment list.
void copy_range(const std::vector<mutable_bytes>& list, std::uint64_t offset, mutable_bytes into) {
    for (const mutable_bytes& each : list) {
        if (into.empty()) return;
        if (offset >= each.size()) {
            offset -= each.size();
            continue;
        }
        const auto within = static_cast<std::size_t>(offset);
        const std::size_t take = std::min(into.size(), each.size() - within);
        std::memcpy(into.data(), each.data() + within, take);
        into = into.subspan(take);
        offset = 0;
    }
}

/// Makes the keys of ways to our own memory those of `between->there`, who cannot pass them on.
std::vector<bulk_way> bound_ways(std::vector<bulk_way> ways, engine_core& core,
                                 const origin* between) {
    const peer holder = between != nullptr && between->here == &core ? between->there : peer();
    if (holder.is_self()) return ways;
    for (std::size_t i = 0; i < ways.size(); ++i)
        if (binds_keys(core, i)) ways[i].key = key_for(core, holder, i, ways[i].key);
    return ways;
}

/// The same for memory whose descriptor has come back: its keys may be those of who had it.
std::vector<bulk_way> bound_again(const bulk_source& source, const origin* between) {
    const std::vector<remote_key> keys = keys_at_home(*source.core, source.home);
    std::vector<bulk_way> ways = source.ways;
    if (keys.size() != ways.size()) return ways;
    for (std::size_t i = 0; i < ways.size(); ++i)
        ways[i].key = keys[i];
    return bound_ways(std::move(ways), *source.core, between);
}

bool binds_any_keys(engine_core& core) noexcept {
    for (std::size_t i = 0; i < port_count(core); ++i)
        if (binds_keys(core, i)) return true;
    return false;
}

}  // namespace

result<bulk_route> route_of(const bulk_source& source) {
    if (source.core == nullptr) {
        return {errc::invalid,
                "the descriptor was read from an archive without an engine; send it as an argument "
                "or result of a procedure"};
    }
    if (source.home.incarnation == home_of(*source.core)) {
        return bulk_route{self_of(*source.core), source.home};
    }
    const bool from_owner = source.direct != bulk_image::no_way;
    const auto direct = [&] { return bulk_route{source.sender, source.ways[source.direct].key}; };
    if (from_owner && !is_lost(*source.core, source.sender)) return direct();
    std::string tried;
    for (const bulk_way& each : source.ways) {
        if (each.address.empty()) continue;
        result<peer> there = find_peer(*source.core, each.address);
        if (there) return bulk_route{*there, each.key};
        tried += tried.empty() ? "" : "; ";
        tried += there.sentence();
    }
    if (from_owner) return direct();
    return {errc::unreachable, fmt::format("cannot reach the process that exposed the memory: {}",
                                           tried.empty() ? "it does not listen" : tried)};
}

}  // namespace detail

using detail::bulk_image;
using detail::bulk_kind;
using detail::bulk_source;

access bulk::rights() const noexcept {
    return source_ == nullptr ? access::read : source_->rights;
}

bool bulk::is_inside() const noexcept {
    return source_ != nullptr && source_->what == bulk_source::kind::inside;
}

mutable_bytes bulk::local() const noexcept {
    if (source_ == nullptr || source_->what != bulk_source::kind::own ||
        !source_->memory->is_open())
        return {};
    const auto& list = source_->memory->segments();
    if (list.size() != 1) return {};
    return list.front().subspan(static_cast<std::size_t>(offset_),
                                static_cast<std::size_t>(bytes_));
}

peer bulk::from() const {
    if (source_ == nullptr) return {};
    if (source_->what == bulk_source::kind::inside) return source_->sender;
    const result<detail::bulk_route> way = detail::route_of(*source_);
    return way ? way->there : peer();
}

bulk bulk::part(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > bytes_ || bytes > bytes_ - offset) {
        throw error(
            errc::invalid,
            fmt::format("a part of {} bytes at offset {} is out of range for a bulk of {} bytes",
                        bytes, offset, bytes_));
    }
    return {source_, offset_ + offset, bytes};
}

std::size_t bulk::elements(std::size_t bytes_each) const {
    if (bytes_ % bytes_each != 0) {
        throw error(errc::invalid,
                    fmt::format("the size of a bulk, {} bytes, is not a multiple of the element "
                                "size, {} bytes; pull it as the type that was exposed",
                                bytes_, bytes_each));
    }
    return static_cast<std::size_t>(bytes_ / bytes_each);
}

bulk_image bulk::to_send(const detail::origin* between) const {
    bulk_image image;
    if (source_ == nullptr) return image;
    image.rights = source_->rights;
    image.bytes = bytes_;
    if (source_->what == bulk_source::kind::inside) {
        image.kind = bulk_kind::inside;
        const auto from = source_->content.begin() + static_cast<std::ptrdiff_t>(offset_);
        image.content.assign(from, from + static_cast<std::ptrdiff_t>(bytes_));
        return image;
    }
    const bool own = source_->what == bulk_source::kind::own;
    if (own && !source_->memory->is_open()) {
        throw error(
            errc::invalid,
            "the memory is no longer exposed, so its descriptor cannot be sent: keep the object "
            "returned by expose() alive until the peer is done, or use expose_owned()");
    }
    if (own && image.rights == access::read && bytes_ <= bulk_image::inside_bytes) {
        image.kind = bulk_kind::inside;
        image.content.resize(static_cast<std::size_t>(bytes_));
        detail::copy_range(source_->memory->segments(), offset_, image.content);
        return image;
    }
    const bool served = source_->what == bulk_source::kind::served;
    const bool at_home = own || (source_->core != nullptr &&
                                 source_->home.incarnation == detail::home_of(*source_->core));
    image.kind = served ? bulk_kind::served : bulk_kind::elsewhere;
    image.offset = offset_;
    image.home = source_->home;
    image.ways = source_->all_ways();
    if (own && source_->memory->binds_keys) [[unlikely]] {
        image.bound_ways = detail::bound_ways(source_->memory->ways, *source_->core, between);
        image.ways = image.bound_ways;
    } else if (at_home && !own && !served && detail::binds_any_keys(*source_->core)) {
        image.bound_ways = detail::bound_again(*source_, between);
        image.ways = image.bound_ways;
    }
    if (at_home && between != nullptr && between->here == source_->core && between->there &&
        !between->there.is_self()) {
        image.direct = static_cast<std::uint16_t>(between->there.port());
    }
    const bool back_home = !at_home && between != nullptr && between->there == source_->sender;
    const bool can_be_found = std::any_of(image.ways.begin(), image.ways.end(),
                                          [](const auto& way) { return !way.address.empty(); });
    if (!at_home && !back_home && !can_be_found) {
        throw error(
            errc::invalid,
            "the descriptor cannot be forwarded, as the engine that exposed the memory does not "
            "listen; give that engine a URI that listens; example: tcp://127.0.0.1:0");
    }
    if (source_->is_owned()) {
        image.loan = detail::lend(between, std::const_pointer_cast<bulk_source>(source_), 0);
    }
    return image;
}

const char* bulk::receive(detail::received_bulk& image, const detail::origin* between, bulk& into) {
    into = bulk();
    if (image.kind == bulk_kind::nothing) return nullptr;
    if (!detail::is_right(image.rights)) return "a bulk descriptor has invalid access rights";
    auto source = std::make_shared<bulk_source>();
    source->rights = image.rights;
    source->direct = bulk_image::no_way;
    if (between != nullptr && between->here != nullptr) {
        source->core = between->here;
        source->alive.emplace(*between->here);
        source->sender = between->there;
    }
    if (image.kind == bulk_kind::inside) {
        source->what = bulk_source::kind::inside;
        source->content = std::move(image.content);
        const std::uint64_t bytes = source->content.size();
        into = bulk(std::move(source), 0, bytes);
        return nullptr;
    }
    if (!detail::has_paths(image.kind)) return "a bulk descriptor is of an unknown kind";
    if (image.kind == bulk_kind::served) source->what = bulk_source::kind::served;
    const std::uint64_t all = image.home.bytes;
    if (image.offset > all || image.bytes > all - image.offset) {
        return "a bulk descriptor's range exceeds its memory";
    }
    if (image.direct != bulk_image::no_way && image.direct >= image.own_ways.size()) {
        return "a bulk descriptor's direct path is not in its list of paths";
    }
    for (detail::bulk_way& each : image.own_ways) {
        if (each.address.size() > bulk_image::max_address_bytes) {
            return "a bulk descriptor's address is too long";
        }
        each.key.bytes = all;
        each.key.rights = image.rights;
    }
    source->home = image.home;
    source->home.rights = image.rights;
    if (source->sender) source->direct = image.direct;
    source->ways = std::move(image.own_ways);
    if (image.loan != 0) {
        if (source->core == nullptr || !detail::take_loan(between, image.loan)) {
            return "a bulk descriptor refers to borrowed memory that its message does not lend";
        }
        source->loan.take(*source->core, source->sender, image.loan);
    }
    into = bulk(std::move(source), image.offset, image.bytes);
    return nullptr;
}

}  // namespace amalgam

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/extension/multipath_transfer.hpp>
#include <amalgam/rpc/extension/transfer.hpp>
#include <amalgam/tasks/ult.hpp>

#include "bulk/bulk_source.hpp"
#include "bulk/progress.hpp"
#include "bulk/served_memory.hpp"

// Pull and push.

namespace amalgam {
namespace detail {

namespace {

/// One pull or push in flight: a future_transfer or a multipath_transfer.
template <typename Transfer>
class bulk_transfer final : public Transfer {
public:
    template <typename Target>
    bulk_transfer(const Target& target, std::shared_ptr<const bulk_source> source,
                  const bulk_options& how)
        : Transfer(target), source_(std::move(source)), on_progress_(how.on_progress) {}

private:
    failure progressed() noexcept override { return try_tell(on_progress_, this->moved()); }
    /// Waits for the end after canceling: the local bytes may be freed next.
    bool abandoned() noexcept override {
        if (!Transfer::abandoned()) return false;
        if (this->ready()) return true;
        const cancel_later it_must_not_throw;
        try {
            check_may_wait(*this->core_);
            this->wait();
        } catch (...) {
            // A tasklet cannot wait, either.
        }
        return true;
    }

    std::shared_ptr<const bulk_source> source_;  // Keeps borrowed memory until the end.
    std::function<void(std::uint64_t)> on_progress_;
};

future<void> over_already(failure why) {
    promise<void> told;
    future<void> later = told.get_future();
    if (why.what.ok()) {
        told.set_value();
    } else {
        told.set_failure(std::move(why));
    }
    return later;
}

/// Why bytes cannot move between this range of a bulk and local memory; ok if they can.
failure refusal(const char* verb, const amalgam::bulk& what, access asked, std::uint64_t offset,
                std::uint64_t bytes) {
    if (!what && bytes != 0) {
        return {{errc::invalid},
                fmt::format("{} of {} bytes: the bulk is empty; get one from expose() or from a "
                            "call's arguments",
                            verb, bytes)};
    }
    if (offset > what.bytes() || bytes > what.bytes() - offset) {
        return {{errc::invalid},
                fmt::format("{} of {} bytes at offset {}: out of range, as the bulk has {} bytes",
                            verb, bytes, offset, what.bytes())};
    }
    if (!allows(what.rights(), asked)) {
        return {{errc::denied},
                fmt::format(
                    "{} of {} bytes: the memory is exposed for {} only; expose it with access::{}",
                    verb, bytes, asked == access::write ? "reading" : "writing",
                    asked == access::write ? "write" : "read")};
    }
    return {};
}

/// Where the range is, as seen from here.
result<transfer_target> target_of(const bulk_source& source, std::uint64_t offset,
                                  const bulk_options& how) {
    result<bulk_route> way = route_of(source);
    if (!way) return way.why();
    return transfer_target{.core = source.core,
                           .there = way->there,
                           .key = way->key,
                           .offset = offset,
                           .timeout = how.within,
                           .piece_bytes = how.chunk_bytes};
}

/// Starts a transfer whose local bytes `lend(transfer)` has set.
template <typename Lend>
future<void> start(const std::shared_ptr<const bulk_source>& source, const transfer_target& target,
                   const bulk_options& how, Lend lend) {
    if (target.there.is_self() || !knows_routes(*source->core)) {
        auto one = std::make_unique<bulk_transfer<future_transfer>>(target, source, how);
        lend(*one);
        return one.release()->launch();
    }
    routed_target by_any{.first = target, .home = source->home.incarnation, .striped = how.striped};
    for (const bulk_way& each : source->all_ways())
        by_any.keys.push_back(each.key);
    auto one = std::make_unique<bulk_transfer<multipath_transfer>>(by_any, source, how);
    lend(*one);
    return one.release()->launch();
}

/// Throws if the caller would wait forever for this source.
void check_may_wait_for(const bulk_source* source) {
    const bool asks = source != nullptr && source->what != bulk_source::kind::inside;
    if (asks && source->core != nullptr) check_may_wait(*source->core);
}

}  // namespace
}  // namespace detail

using detail::bulk_source;

future<void> bulk::start_pull(std::uint64_t offset, const segments& into,
                              const bulk_options& how) const {
    const std::uint64_t bytes = into.bytes();
    failure why = detail::refusal("pull", *this, access::read, offset, bytes);
    if (!why.what.ok() || bytes == 0) return detail::over_already(std::move(why));
    if (source_->what == bulk_source::kind::inside) {
        const std::byte* at = source_->content.data() + offset_ + offset;
        for (const mutable_bytes& each : into.list()) {
            if (!each.empty()) std::memcpy(each.data(), at, each.size());
            at += each.size();
        }
        return detail::over_already(detail::try_tell(how.on_progress, bytes));
    }
    if (source_->what == bulk_source::kind::served)
        return detail::start_served_pull(source_, offset_ + offset, into.list(), how);
    const auto target = detail::target_of(*source_, offset_ + offset, how);
    if (!target) return detail::over_already(target.why());
    return detail::start(source_, *target, how, [&](auto& one) { one.get_copy(into.list()); });
}

future<void> bulk::start_push(std::uint64_t offset, const const_segments& from,
                              const bulk_options& how) const {
    const std::uint64_t bytes = from.bytes();
    failure why = detail::refusal("push", *this, access::write, offset, bytes);
    if (!why.what.ok() || bytes == 0) return detail::over_already(std::move(why));
    if (source_->what == bulk_source::kind::served)
        return detail::start_served_push(source_, offset_ + offset, from.list(), how);
    const auto target = detail::target_of(*source_, offset_ + offset, how);
    if (!target) return detail::over_already(target.why());
    return detail::start(source_, *target, how, [&](auto& one) { one.put_copy(from.list()); });
}

void bulk::check_may_wait() const {
    detail::check_may_wait_for(source_.get());
}

void bulk::pull(std::uint64_t offset, const segments& into, const bulk_options& how) const {
    check_may_wait();
    start_pull(offset, into, how).get();
}

void bulk::push(std::uint64_t offset, const const_segments& from, const bulk_options& how) const {
    check_may_wait();
    start_push(offset, from, how).get();
}

result<void> bulk::try_pull(std::uint64_t offset, const segments& into,
                            const bulk_options& how) const {
    try {
        pull(offset, into, how);
        return {};
    } catch (const error& why) {
        return failure{why.code(), why.what()};
    } catch (const std::bad_alloc&) {
        return failure{{errc::no_memory}, {}};
    }
}

result<void> bulk::try_push(std::uint64_t offset, const const_segments& from,
                            const bulk_options& how) const {
    try {
        push(offset, from, how);
        return {};
    } catch (const error& why) {
        return failure{why.code(), why.what()};
    } catch (const std::bad_alloc&) {
        return failure{{errc::no_memory}, {}};
    }
}

}  // namespace amalgam

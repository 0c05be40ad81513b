#include <algorithm>
#include <atomic>
#include <string>

#include <fmt/format.h>

#include <amalgam/bulk/remote_copy.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "bulk/progress.hpp"

namespace amalgam {
namespace detail {

/// What the handlers of a copy_service share; it may be gone before the last of them ends.
struct copies {
    explicit copies(const copy_service_options& options) : how(options) {}

    const copy_service_options how;
    std::atomic<std::size_t> running{0};
};

}  // namespace detail

namespace {

using detail::copies;

constexpr std::string_view copy_name = "amalgam.bulk.copy";
/// Answers with the bytes that are in place, as they grow, if `tells`.
using copy_signature = streamed<std::uint64_t>(bulk from, bulk to, bool tells);

void check_buffers(std::size_t chunk_bytes, std::size_t depth) {
    if (chunk_bytes != 0 && depth != 0) return;
    throw error(errc::invalid,
                fmt::format("the chunk and depth of a copy are {} and {}, expected at least 1; "
                            "example: .chunk_bytes = 1 << 20, .depth = 4",
                            chunk_bytes, depth));
}

void check_sizes(const bulk& from, const bulk& to) {
    if (!from || !to) {
        throw error(errc::invalid,
                    fmt::format("the {} of a copy is an empty descriptor, expected memory that "
                                "somebody exposed; see expose()",
                                from ? "target" : "source"));
    }
    if (from.bytes() == to.bytes()) return;
    throw error(errc::invalid, fmt::format("a copy from {} bytes to {}, expected the same number; "
                                           "bulk::part() makes a part of either",
                                           from.bytes(), to.bytes()));
}

/// One of the copies at once, while it lives.
class place {
public:
    explicit place(copies& all) : all_(all) {
        if (all_.running.fetch_add(1, std::memory_order_relaxed) < all_.how.max_copies) return;
        all_.running.fetch_sub(1, std::memory_order_relaxed);
        throw error(errc::overloaded,
                    fmt::format("{} copies run here already, which is the most; see "
                                "copy_service_options::max_copies",
                                all_.how.max_copies));
    }
    ~place() { all_.running.fetch_sub(1, std::memory_order_relaxed); }
    place(const place&) = delete;
    place& operator=(const place&) = delete;

private:
    copies& all_;
};

/// Each chunk is pushed while the next ones are pulled. `told(bytes)`: so many are in place.
template <typename Told>
void move_bytes(const bulk& from, const bulk& to, std::size_t chunk_bytes, std::size_t depth,
                std::chrono::nanoseconds within, Told told) {
    const auto push = [&](const_bytes chunk, std::uint64_t offset) {
        to.push(offset, chunk, {.within = within});
        told(offset + chunk.size());
    };
    from.pull_pipelined(chunk_bytes, depth, push, {.within = within});
}

void serve(copies& all, const bulk& from, const bulk& to, bool tells,
           stream_writer<std::uint64_t>& out) {
    check_sizes(from, to);
    if (!to.from().is_self() && !from.from().is_self()) {
        throw error(errc::invalid,
                    "neither memory of the copy is exposed by this engine; ask the owner of one");
    }
    const place mine(all);
    move_bytes(from, to, all.how.chunk_bytes, all.how.depth, std::chrono::nanoseconds::max(),
               [&](std::uint64_t bytes) {
                   if (tells) out(bytes);
               });
}

/// Whether the copy may work in another way.
bool is_worth_another_way(errc why) noexcept {
    return why == errc::not_found || why == errc::overloaded || why == errc::unreachable ||
           why == errc::unsupported ||
           // An owner of another version has another signature of the service.
           why == errc::mismatch ||
           // Over tcp+tls, what was sent to us works for us only.
           why == errc::denied;
}

}  // namespace

copy_service::copy_service(engine& where, const copy_service_options& options)
    : where_(where), copies_(std::make_shared<detail::copies>(options)) {
    check_buffers(options.chunk_bytes, options.depth);
    if (options.max_copies == 0) {
        throw error(errc::invalid,
                    "copy_service_options::max_copies is 0, expected at least 1; example: 16");
    }
    detail::define_first(where.core(), copy_name, "a copy_service", [&] {
        where.define(detail::library_name{copy_name},
                     [all = copies_](stream_writer<std::uint64_t>& out, bulk from, bulk to,
                                     bool tells) { serve(*all, from, to, tells, out); });
    });
}

copy_service::~copy_service() {
    const detail::served_name own{copy_name};
    detail::end_serving(where_.core(), {&own, 1});
}

copied_by copy(engine& asks, const bulk& from, const bulk& to, const copy_options& how) {
    check_sizes(from, to);
    check_buffers(how.chunk_bytes, how.depth);
    const clock::time_point begin = asks.now();
    const auto left = [&] {
        if (how.within == std::chrono::nanoseconds::max()) return how.within;
        return std::max(how.within - (asks.now() - begin), std::chrono::nanoseconds::zero());
    };
    const auto call = asks.procedure<copy_signature>(copy_name);
    const auto is_done_by = [&](const peer& owner) {
        if (!owner) return false;
        failure untold;
        try {
            auto moved = call.on(owner).within(left())(from, to, how.on_progress != nullptr);
            while (const auto bytes = moved.next()) {
                untold = detail::try_tell(how.on_progress, *bytes);
                if (!untold.what.ok()) break;  // To leave the stream ends the copy there.
            }
        } catch (const error& failed) {
            const status why = failed.code();
            const errc code = why == errc::handler_failed ? why.handler_code() : why.code;
            if (is_worth_another_way(code)) return false;
            throw error(code, failed.what());
        }
        if (!untold.what.ok()) throw error(untold.what, untold.sentence);
        return true;
    };
    const peer target = to.from(), source = from.from();
    if (!target.is_self() && !source.is_self() && !from.is_inside()) {
        if (is_done_by(target)) return copied_by::target;
        if (is_done_by(source)) return copied_by::source;
    }
    move_bytes(from, to, how.chunk_bytes, how.depth, left(),
               [&](std::uint64_t bytes) { detail::tell(how.on_progress, bytes); });
    return copied_by::here;
}

future<copied_by> start_copy(engine& asks, const bulk& from, const bulk& to,
                             const copy_options& how) {
    return asks.spawn([&asks, from, to, how] { return copy(asks, from, to, how); });
}

}  // namespace amalgam

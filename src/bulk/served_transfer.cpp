#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/rpc/procedure.hpp>
#include <amalgam/tasks/coroutine.hpp>

#include "bulk/progress.hpp"
#include "bulk/served_memory.hpp"

// A transfer of served memory, as its caller sees it: a few calls in flight.

namespace amalgam::detail {

namespace {

constexpr std::size_t pieces_in_flight = 4;

/// Where a transfer gets its options, and its local bytes, which are the caller's again once its
/// future is ready or abandoned.
class local_side {
public:
    local_side(std::shared_ptr<const bulk_source> source, peer there, std::uint64_t offset,
               std::vector<mutable_bytes> list, const bulk_options& how)
        : source_(std::move(source)),
          offset_(offset),
          list_(std::move(list)),
          bytes_(bytes_of_all(std::span<const mutable_bytes>(list_))),
          on_progress_(how.on_progress),
          piece_bytes_(how.chunk_bytes == 0 ? served_piece_bytes
                                            : std::min(how.chunk_bytes, served_piece_bytes)),
          begin_(now_of(*source_->core)),
          within_(how.within),
          there_(std::move(there)) {}

    engine_core& core() const noexcept { return *source_->core; }
    const peer& there() const noexcept { return there_; }
    std::uint64_t secret() const noexcept { return source_->home.secret; }
    std::uint64_t bytes() const noexcept { return bytes_; }
    std::uint64_t far_offset(std::uint64_t at) const noexcept { return offset_ + at; }
    std::size_t piece_at(std::uint64_t at) const noexcept {
        return static_cast<std::size_t>(std::min<std::uint64_t>(piece_bytes_, bytes() - at));
    }
    std::chrono::nanoseconds left() const noexcept {
        if (within_ == std::chrono::nanoseconds::max()) return within_;
        return std::max(within_ - (now_of(core()) - begin_), std::chrono::nanoseconds::zero());
    }

    /// Throws error{canceled} if the bytes are the caller's again.
    void store(std::uint64_t at, const_bytes piece) {
        const std::lock_guard hold(lock_);
        each_part(at, piece.size(), [&](mutable_bytes part) {
            std::memcpy(part.data(), piece.data(), part.size());
            piece = piece.subspan(part.size());
        });
    }
    std::vector<std::byte> load(std::uint64_t at, std::size_t bytes) {
        std::vector<std::byte> piece;
        piece.reserve(bytes);
        const std::lock_guard hold(lock_);
        each_part(at, bytes,
                  [&](mutable_bytes part) { piece.insert(piece.end(), part.begin(), part.end()); });
        return piece;
    }
    void give_back() noexcept {
        const std::lock_guard hold(lock_);
        is_given_back_ = true;
    }
    void progressed(std::uint64_t done) const { tell(on_progress_, done); }

private:
    template <typename Take>
    void each_part(std::uint64_t at, std::size_t bytes, Take take) {
        if (is_given_back_) throw error(errc::canceled, "the transfer was canceled");
        for (const mutable_bytes& segment : list_) {
            if (bytes == 0) return;
            if (at >= segment.size()) {
                at -= segment.size();
                continue;
            }
            const auto first = static_cast<std::size_t>(at);
            const std::size_t count = std::min(bytes, segment.size() - first);
            take(segment.subspan(first, count));
            bytes -= count;
            at = 0;
        }
    }

    const std::shared_ptr<const bulk_source> source_;
    const std::uint64_t offset_;
    const std::vector<mutable_bytes> list_;
    const std::uint64_t bytes_;
    const std::function<void(std::uint64_t)> on_progress_;
    const std::size_t piece_bytes_;
    const clock::time_point begin_;
    const std::chrono::nanoseconds within_;
    const peer there_;
    std::mutex lock_;
    bool is_given_back_ = false;
};

using shared_side = std::shared_ptr<local_side>;

/// The owner's own code, not that of a handler.
[[noreturn]] void rethrow(const error& why) {
    const errc of_handler = why.handler_code();
    if (why.code() == errc::not_found) {  // Its memory_server has ended.
        throw error(errc::denied, "the memory is no longer served; request a new descriptor");
    }
    throw error(of_handler == errc::ok ? why.code() : status{of_handler}, why.what());
}

task<void> pull_pieces(shared_side mine) {
    const procedure<read_served> read(
        mine->core(), intern(mine->core(), read_served_name, signature_text<read_served>()), false);
    std::deque<future<std::vector<std::byte>>> flying;
    std::uint64_t asked = 0, done = 0;
    while (done < mine->bytes()) {
        for (; asked < mine->bytes() && flying.size() < pieces_in_flight;
             asked += mine->piece_at(asked)) {
            flying.push_back(read.on(mine->there())
                                 .within(mine->left())
                                 .start(mine->secret(), mine->far_offset(asked),
                                        static_cast<std::uint32_t>(mine->piece_at(asked))));
        }
        try {
            const auto piece = co_await std::move(flying.front());
            if (piece.size() != mine->piece_at(done)) {
                throw error(errc::corrupt, fmt::format("the owner sent {} bytes, expected {}",
                                                       piece.size(), mine->piece_at(done)));
            }
            mine->store(done, piece);
        } catch (const error& why) {
            rethrow(why);
        }
        flying.pop_front();
        done += mine->piece_at(done);
        mine->progressed(done);
    }
}

task<void> push_pieces(shared_side mine) {
    const procedure<write_served> write(
        mine->core(), intern(mine->core(), write_served_name, signature_text<write_served>()),
        false);
    std::deque<future<void>> flying;
    std::uint64_t sent = 0, done = 0;
    while (done < mine->bytes()) {
        for (; sent < mine->bytes() && flying.size() < pieces_in_flight;
             sent += mine->piece_at(sent)) {
            flying.push_back(write.on(mine->there())
                                 .within(mine->left())
                                 .start(mine->secret(), mine->far_offset(sent),
                                        mine->load(sent, mine->piece_at(sent))));
        }
        try {
            co_await std::move(flying.front());
        } catch (const error& why) {
            rethrow(why);
        }
        flying.pop_front();
        done += mine->piece_at(done);
        mine->progressed(done);
    }
}

/// The future of a transfer. Abandoned, it gives the local bytes back.
struct outcome {
    promise<void> told;
    shared_side side;
};

task<void> tell(std::unique_ptr<outcome> whom, task<void> work) {
    try {
        co_await std::move(work);
    } catch (const error& why) {
        whom->told.set_failure({why.code(), why.what()});
        co_return;
    } catch (...) {
        whom->told.set_exception(std::current_exception());
        co_return;
    }
    whom->told.set_value();
}

/// What moves the pieces of a transfer.
using mover = task<void> (*)(shared_side mine);

future<void> start(shared_side mine, mover move) {
    auto whom = std::make_unique<outcome>();
    whom->side = mine;
    whom->told.on_abandon([](void* side) noexcept { static_cast<local_side*>(side)->give_back(); },
                          mine.get());
    future<void> later = whom->told.get_future();
    engine_core& core = mine->core();
    try {
        (void)spawn_coroutine(pool_of(core), tell(std::move(whom), move(std::move(mine))));
    } catch (const error&) {
        check_runs(core);  // The engine has stopped, and so have its streams.
        throw;
    }
    return later;
}

future<void> start(const std::shared_ptr<const bulk_source>& source, std::uint64_t offset,
                   std::vector<mutable_bytes> list, const bulk_options& how, mover move) {
    failure why;
    try {
        result<bulk_route> way = route_of(*source);
        if (way)
            return start(
                std::make_shared<local_side>(source, way->there, offset, std::move(list), how),
                move);
        why = way.why();
    } catch (const error& stopped) {
        if (stopped.code() != errc::closed) throw;
        why = {stopped.code(), stopped.what()};
    }
    promise<void> told;
    future<void> later = told.get_future();
    told.set_failure(std::move(why));
    return later;
}

}  // namespace

std::shared_ptr<bulk_source> served_source(engine_core& core, std::uint64_t secret,
                                           std::uint64_t bytes, access rights) {
    auto source = std::make_shared<bulk_source>();
    source->what = bulk_source::kind::served;
    source->rights = rights;
    source->core = &core;
    source->alive.emplace(core);
    source->direct = bulk_image::no_way;
    source->home.bytes = bytes;
    source->home.secret = secret;
    source->home.incarnation = home_of(core);
    source->home.rights = rights;
    for (std::size_t i = 0; i < port_count(core); ++i)
        source->ways.push_back({source->home, port_address(core, i)});
    return source;
}

future<void> start_served_pull(const std::shared_ptr<const bulk_source>& source,
                               std::uint64_t offset, scatter into, const bulk_options& how) {
    return start(source, offset, {into.begin(), into.end()}, how, pull_pieces);
}

future<void> start_served_push(const std::shared_ptr<const bulk_source>& source,
                               std::uint64_t offset, gather from, const bulk_options& how) {
    std::vector<mutable_bytes> list;
    for (const const_bytes& each : from)  // Only read: see load().
        list.emplace_back(const_cast<std::byte*>(each.data()), each.size());
    return start(source, offset, std::move(list), how, push_pieces);
}

}  // namespace amalgam::detail

#include "rpc/context/streams.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>

#include "rpc/context/options_check.hpp"

namespace amalgam::detail {

namespace {

std::unique_ptr<pool> make_pool(pool_kind kind, unsigned levels) {
    switch (kind) {
        case pool_kind::fifo:
            return std::make_unique<fifo_pool>();
        case pool_kind::shared_fifo:
            return std::make_unique<shared_fifo_pool>();
        case pool_kind::lifo:
            return std::make_unique<lifo_pool>();
        case pool_kind::priority:
            return std::make_unique<priority_pool>(levels);
        case pool_kind::work_stealing:
            return std::make_unique<work_stealing_pool>();
    }
    throw error(errc::invalid, "invalid pool_kind; example: pool_kind::fifo");
}

std::unique_ptr<scheduler> make_scheduler(scheduler_kind kind, std::vector<pool*> pools) {
    switch (kind) {
        case scheduler_kind::in_turn:
            return std::make_unique<basic_scheduler>(std::move(pools));
        case scheduler_kind::priority:
            return std::make_unique<priority_scheduler>(std::move(pools));
        case scheduler_kind::work_stealing:
            return std::make_unique<work_stealing_scheduler>(std::move(pools));
    }
    throw error(errc::invalid, "invalid scheduler_kind; example: scheduler_kind::in_turn");
}

}  // namespace

stream_group::stream_group(std::string_view name, unsigned streams, std::chrono::nanoseconds spin)
    : stream_group(
          pool_options{.name = {}, .kind = streams == 1 ? pool_kind::fifo : pool_kind::shared_fifo},
          streams, spin, name) {}

stream_group::stream_group(const pool_options& how, unsigned streams, std::chrono::nanoseconds spin,
                           std::string_view stream_name)
    : how_(how), pool_(make_pool(how.kind, how.levels)) {
    for (unsigned i = 0; i < streams; ++i) {
        execution_stream_options one;
        one.name = stream_name;
        one.spin = spin;
        streams_.push_back({std::make_unique<execution_stream>(
            make_scheduler(scheduler_kind::in_turn, {pool_.get()}), one)});
    }
}

void stream_group::stop() {
    for (const auto& each : streams_)
        each.what->stop_within(engine_streams::time_to_stop);
}

void added_stream::stop() {
    what->stop_within(engine_streams::time_to_stop);
}

bool stream_group::has(const execution_stream* what) const noexcept {
    return std::any_of(streams_.begin(), streams_.end(),
                       [what](const auto& each) { return each.what.get() == what; });
}

void engine_streams::start(engine_options& options, const clock* driven_by) {
    options_ = &options;
    driven_by_ = driven_by;
    by_caller_ = options.progress.by == progress_by::caller;
    fill_in(options);
    check(options);
    if (driven_by_ != nullptr &&
        (options.streams.each.size() > 1 || options.progress.by != progress_by::shared)) {
        throw error(
            errc::invalid,
            fmt::format(
                "an engine in virtual time cannot have {} streams, expected one, which also makes "
                "progress: everything runs inside loop_network::run_until_idle()",
                options.streams.each.size()));
    }
    for (const pool_options& each : options.pools)
        pools_.push_back({each.name, make_pool(each.kind, each.levels)});
    for (const stream_options& each : options.streams.each) {
        streams_.push_back(make_stream(each, streams_.empty()));
        first_ = streams_.front().get();
    }
    removed_.resize(streams_.size());
    handlers_.store(&handlers_by(options.progress.by), std::memory_order_release);
}

std::unique_ptr<execution_stream> engine_streams::make_stream(const stream_options& from,
                                                              bool is_first) {
    execution_stream_options how;
    how.name = from.name;
    how.cpu = from.cpu;
    how.cpus = from.cpus;
    how.spin = options_->spin;
    if (is_first) {
        how.spin = options_->progress.spin.value_or(options_->spin);
        how.driven = by_caller_ || driven_by_ != nullptr;
        how.wakeable = by_caller_;
        how.clock = driven_by_;
        if (how.driven) {  // the thread that drives it is not ours to bind
            how.cpu = -1;
            how.cpus = {};
        }
    }
    if (from.pools.empty()) return std::make_unique<execution_stream>(how);
    std::vector<pool*> pools;
    if (is_first) {
        private_ = std::make_unique<fifo_pool>();
        pools.push_back(private_.get());
    }
    for (const std::string& name : from.pools)
        pools.push_back(look_up(name));
    return std::make_unique<execution_stream>(make_scheduler(from.scheduler, std::move(pools)),
                                              how);
}

void engine_streams::stop() {
    for (const auto& each : streams_)
        each->stop_within(time_to_stop);
    if (execution_stream* const second = second_seen_.load(std::memory_order_acquire)) {
        second->stop_within(time_to_stop);
    }
    stop_each(more_);
    stop_each(groups_);
    stopped_.store(true, std::memory_order_release);
}

template <typename Stopped>
void engine_streams::stop_each(const std::vector<std::shared_ptr<Stopped>>& all) {
    for (;;) {
        std::shared_ptr<Stopped> next;
        {
            const std::lock_guard hold(lock_);  // Only here: running work may need it, too.
            for (const auto& each : all) {
                if (!each->told_to_stop) next = each;
            }
        }
        if (next == nullptr) return;
        next->stop();
        const std::lock_guard hold(lock_);
        next->told_to_stop = true;
    }
}

execution_stream& engine_streams::at(std::size_t index) {
    if (index == streams_.size()) {
        if (execution_stream* const second = second_seen_.load(std::memory_order_acquire)) {
            return *second;
        }
    }
    if (index >= streams_.size()) {
        throw error(errc::invalid, fmt::format("this engine has no stream {}, expected a number "
                                               "below {}; example: 0",
                                               index, count()));
    }
    return *streams_[index];
}

std::size_t engine_streams::count() const noexcept {
    return streams_.size() + (second_seen_.load(std::memory_order_acquire) != nullptr ? 1 : 0);
}

pool* engine_streams::look_up(std::string_view name) {
    for (const named_pool& each : pools_) {
        if (each.name == name) return each.what.get();
    }
    const std::vector<stream_options>& streams = options_->streams.each;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (streams[i].name == name && (i == 0 || streams[i].pools.empty())) {
            return &streams_[i]->main_pool();
        }
    }
    const auto group = added(name);
    return group == nullptr ? nullptr : &group->work();
}

pool& engine_streams::find(std::string_view name) {
    if (name.empty()) return handlers();
    const std::lock_guard hold(lock_);
    return known(name);
}

pool& engine_streams::known(std::string_view name) {
    if (second_ && second_->name() == name) return second_->main_pool();
    if (pool* const found = look_up(name)) return *found;
    std::vector<std::string_view> names;
    for (const named_pool& each : pools_)
        names.push_back(each.name);
    for (std::size_t i = 0; i < streams_.size(); ++i)
        if (i == 0 || options_->streams.each[i].pools.empty()) names.push_back(streams_[i]->name());
    for (const auto& each : added_)
        names.push_back(each->name());
    throw error(errc::not_found,
                printable_name(fmt::format("this engine has no pool \"{}\", expected one of: {}",
                                           name, fmt::join(names, ", "))));
}

pool& engine_streams::handlers_by(progress_by who) {
    if (!options_->handlers.empty()) return *look_up(options_->handlers);
    if (who != progress_by::own_stream) return first().main_pool();
    if (streams_.size() > 1) return streams_[1]->main_pool();
    return second_->main_pool();
}

void engine_streams::set_progress(const progress_options& how) {
    if (driven_by_ != nullptr) {
        throw error(
            errc::invalid,
            "an engine in virtual time makes progress only inside loop_network::run_until_idle()");
    }
    if ((how.by == progress_by::caller) != by_caller_) {
        throw error(errc::invalid,
                    fmt::format("this engine's progress cannot change {} progress_by::caller: set "
                                "engine_options::progress when creating it",
                                by_caller_ ? "from" : "to"));
    }
    const std::lock_guard hold(lock_);
    if (const std::string wrong = handlers_on_first(*options_, how.by); !wrong.empty()) {
        throw error(errc::invalid, wrong);
    }
    if (how.by == progress_by::own_stream && options_->handlers.empty() && streams_.size() == 1 &&
        second_ == nullptr) {
        const stream_options like{.name = fmt::format("{}-1", options_->name)};
        second_ = make_stream(like, false);
        second_seen_.store(second_.get(), std::memory_order_release);
    }
    handlers_.store(&handlers_by(how.by), std::memory_order_release);
    options_->progress.by = how.by;
    if (how.spin) {
        options_->progress.spin = how.spin;
        first().set_spin(*how.spin);
    }
}

std::shared_ptr<stream_group> engine_streams::place(std::string_view procedure,
                                                    procedure_options& how) {
    const int ways = (how.run == handler::inline_) + (how.in != nullptr) + !how.in_pool.empty() +
                     (how.streams != 0);
    if (ways > 1) {
        throw error(errc::invalid,
                    fmt::format("\"{}\" has {} places to run in, expected one of: inline, in, "
                                "in_pool, streams; example: {{.in_pool = \"io\"}}",
                                procedure, ways));
    }
    if (!how.in_pool.empty()) {
        const std::string_view name = std::exchange(how.in_pool, {});
        how.in = &find(name);
        const std::lock_guard hold(lock_);
        return added(name);
    }
    if (how.streams == 0) return nullptr;
    constexpr unsigned most = 1024;
    if (how.streams > most) {
        throw error(errc::invalid, fmt::format("\"{}\" requests {} streams of its own, expected at "
                                               "most {}; example: {{.streams = 2}}",
                                               procedure, how.streams, most));
    }
    if (driven_by_ != nullptr) {
        throw error(errc::invalid, fmt::format("\"{}\" requests streams of its own, but an engine "
                                               "in virtual time has only one stream",
                                               procedure));
    }
    auto fresh = std::make_shared<stream_group>(procedure, how.streams, options_->spin);
    how.in = &fresh->work();
    const std::lock_guard hold(lock_);
    groups_.push_back(fresh);
    return fresh;
}

void engine_streams::reap() noexcept {
    if (has(execution_stream::current())) return;
    std::vector<std::shared_ptr<stream_group>> ended;
    {
        const std::lock_guard hold(lock_);
        try {
            ended.reserve(groups_.size());
        } catch (const std::bad_alloc&) {
            return;  // The next caller does it.
        }
        // If use_count is 1, nobody else can take a reference.
        const auto gone = std::partition(groups_.begin(), groups_.end(), [](const auto& each) {
            return each.use_count() > 1 || each->work().ults() != 0 || !each->work().empty();
        });
        ended.assign(std::make_move_iterator(gone), std::make_move_iterator(groups_.end()));
        groups_.erase(gone, groups_.end());
    }
}

bool engine_streams::has(const execution_stream* what) {
    if (what == nullptr) return false;
    for (const auto& each : streams_) {
        if (each.get() == what) return true;
    }
    const std::lock_guard hold(lock_);
    return what == second_.get() ||
           std::any_of(groups_.begin(), groups_.end(),
                       [what](const auto& g) { return g->has(what); }) ||
           std::any_of(more_.begin(), more_.end(),
                       [what](const auto& each) { return each->what.get() == what; });
}

bool engine_streams::unused() {
    if (stopped()) return true;
    for (const auto& each : streams_) {
        if (each->main_pool().ults() != 0) return false;
    }
    for (const named_pool& each : pools_) {
        if (each.what->ults() != 0) return false;
    }
    const std::lock_guard hold(lock_);
    return (second_ == nullptr || second_->main_pool().ults() == 0) &&
           std::all_of(groups_.begin(), groups_.end(),
                       [](const auto& each) { return each->work().ults() == 0; });
}

bool engine_streams::has(const pool& what) {
    for (const auto& each : streams_) {
        if (&each->main_pool() == &what) return true;
    }
    for (const named_pool& each : pools_) {
        if (each.what.get() == &what) return true;
    }
    const std::lock_guard hold(lock_);
    return (second_ && &second_->main_pool() == &what) ||
           std::any_of(groups_.begin(), groups_.end(),
                       [&what](const auto& each) { return &each->work() == &what; });
}

void engine_streams::cancel_waiting() noexcept {
    for (const auto& each : streams_)
        each->main_pool().cancel_waiting();
    for (const named_pool& each : pools_)
        each.what->cancel_waiting();
    const std::lock_guard hold(lock_);
    if (second_) second_->main_pool().cancel_waiting();
    for (const auto& each : groups_)
        each->work().cancel_waiting();
}

}  // namespace amalgam::detail

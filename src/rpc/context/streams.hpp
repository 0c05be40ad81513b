#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam::detail {

/// Streams created for one procedure, or with an added pool, and their pool.
class stream_group {
public:
    struct member {
        std::unique_ptr<execution_stream> what;
        bool removed = false;  ///< Has ended, or is about to, before the others.
    };
    stream_group(std::string_view name, unsigned streams, std::chrono::nanoseconds spin);
    /// With a pool that is found by its name.
    stream_group(const pool_options& how, unsigned streams, std::chrono::nanoseconds spin,
                 std::string_view stream_name);
    const std::string& name() const noexcept { return how_.name; }
    const pool_options& options() const noexcept { return how_; }
    pool& work() noexcept { return *pool_; }
    std::vector<member>& streams() noexcept { return streams_; }
    void stop();
    /// Ended by engine_streams::stop().
    bool told_to_stop = false;
    bool has(const execution_stream* what) const noexcept;

private:
    pool_options how_;  // Without a name: of one procedure.
    std::unique_ptr<pool> pool_;
    std::vector<member> streams_;
};

/// A stream that was added to pools that were there.
struct added_stream {
    stream_options how;
    std::vector<std::shared_ptr<stream_group>> serves;  ///< Added pools, to outlive it.
    std::unique_ptr<execution_stream> what;
    bool removed = false;
    bool told_to_stop = false;
    void stop();
};

/// The streams and pools of an engine. The first stream owns the ports. It serves its private pool
/// first; other threads post work there.
///
/// Threads: any, except start().
class engine_streams {
public:
    /// Streams that have not ended this long after being told to are abandoned.
    static constexpr std::chrono::seconds time_to_stop{1};

    /// Checks the options, and fills in defaults. `driven_by`: virtual time; or null.
    /// Failure: throws error{invalid}, in terms of the options, whose names are those of the JSON.
    void start(engine_options& options, const clock* driven_by);
    /// Ends all threads. Idempotent.
    void stop();

    execution_stream& first() noexcept { return *first_; }
    execution_stream& at(std::size_t index);
    std::size_t count() const noexcept;
    /// Default pool of handlers. Cost: one load.
    pool& handlers() noexcept { return *handlers_.load(std::memory_order_acquire); }
    /// Throws error{not_found} that lists the existing names.
    pool& find(std::string_view name);
    /// Replaces names and numbers in a procedure's options by the pool itself, in `in`.
    std::shared_ptr<stream_group> place(std::string_view procedure, procedure_options& how);
    /// See engine::add_pool() and remove_pool().
    void add_pool(const pool_options& how, unsigned streams);
    bool remove_pool(std::string_view name);
    /// See engine::add_stream() and remove_stream(), here with the options of what was removed.
    std::string add_stream(stream_options how);
    std::optional<stream_options> remove_stream(std::string_view name);
    /// Whether there is a pool of that name that was added.
    bool was_added(std::string_view name);
    /// Ends the streams of removed procedures, if nothing runs there any more. On one of the
    /// engine's own streams it leaves that to the next call from elsewhere.
    void reap() noexcept;

    void set_progress(const progress_options& how);
    bool driven_by_caller() const noexcept { return by_caller_; }
    /// The options in effect: an engine created with them behaves the same.
    engine_options effective();

    /// All streams have ended.
    bool stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }
    bool has(const execution_stream* what);
    bool has(const pool& what);
    /// Calls `visit(name, pool)` for every pool with a name, and those that streams have for
    /// themselves.
    template <typename Function>
    void for_each_pool(Function visit) {
        for (const named_pool& each : pools_)
            visit(std::string_view(each.name), *each.what);
        for (const auto& each : streams_) {
            const pool* const main = &each->main_pool();
            bool named = false;
            for (const named_pool& one : pools_)
                named = named || one.what.get() == main;
            if (!named) visit(each->name(), *main);
        }
        const std::lock_guard hold(lock_);
        for (const auto& each : added_)
            visit(std::string_view(each->name()), each->work());
    }
    /// Waiting work in the pools gets error{canceled}, so that it ends rather than being abandoned.
    void cancel_waiting() noexcept;
    /// Whether no pool has a ULT that may still run.
    bool unused();

private:
    struct named_pool {
        std::string name;
        std::unique_ptr<pool> what;
    };
    /// A stream that has not been removed.
    struct serving_stream {
        stream_options how;
        execution_stream* what = nullptr;
        bool* removed = nullptr;      // Null: one that cannot be.
        std::shared_ptr<void> keeps;  // What it belongs to.
    };
    std::unique_ptr<execution_stream> make_stream(const stream_options& from, bool is_first);
    pool* look_up(std::string_view name);
    pool& known(std::string_view name);
    std::shared_ptr<stream_group> added(std::string_view name) const noexcept;
    pool& handlers_by(progress_by who);
    std::vector<serving_stream> serving();
    void check_room(std::string_view what, std::size_t more);
    serving_stream begin_removal(std::string_view name);
    template <typename Stopped>
    void stop_each(const std::vector<std::shared_ptr<Stopped>>& all);

    engine_options* options_ = nullptr;
    const clock* driven_by_ = nullptr;
    bool by_caller_ = false;
    // Declared before the streams, which they must outlive.
    std::vector<named_pool> pools_;
    std::unique_ptr<pool> private_;
    std::vector<std::unique_ptr<execution_stream>> streams_;
    execution_stream* first_ = nullptr;
    std::atomic<pool*> handlers_{nullptr};
    std::atomic<bool> stopped_{false};

    std::mutex lock_;  // Protects what follows, and the options changed by set_progress().
    std::unique_ptr<execution_stream> second_;  // Created when handlers must leave the first.
    std::atomic<execution_stream*> second_seen_{nullptr};
    std::vector<std::shared_ptr<stream_group>> groups_;
    std::vector<std::shared_ptr<stream_group>> added_;  // Those of groups_ that have a name.
    std::vector<std::shared_ptr<added_stream>> more_;
    std::deque<bool> removed_;  // Of streams_, by index.
};

}  // namespace amalgam::detail

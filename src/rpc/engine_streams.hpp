#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam::detail {

/// Streams that serve one procedure alone, and their pool.
class stream_group {
public:
    stream_group(std::string_view name, unsigned streams, std::chrono::nanoseconds spin);
    pool& work() noexcept { return *pool_; }
    void stop();
    /// engine_streams::stop() has ended it.
    bool told_to_stop = false;
    bool has(const execution_stream* what) const noexcept;

private:
    std::unique_ptr<pool> pool_;
    std::vector<std::unique_ptr<execution_stream>> streams_;
};

/// The streams and pools of an engine. The first stream owns the ports; the private pool that it
/// serves first is where others hand work to it.
///
/// Threads: any, but for start().
class engine_streams {
public:
    /// What has not ended so long after it was told to is left behind.
    static constexpr std::chrono::seconds time_to_stop{1};

    /// Checks the options, and says in them what was left open. `driven_by`: virtual time; or null.
    /// Failure: throws error{invalid}, in terms of the options, which are those of the JSON too.
    void start(engine_options& options, const clock* driven_by);
    /// Ends all threads. Idempotent.
    void stop();

    execution_stream& first() noexcept { return *first_; }
    execution_stream& at(std::size_t index);
    std::size_t count() const noexcept;
    /// Where handlers run that do not say where. Cost: one load.
    pool& handlers() noexcept { return *handlers_.load(std::memory_order_acquire); }
    /// Throws error{not_found} with the names there are.
    pool& find(std::string_view name);
    /// Resolves what the options of a procedure say by name or number into `in`.
    std::shared_ptr<stream_group> place(std::string_view procedure, procedure_options& how);
    /// Ends the streams of procedures that are gone, as far as nothing runs there any more. On one
    /// of the engine's own streams it leaves that to the next who comes from elsewhere.
    void reap() noexcept;

    void set_progress(const progress_options& how);
    bool driven_by_caller() const noexcept { return by_caller_; }
    /// The options as they are now: with these an engine is made that runs alike.
    engine_options effective();

    /// All of them.
    bool stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }
    bool has(const execution_stream* what);
    bool has(const pool& what);
    /// What waits in their pools gets error{canceled}: to end by itself rather than be left behind.
    void cancel_waiting() noexcept;
    /// No pool of theirs has a ULT that may run yet.
    bool unused();

private:
    struct named_pool {
        std::string name;
        std::unique_ptr<pool> what;
    };
    std::unique_ptr<execution_stream> make_stream(const stream_options& from, bool is_first);
    pool* look_up(std::string_view name);
    pool& handlers_by(progress_by who);

    engine_options* options_ = nullptr;
    const clock* driven_by_ = nullptr;
    bool by_caller_ = false;
    // Before the streams, as they must outlive these.
    std::vector<named_pool> pools_;
    std::unique_ptr<pool> private_;
    std::vector<std::unique_ptr<execution_stream>> streams_;
    execution_stream* first_ = nullptr;
    std::atomic<pool*> handlers_{nullptr};
    std::atomic<bool> stopped_{false};

    std::mutex lock_;  // Of what follows, and of what set_progress() changes in the options.
    std::unique_ptr<execution_stream> second_;  // When handlers must move away from the first.
    std::atomic<execution_stream*> second_seen_{nullptr};
    std::vector<std::shared_ptr<stream_group>> groups_;
};

}  // namespace amalgam::detail

#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace amalgam {

/// What orders the work in a pool of an engine: the classes of fifo_pool.hpp and shared_pools.hpp.
enum class pool_kind : std::uint8_t {
    fifo,          ///< For one stream only; needs no lock.
    shared_fifo,   ///< The others are for any number of streams.
    lifo,          ///< What was made last comes first.
    priority,      ///< The highest work_unit::priority comes first.
    work_stealing  ///< One for each stream, which steal from each other.
};

/// A pool that an engine makes. engine::pool() gives it by its name.
struct pool_options {
    std::string name;
    pool_kind kind = pool_kind::shared_fifo;
    unsigned levels = 4;  ///< Of kind `priority`.

    friend bool operator==(const pool_options&, const pool_options&) = default;
};

/// How a stream chooses among its pools: the classes of scheduler.hpp.
enum class scheduler_kind : std::uint8_t { in_turn, priority, work_stealing };

/// An execution stream that an engine makes.
struct stream_options {
    std::string name{};  ///< Empty: the engine's, and a number for all but the first.
    int cpu = -1;        ///< The core to bind to; -1: any.
    /// What it serves, by name; none: one pool of its own, which has the stream's name. The first
    /// stream always has that one, and serves it before these, as it needs it for its ports.
    std::vector<std::string> pools{};
    scheduler_kind scheduler = scheduler_kind::in_turn;

    friend bool operator==(const stream_options&, const stream_options&) = default;
};

/// The streams of an engine: how many, or how each is set up.
///     engine_options{.streams = 2};   engine_options{.streams = {{.cpu = 0}, {.cpu = 1}}};
struct stream_set {
    stream_set(unsigned count = 1) : each(count == 0 ? 1 : count) {}
    stream_set(std::initializer_list<stream_options> all) : each(all) {}
    stream_set(std::vector<stream_options> all) : each(std::move(all)) {}

    std::vector<stream_options> each;

    friend bool operator==(const stream_set&, const stream_set&) = default;
};

/// Who looks after an engine's ports.
enum class progress_by : std::uint8_t {
    shared,      ///< Its first stream, which runs handlers as well.
    own_stream,  ///< Its first stream, which runs no handlers but inline ones: a second one does.
    caller       ///< engine::progress(), called from an event loop of the user's.
};

/// How an engine makes progress.
struct progress_options {
    progress_by by = progress_by::shared;
    /// Polling time before the first stream sleeps when it has nothing to do: always_spin is
    /// "busy". Nothing: as all streams of the engine.
    std::optional<std::chrono::nanoseconds> spin{};

    friend bool operator==(const progress_options&, const progress_options&) = default;
};

}  // namespace amalgam

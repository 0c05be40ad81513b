#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/cpu_set.hpp>

namespace amalgam {

/// Order of work in an engine's pool: the classes of fifo_pool.hpp and shared_pools.hpp.
enum class pool_kind : std::uint8_t {
    fifo,          ///< One stream only; needs no lock.
    shared_fifo,   ///< This and the following serve any number of streams.
    lifo,          ///< Newest first.
    priority,      ///< Highest work_unit::priority first.
    work_stealing  ///< One queue per stream; streams steal from each other.
};

/// A pool created by an engine. engine::pool() finds it by name.
struct pool_options {
    std::string name;  ///< Unique among pools and streams; not empty.
    /// In which order units run, and for how many streams.
    pool_kind kind = pool_kind::shared_fifo;
    unsigned levels = 4;  ///< For `priority` only.

    friend bool operator==(const pool_options&, const pool_options&) = default;
};

/// How a stream picks among its pools: the classes of scheduler.hpp.
enum class scheduler_kind : std::uint8_t {
    in_turn,       ///< basic_scheduler: each pool gets its share.
    priority,      ///< priority_scheduler: the first pool that has work.
    work_stealing  ///< work_stealing_scheduler: its first pool; steals from others.
};

/// An execution stream created by an engine.
struct stream_options {
    std::string name{};  ///< Empty: the engine's name, plus a number for all but the first.
    int cpu = -1;        ///< The CPU to bind to; -1: any.
    cpu_set cpus{};      ///< CPUs to bind to, if more than one; empty: any. Not with `cpu`.
    /// Names of the pools it serves; empty: one pool of its own, named like the stream. The first
    /// stream always has its own pool too, for its ports, and serves it before these.
    std::vector<std::string> pools{};
    scheduler_kind scheduler = scheduler_kind::in_turn;  ///< In which order it looks into them.

    friend bool operator==(const stream_options&, const stream_options&) = default;
};

/// The streams of an engine: a count, or the setup of each.
///     engine_options{.streams = 2};   engine_options{.streams = {{.cpu = 0}, {.cpu = 1}}};
///     engine_options{.streams = {{}, {.cpus = cpu_set("numa:1")}}};
struct stream_set {
    stream_set(unsigned count = 1);
    stream_set(std::initializer_list<stream_options> all);
    stream_set(std::vector<stream_options> all);

    std::vector<stream_options> each;  ///< One for each stream; the first owns the ports.

    friend bool operator==(const stream_set&, const stream_set&) = default;
};

/// Who makes progress on an engine's ports.
enum class progress_by : std::uint8_t {
    shared,  ///< The first stream, which also runs handlers.
    /// The first stream, for ports and inline handlers only; a second one runs the rest.
    own_stream,
    caller  ///< The user's event loop, by calling engine::progress().
};

/// How an engine makes progress.
struct progress_options {
    progress_by by = progress_by::shared;  ///< Who polls the ports.
    /// Polling time before an idle first stream sleeps; always_spin means it never does. Empty: the
    /// engine's `spin`.
    std::optional<std::chrono::nanoseconds> spin{};

    friend bool operator==(const progress_options&, const progress_options&) = default;
};

}  // namespace amalgam

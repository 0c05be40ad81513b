#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam {

/// Least severe first; `off` is for thresholds only.
enum class log_level : std::uint8_t {
    trace,  ///< Single steps, to look for a fault.
    debug,  ///< What fails and is expected to, and is tried again.
    info,   ///< What happens seldom, such as a start.
    warn,   ///< Something failed; work goes on.
    error,  ///< Something is wrong in the program, or lost.
    off     ///< As a threshold: nothing is logged.
};

/// For example "warn", as in AMALGAM_LOG and in the output.
std::string_view name(log_level level) noexcept;

/// How log lines are written.
enum class log_format : std::uint8_t {
    text,  ///< 2026-01-31T12:00:00.000+00:00 warn  fabric: peer lost peer=tcp://… status=…
    json   ///< One object per line: time, level, component, message, then the fields.
};

/// One "key value" of a log line. Borrows its strings: create it in the call.
class log_field {
public:
    /// What type() tells: how the value is held.
    enum class kind : std::uint8_t {
        boolean,  ///< bool
        integer,  ///< A signed integer.
        natural,  ///< An unsigned integer.
        real,     ///< double
        text      ///< Text, borrowed.
    };

    log_field(std::string_view key, bool v) noexcept : key_(key), kind_(kind::boolean) { u_.n = v; }
    template <std::signed_integral T>
    log_field(std::string_view key, T v) noexcept : key_(key), kind_(kind::integer) {
        u_.i = v;
    }
    template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>) log_field(std::string_view key, T v)
    noexcept : key_(key), kind_(kind::natural) { u_.n = v; }
    log_field(std::string_view key, double v) noexcept : key_(key), kind_(kind::real) { u_.r = v; }
    log_field(std::string_view key, std::string_view v) noexcept
        : key_(key), kind_(kind::text), text_(v) {}
    log_field(std::string_view key, const std::string& v) noexcept
        : log_field(key, std::string_view(v)) {}
    log_field(std::string_view key, const char* v) noexcept : log_field(key, std::string_view(v)) {}
    log_field(std::string_view key, errc code) noexcept : log_field(key, amalgam::name(code)) {}

    std::string_view key() const noexcept { return key_; }
    kind type() const noexcept { return kind_; }
    bool boolean() const noexcept { return u_.n != 0; }       ///< For kind boolean.
    std::int64_t integer() const noexcept { return u_.i; }    ///< For kind integer.
    std::uint64_t natural() const noexcept { return u_.n; }   ///< For kind natural.
    double real() const noexcept { return u_.r; }             ///< For kind real.
    std::string_view text() const noexcept { return text_; }  ///< For kind text.

private:
    std::string_view key_;
    kind kind_;
    union {
        std::int64_t i;   ///< What integer() tells.
        std::uint64_t n;  ///< What natural() and boolean() tell.
        double r;         ///< What real() tells.
    } u_{};
    std::string_view text_;
};

/// The fields of a log line, as written in the call: {{"peer", name}, {"bytes", 12}}.
using log_fields = std::initializer_list<log_field>;

/// Passed to a sink. Its contents are valid only during the call.
struct log_record {
    std::chrono::system_clock::time_point time;  ///< When the line was logged, by the wall clock.
    log_level level = log_level::info;           ///< How severe it is.
    std::string_view component;                  ///< Who logged it: "fabric", "rpc".
    std::string_view message;                    ///< What happened, without the fields.
    std::span<const log_field> fields;           ///< In the order in which they were given.
};

/// Formats message and fields as "message key=value key="two words"".
std::string to_text(const log_record& record);

/// Formats the record as one JSON object on one line, without the newline.
std::string to_json(const log_record& record);

/// Filters log lines by level and writes them to a sink.
///
/// Threads: all members may run concurrently; a sink is called by one thread at a time.
/// Cost:    a line below every component's level costs one relaxed load.
class logger {
public:
    /// Writes a line where it belongs; called by one thread at a time. Must not log.
    using sink = std::function<void(const log_record&)>;

    /// Writes text to standard error, at level warn and above.
    logger();
    logger(const logger&) = delete;
    logger& operator=(const logger&) = delete;
    ~logger();

    /// Reads comma-separated "LEVEL", "COMPONENT=LEVEL", "text" and "json", as in AMALGAM_LOG:
    /// "info", "fabric=trace,info", "debug,json"; "warning" means "warn". Other settings stay.
    /// Failure: throws error{invalid} with one sentence, and changes nothing.
    void configure(std::string_view settings);

    void set_level(log_level level);  ///< For components without their own level.
    void set_level(std::string_view component, log_level level);  ///< For one component.
    void set_format(log_format format);                           ///< For the standard sink.
    /// Replaces standard error as the sink; an empty function restores it. `to` must not log.
    void set_sink(sink to);

    /// Whether any component logs at `level`. One load; use it to skip costly preparation.
    bool may_log(log_level level) const noexcept {
        return level >= lowest_.load(std::memory_order_relaxed);
    }
    /// Whether a line of this level and component would be written.
    bool enabled(log_level level, std::string_view component) const noexcept;

    void log(log_level level, std::string_view component, std::string_view message,
             log_fields fields = {}) noexcept {
        if (may_log(level))
            write(level, component, message, std::span(fields.begin(), fields.size()));
    }

    /// As log(), with `last` appended to the fields.
    void log_with(log_level level, std::string_view component, std::string_view message,
                  log_fields fields, log_field last) noexcept;

private:
    friend logger& default_logger() noexcept;
    friend struct logger_of_child;
    struct state;
    explicit logger(std::nullptr_t) noexcept;  // Writes nothing.
    state& usable() const;                     // Throws std::bad_alloc if there is none.
    void write(log_level level, std::string_view component, std::string_view message,
               std::span<const log_field> fields) noexcept;

    std::atomic<log_level> lowest_;  // The lowest level of all components.
    std::unique_ptr<state> state_;
};

/// The process's logger, set up from AMALGAM_LOG on first use and never destroyed. It is the
/// library's one global object: log lines come from destructors, forked children and plug-ins,
/// which cannot be handed a logger, and readers want a single stream.
///
/// Failure: if out of memory, returns a logger that writes nothing and cannot be configured; the
///          next call tries again.
logger& default_logger() noexcept;

/// Logs to default_logger().
///     log(log_level::warn, "fabric", "peer lost", {{"peer", uri}, {"status", errc::timed_out}});
inline void log(log_level level, std::string_view component, std::string_view message,
                log_fields fields = {}) noexcept {
    default_logger().log(level, component, message, fields);
}

}  // namespace amalgam

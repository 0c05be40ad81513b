#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <amalgam/core/status.hpp>

namespace amalgam {

enum class log_level : std::uint8_t { trace, debug, info, warn, error, off };

/// "warn"; what AMALGAM_LOG and the output use.
std::string_view name(log_level level) noexcept;

enum class log_format : std::uint8_t {
    text,  ///< 2026-01-31T12:00:00.000+00:00 warn  fabric: peer lost peer=tcp://… status=…
    json   ///< One object a line: time, level, component, message, then the fields.
};

/// One "key value" of a log line. Borrows its strings: make it in the call.
class log_field {
public:
    enum class kind : std::uint8_t { boolean, integer, natural, real, text };

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
    bool boolean() const noexcept { return u_.n != 0; }       ///< Of kind boolean.
    std::int64_t integer() const noexcept { return u_.i; }    ///< Of kind integer.
    std::uint64_t natural() const noexcept { return u_.n; }   ///< Of kind natural.
    double real() const noexcept { return u_.r; }             ///< Of kind real.
    std::string_view text() const noexcept { return text_; }  ///< Of kind text.

private:
    std::string_view key_;
    kind kind_;
    union {
        std::int64_t i;
        std::uint64_t n;
        double r;
    } u_{};
    std::string_view text_;
};

using log_fields = std::initializer_list<log_field>;

/// What a sink is given. Everything in it is borrowed for the call.
struct log_record {
    std::chrono::system_clock::time_point time;
    log_level level = log_level::info;
    std::string_view component;
    std::string_view message;
    std::span<const log_field> fields;
};

/// The message and its fields as "message key=value key="two words"".
std::string to_text(const log_record& record);

/// As one JSON object on one line, without the newline.
std::string to_json(const log_record& record);

/// Where log lines go, and which ones.
///
/// Threads: all members may run concurrently; a sink is called by one thread at a time.
/// Cost:    a line below every component's level costs one relaxed load.
class logger {
public:
    using sink = std::function<void(const log_record&)>;

    /// Writes text to standard error, from level warn up.
    logger();
    logger(const logger&) = delete;
    logger& operator=(const logger&) = delete;
    ~logger();

    /// Reads "LEVEL", "COMPONENT=LEVEL", "text" and "json", comma-separated, as in AMALGAM_LOG:
    /// "info", "fabric=trace,info", "debug,json"; "warning" is "warn". What is not named keeps
    /// its setting.
    /// Failure: throws error{invalid} with one sentence, and changes nothing.
    void configure(std::string_view settings);

    void set_level(log_level level);                              ///< Of components not set apart.
    void set_level(std::string_view component, log_level level);  ///< Of one component.
    void set_format(log_format format);                           ///< Of the standard sink.
    /// Replaces standard error; an empty function brings it back. `to` must not log.
    void set_sink(sink to);

    /// Whether some component logs at `level`: one load, to skip costly preparation.
    bool may_log(log_level level) const noexcept {
        return level >= lowest_.load(std::memory_order_relaxed);
    }
    bool enabled(log_level level, std::string_view component) const noexcept;

    void log(log_level level, std::string_view component, std::string_view message,
             log_fields fields = {}) noexcept {
        if (may_log(level))
            write(level, component, message, std::span(fields.begin(), fields.size()));
    }

    /// With one field behind the others.
    void log_with(log_level level, std::string_view component, std::string_view message,
                  log_fields fields, log_field last) noexcept;

private:
    friend logger& default_logger() noexcept;
    struct state;
    explicit logger(std::nullptr_t) noexcept;  // Writes nothing.
    state& usable() const;                     // Throws std::bad_alloc where there is none.
    void write(log_level level, std::string_view component, std::string_view message,
               std::span<const log_field> fields) noexcept;

    std::atomic<log_level> lowest_;  // The lowest level of all components.
    std::unique_ptr<state> state_;
};

/// The process's own logger, set up from AMALGAM_LOG on first use and never destroyed.
/// The one global object of the library: log lines come from destructors, forked children and
/// plug-ins, where nobody can hand a logger in, and one stream of them is what a reader wants.
///
/// Failure: without memory for it, one that writes nothing and cannot be set up; the next use tries
///          again.
logger& default_logger() noexcept;

/// Logs to default_logger().
///     log(log_level::warn, "fabric", "peer lost", {{"peer", uri}, {"status", errc::timed_out}});
inline void log(log_level level, std::string_view component, std::string_view message,
                log_fields fields = {}) noexcept {
    default_logger().log(level, component, message, fields);
}

}  // namespace amalgam

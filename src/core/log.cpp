#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

// Thread-local storage of a library that is loaded is scarce, and the thread's id is not printed.
#define SPDLOG_NO_TLS
#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/detail/json_text.hpp>
#include <amalgam/core/log.hpp>

namespace amalgam {
namespace {

constexpr std::array<std::string_view, 6> level_names{"trace", "debug", "info",
                                                      "warn",  "error", "off"};

std::optional<log_level> level_named(std::string_view text) noexcept {
    if (text == "warning") return log_level::warn;
    auto at = std::find(level_names.begin(), level_names.end(), text);
    if (at == level_names.end()) return std::nullopt;
    return static_cast<log_level>(at - level_names.begin());
}

bool reads_as_one_word(std::string_view text) noexcept {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return c > 0x20 && c != 0x7f && c != '"' && c != '\\' && c != '=';
    });
}

void append_value(std::string& out, const log_field& field, bool json) {
    switch (field.type()) {
        case log_field::kind::boolean:
            out += field.boolean() ? "true" : "false";
            return;
        case log_field::kind::integer:
            out += fmt::to_string(field.integer());
            return;
        case log_field::kind::natural:
            out += fmt::to_string(field.natural());
            return;
        case log_field::kind::real:
            if (json && !std::isfinite(field.real())) {
                out += "null";  // JSON has no infinity.
            } else {
                out += fmt::to_string(field.real());
            }
            return;
        case log_field::kind::text:
            break;
    }
    if (!json && reads_as_one_word(field.text())) {
        out += field.text();
    } else {
        detail::append_json_string(out, field.text());
    }
}

void append_json_members(std::string& out, const log_record& record) {
    out += "\"message\": ";
    detail::append_json_string(out, record.message);
    for (const log_field& field : record.fields) {
        out += ", ";
        detail::append_json_string(out, field.key());
        out += ": ";
        append_value(out, field, true);
    }
}

/// Levels by component; configure() edits a copy and installs it as a whole.
struct level_table {
    log_level common = log_level::warn;
    std::map<std::string, log_level, std::less<>> apart;

    log_level of(std::string_view component) const {
        auto at = apart.find(component);
        return at == apart.end() ? common : at->second;
    }
    log_level lowest() const {
        log_level low = common;
        for (const auto& [component, level] : apart)
            low = std::min(low, level);
        return low;
    }
};

/// The level as name() spells it; spdlog uses other words.
class level_word final : public spdlog::custom_flag_formatter {
public:
    void format(const spdlog::details::log_msg& line, const std::tm&,
                spdlog::memory_buf_t& to) override {
        fmt::format_to(std::back_inserter(to), "{:<5}", name(static_cast<log_level>(line.level)));
    }
    std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
        return std::make_unique<level_word>();
    }
};

[[noreturn]] void refuse(std::string_view settings, std::string_view part, std::string_view why) {
    throw error(
        errc::invalid,
        fmt::format("log settings \"{}\": \"{}\" {}; example: AMALGAM_LOG=fabric=trace,info",
                    settings, part, why));
}

}  // namespace

std::string_view name(log_level level) noexcept {
    auto at = static_cast<std::size_t>(level);
    return at < level_names.size() ? level_names[at] : "unknown";
}

std::string to_text(const log_record& record) {
    std::string out(record.message);
    for (const log_field& field : record.fields) {
        out += ' ';
        out += field.key();
        out += '=';
        append_value(out, field, false);
    }
    return out;
}

std::string to_json(const log_record& record) {
    std::string out = fmt::format("{{\"level\": \"{}\", \"component\": ", name(record.level));
    detail::append_json_string(out, record.component);
    out += ", ";
    append_json_members(out, record);
    return out + '}';
}

/// Whose turn it is to call the sink, which may take any time. So fork() does not wait for it, and
/// a child begins anew.
class writing_turn {
public:
    void lock() {
        mutex_.lock();
        by_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    void unlock() {
        by_.store(std::thread::id(), std::memory_order_relaxed);
        mutex_.unlock();
    }
    /// In a child of fork(): the thread that has it may not be there any more.
    void forget_others_in_child() noexcept {
        if (by_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return;
        if (mutex_.try_lock()) return mutex_.unlock();
        ::new (static_cast<void*>(&mutex_)) std::mutex;
        by_.store(std::thread::id(), std::memory_order_relaxed);
    }

private:
    std::mutex mutex_;
    std::atomic<std::thread::id> by_{};
};

struct logger::state {
    // Who changes what is below `levels` takes both, the first one first. The second one is never
    // held while a sink is called.
    writing_turn turn;
    mutable std::mutex lock;
    level_table levels;
    log_format format = log_format::text;
    logger::sink to;  // Empty: standard error.
    spdlog::sinks::stderr_color_sink_st standard_error;

    state() { use(log_format::text); }

    void use(log_format wanted) {
        format = wanted;
        auto lines = std::make_unique<spdlog::pattern_formatter>();
        lines->add_flag<level_word>('*').set_pattern(
            wanted == log_format::text ? "%Y-%m-%dT%H:%M:%S.%e%z %^%*%$ %v"
                                       : "{\"time\": \"%Y-%m-%dT%H:%M:%S.%e%z\", %v}");
        standard_error.set_formatter(std::move(lines));
    }

    void write_to_standard_error(const log_record& record) {
        std::string line;
        if (format == log_format::json) {
            line = to_json(record);
            line = line.substr(1, line.size() - 2);  // The pattern adds the time and the braces.
        } else {
            line = fmt::format("{}: {}", record.component, to_text(record));
        }
        standard_error.log(spdlog::details::log_msg(
            record.time, {}, {}, static_cast<spdlog::level::level_enum>(record.level), line));
        standard_error.flush();
    }
};

logger::logger() : lowest_(log_level::warn), state_(std::make_unique<state>()) {}
logger::logger(std::nullptr_t) noexcept : lowest_(log_level::off) {}
logger::~logger() = default;

logger::state& logger::usable() const {
    if (state_ == nullptr) throw std::bad_alloc();
    return *state_;
}

void logger::configure(std::string_view settings) {
    state& mine = usable();
    const std::lock_guard alone(mine.turn);
    std::lock_guard hold(mine.lock);
    level_table levels = mine.levels;
    log_format format = mine.format;
    for (std::string_view rest = settings; !rest.empty();) {
        std::string_view part = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(part.size() + 1, rest.size()));
        if (part.empty()) continue;
        std::size_t equals = part.find('=');
        if (equals == 0) refuse(settings, part, "has no component before \"=\"");
        std::string_view word = equals == part.npos ? part : part.substr(equals + 1);
        std::optional<log_level> level = level_named(word);
        if (level && equals != part.npos) {
            levels.apart.insert_or_assign(std::string(part.substr(0, equals)), *level);
        } else if (level) {
            levels.common = *level;
        } else if (part == "text" || part == "json") {
            format = part == "json" ? log_format::json : log_format::text;
        } else {
            refuse(settings, word,
                   "is not one of trace, debug, info, warn, error, off, text, json");
        }
    }
    mine.levels = std::move(levels);
    mine.use(format);
    lowest_.store(mine.levels.lowest(), std::memory_order_relaxed);
}

void logger::set_level(log_level level) {
    state& mine = usable();
    std::lock_guard hold(mine.lock);
    mine.levels.common = level;
    lowest_.store(mine.levels.lowest(), std::memory_order_relaxed);
}

void logger::set_level(std::string_view component, log_level level) {
    state& mine = usable();
    std::lock_guard hold(mine.lock);
    mine.levels.apart.insert_or_assign(std::string(component), level);
    lowest_.store(mine.levels.lowest(), std::memory_order_relaxed);
}

void logger::set_format(log_format format) {
    state& mine = usable();
    const std::lock_guard alone(mine.turn);
    std::lock_guard hold(mine.lock);
    mine.use(format);
}

void logger::set_sink(sink to) {
    state& mine = usable();
    const std::lock_guard alone(mine.turn);
    std::lock_guard hold(mine.lock);
    mine.to.swap(to);  // The old one goes without the locks.
}

bool logger::enabled(log_level level, std::string_view component) const noexcept {
    if (level == log_level::off || !may_log(level)) return false;
    std::lock_guard hold(state_->lock);
    return level >= state_->levels.of(component);
}

void logger::log_with(log_level level, std::string_view component, std::string_view message,
                      log_fields fields, log_field last) noexcept try {
    std::vector<log_field> all(fields);
    all.push_back(last);
    if (may_log(level)) write(level, component, message, all);
} catch (...) {
    // As in write().
}

void logger::write(log_level level, std::string_view component, std::string_view message,
                   std::span<const log_field> fields) noexcept try {
    if (!enabled(level, component)) return;
    const std::lock_guard alone(state_->turn);
    log_record record{std::chrono::system_clock::now(), level, component, message, fields};
    if (state_->to) {
        state_->to(record);
    } else {
        state_->write_to_standard_error(record);
    }
} catch (...) {
    // A line that cannot be written is dropped: logging never changes what a program does.
}

namespace {

/// Held while it appears, which happens once; taken before its lock.
constinit std::mutex making_logger;
constinit std::atomic<logger*> the_logger{nullptr};

}  // namespace

/// Of a child of fork(), which may log whatever other threads were logging.
struct logger_of_child {
    static void before() noexcept {
        making_logger.lock();
        if (logger* const one = the_logger.load(std::memory_order_relaxed))
            one->state_->lock.lock();
    }
    static void in_parent() noexcept {
        if (logger* const one = the_logger.load(std::memory_order_relaxed))
            one->state_->lock.unlock();
        making_logger.unlock();
    }
    static void in_child() noexcept {
        if (logger* const one = the_logger.load(std::memory_order_relaxed))
            one->state_->turn.forget_others_in_child();
        in_parent();
    }
};

namespace {

constinit detail::fork_handlers log_handlers(logger_of_child::before, logger_of_child::in_parent,
                                             logger_of_child::in_child);
/// Before all that may log while it holds a lock that fork() takes, too: these come first then.
[[maybe_unused]] const bool log_is_watched = log_handlers.watch();

}  // namespace

// No local static: a child of fork() would wait for ever for another thread's first line.
logger& default_logger() noexcept {
    if (logger* const one = the_logger.load(std::memory_order_acquire)) [[likely]]
        return *one;
    try {
        auto mine = std::make_unique<logger>();
        std::string why;
        try {
            const char* const settings = std::getenv("AMALGAM_LOG");
            if (settings != nullptr) mine->configure(settings);
        } catch (const std::exception& wrong) {
            why = wrong.what();
        }
        {
            const std::lock_guard hold(making_logger);
            if (logger* const other = the_logger.load(std::memory_order_relaxed)) return *other;
            the_logger.store(mine.get(), std::memory_order_release);
        }
        logger& one = *mine.release();  // Never destroyed: destructors of statics log too.
        if (!why.empty()) one.log(log_level::warn, "log", why);
        return one;
    } catch (const std::bad_alloc&) {
        alignas(logger) static std::byte room[sizeof(logger)];
        static logger& silent = *::new (room) logger(nullptr);
        return silent;
    }
}

}  // namespace amalgam

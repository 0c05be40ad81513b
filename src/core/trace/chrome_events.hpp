#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <amalgam/core/detail/json_text.hpp>

namespace amalgam::detail {

/// A file that takes the place of another when it is complete.
class trace_output {
public:
    /// Failure: all throw error{invalid}.
    explicit trace_output(const std::string& file);
    trace_output(const trace_output&) = delete;
    trace_output& operator=(const trace_output&) = delete;
    ~trace_output();

    void add(std::string_view text);
    void finish();

private:
    [[noreturn]] void refuse(int why) const;
    std::FILE* open_part();
    int name_part(int file);

    std::string file_;
    std::string part_;
    bool has_name_ = false;  // `part_` is there.
    std::FILE* to_ = nullptr;
};

/// Writes events of Chrome's trace format, one a line.
class event_writer {
public:
    event_writer(trace_output& to, std::int64_t start) : to_(to), start_(start) {
        to_.add("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    }
    void finish() {
        to_.add("\n]}\n");
        to_.finish();
    }
    std::uint64_t count() const noexcept { return count_; }

    void begin(char phase, std::string_view name, std::uint32_t pid, std::uint64_t tid) {
        line_ = count_++ == 0 ? "\n" : ",\n";
        line_ += fmt::format("{{\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"name\":", phase, pid, tid);
        append_json_string(line_, name);
        in_arguments_ = false;
    }
    void category(std::string_view what) { line_ += fmt::format(",\"cat\":\"{}\"", what); }
    void time(std::int64_t ns) {
        const std::int64_t since = std::max<std::int64_t>(0, ns - start_);
        line_ += fmt::format(",\"ts\":{}.{:03}", since / 1000, since % 1000);
    }
    void duration(std::int64_t ns) {
        line_ += fmt::format(",\"dur\":{}.{:03}", ns / 1000, ns % 1000);
    }
    void id(std::uint64_t number) { line_ += fmt::format(",\"id\":\"0x{:x}\"", number); }
    void raw(std::string_view text) { line_ += text; }
    void argument(std::string_view key, std::string_view value) {
        if (value.empty()) return;
        open_argument(key);
        append_json_string(line_, value);
    }
    void argument(std::string_view key, std::uint64_t value) {
        open_argument(key);
        line_ += fmt::format("{}", value);
    }
    void end() {
        line_ += in_arguments_ ? "}}" : "}";
        to_.add(line_);
    }

private:
    void open_argument(std::string_view key) {
        line_ += in_arguments_ ? "," : ",\"args\":{";
        in_arguments_ = true;
        line_ += fmt::format("\"{}\":", key);
    }

    trace_output& to_;
    std::int64_t start_;
    std::uint64_t count_ = 0;
    std::string line_;
    bool in_arguments_ = false;
};

}  // namespace amalgam::detail

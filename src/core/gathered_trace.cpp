#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string_view>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/detail/json_text.hpp>
#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/core/gathered_trace.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "trace_file.hpp"

// Files are mapped, not read: a process may have recorded gigabytes. What they hold is checked as a
// stranger's would be: a killed process leaves a record half written, and a full disk a short file.

namespace amalgam {

namespace {

using namespace detail;
using id_bytes = std::array<std::byte, 8>;

/// A mapped file.
class trace_file {
public:
    /// Empty, and `why` says it, if it is none.
    static std::unique_ptr<trace_file> open(const std::string& path, std::string& why) {
        const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        struct stat what {};
        if (!file || ::fstat(file.get(), &what) != 0) {
            why = std::strerror(errno);
            return nullptr;
        }
        const auto bytes = static_cast<std::size_t>(what.st_size);
        why = "it is too short, or of another release of Amalgam";
        if (bytes < trace_chunks_at) return nullptr;
        void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
        if (at == MAP_FAILED) {
            why = std::strerror(errno);
            return nullptr;
        }
        std::unique_ptr<trace_file> made(new trace_file(static_cast<const char*>(at), bytes));
        return made->header().magic == trace_magic ? std::move(made) : nullptr;
    }
    trace_file(const trace_file&) = delete;
    trace_file& operator=(const trace_file&) = delete;
    ~trace_file() { ::munmap(const_cast<char*>(at_), bytes_); }

    const trace_file_header& header() const noexcept {
        return *reinterpret_cast<const trace_file_header*>(at_);
    }
    template <std::size_t Bytes>
    static std::string_view text_of(const char (&text)[Bytes]) noexcept {
        return {text, ::strnlen(text, Bytes)};
    }
    std::string_view text(std::uint32_t index) const noexcept {
        if (index == 0 || index >= trace_texts) return {};
        const auto& slot =
            reinterpret_cast<const trace_text_slot*>(at_ + trace_header_bytes)[index];
        const std::size_t length = slot.length.load(std::memory_order_acquire);
        return {slot.text, std::min(length == 0 ? 0 : length - 1, sizeof slot.text)};
    }
    /// Calls `see(head, record)` for each record, those of a thread in its order.
    template <typename See>
    void for_each(See&& see) const {
        const std::size_t chunks =
            std::min<std::size_t>(header().chunks.load(std::memory_order_acquire),
                                  (bytes_ - trace_chunks_at) / trace_chunk_bytes);
        for (std::size_t i = 0; i < chunks; ++i) {
            const char* const at = at_ + trace_chunks_at + i * trace_chunk_bytes;
            const auto& chunk = *reinterpret_cast<const trace_chunk_header*>(at);
            const std::size_t used = std::min<std::size_t>(
                chunk.used.load(std::memory_order_acquire), trace_chunk_bytes - sizeof chunk);
            const char* record = at + sizeof chunk;
            const char* const end = record + used;
            while (end - record >= static_cast<std::ptrdiff_t>(sizeof(trace_record_head))) {
                trace_record_head head{};
                std::memcpy(&head, record, sizeof head);
                if (head.bytes < sizeof head || head.bytes > end - record) break;
                see(head, record);
                record += head.bytes;
            }
        }
    }

private:
    trace_file(const char* at, std::size_t bytes) noexcept : at_(at), bytes_(bytes) {}

    const char* at_;
    std::size_t bytes_;
};

/// Whether a clock has ever shown it: of damaged records it hardly is.
bool is_time(std::uint64_t time) noexcept {
    return time < std::uint64_t{1} << 60;
}
bool has_times(const trace_span_bytes& span) noexcept {
    return is_time(span.begin) && is_time(span.middle) && is_time(span.end);
}
template <typename Record>
bool has_times(const Record& record) noexcept {
    return is_time(record.time);
}

template <typename Record>
bool read_record(const trace_record_head& head, const char* at, Record& to) noexcept {
    if (head.bytes != sizeof to) return false;
    std::memcpy(&to, at, sizeof to);
    return has_times(to);
}

bool is_span(const trace_record_head& head) noexcept {
    return head.kind >= static_cast<std::uint8_t>(span_kind::call) &&
           head.kind <= static_cast<std::uint8_t>(span_kind::batch);
}

id_bytes id_of(const std::byte (&id)[8]) noexcept {
    id_bytes to;
    std::memcpy(to.data(), id, sizeof id);
    return to;
}

std::uint64_t number_of(const id_bytes& id) noexcept {
    std::uint64_t number = 0;
    std::memcpy(&number, id.data(), sizeof number);
    return number;
}

struct process {
    std::unique_ptr<trace_file> file;
    std::size_t clock = 0;  // Index of its host's.
    std::uint32_t pid = 0;  // In the trace, where it is unique.
    traced_process told{};
};

// ---- clocks

/// The part of a call that each side has seen.
struct seen_call {
    std::uint64_t sent = 0, answered = 0;     // By the caller's clock.
    std::uint64_t arrived = 0, returned = 0;  // By the server's.
    std::size_t caller = 0, server = 0;       // Clocks, if the time is there.
};

/// To add to times of the second clock for those of the first.
struct clock_difference {
    std::int64_t offset = 0;
    std::int64_t error = -1;
};

struct host_clock {
    std::string boot;
    std::int64_t to_wall = 0;
    std::int64_t offset = 0;  // To the first.
    std::int64_t error = 0;
    bool known = false;
};

/// As NTP: both ways of a round trip are taken to be equally long, and the shortest is believed.
void compare(std::map<std::pair<std::size_t, std::size_t>, clock_difference>& all,
             const seen_call& call) {
    if (call.sent == 0 || call.arrived == 0 || call.caller == call.server) return;
    const auto there = static_cast<std::int64_t>(call.arrived - call.sent);
    const auto back = static_cast<std::int64_t>(call.returned - call.answered);
    const auto round =
        static_cast<std::int64_t>((call.answered - call.sent) - (call.returned - call.arrived));
    if (call.answered <= call.sent || round < 0) return;
    clock_difference& best = all[{call.caller, call.server}];
    if (best.error >= 0 && best.error <= round / 2) return;
    // How far the server's clock is ahead.
    const std::int64_t ahead = there / 2 + back / 2;
    best = {-ahead, round / 2};
}

void align_clocks(std::vector<host_clock>& clocks,
                  const std::map<std::pair<std::size_t, std::size_t>, clock_difference>& all) {
    clocks.front().known = true;
    for (bool found = true; found;) {
        found = false;
        for (const auto& [between, what] : all) {
            host_clock& caller = clocks[between.first];
            host_clock& server = clocks[between.second];
            if (caller.known == server.known) continue;
            found = true;
            const host_clock from = caller.known ? caller : server;
            host_clock& to = caller.known ? server : caller;
            to.offset = from.offset + (caller.known ? what.offset : -what.offset);
            to.error = from.error + what.error;
            to.known = true;
        }
    }
    for (host_clock& each : clocks) {
        if (each.known) continue;
        each.offset = each.to_wall - clocks.front().to_wall;
        each.error = -1;
    }
}

// ---- the file

/// A file that takes the place of another when it is complete.
class output {
public:
    explicit output(const std::string& file)
        : file_(file), part_(fmt::format("{}.{}.part", file, ::getpid())) {
        if (file_ == "/dev/stdout" || file_ == "-") {
            to_ = stdout;
        } else if (std::error_code none; std::filesystem::exists(file_, none) &&
                                         !std::filesystem::is_regular_file(file_, none)) {
            part_ = file_;  // A pipe or device.
            to_ = std::fopen(part_.c_str(), "we");
        } else {
            to_ = std::fopen(part_.c_str(), "wxe");
        }
        if (to_ == nullptr) refuse(errno);
    }
    output(const output&) = delete;
    output& operator=(const output&) = delete;
    ~output() {
        if (to_ == nullptr) return;
        if (to_ != stdout) std::fclose(to_);
        if (to_ != stdout && part_ != file_) ::unlink(part_.c_str());
    }

    void add(std::string_view text) {
        if (std::fwrite(text.data(), 1, text.size(), to_) != text.size()) refuse(errno);
    }
    void finish() {
        std::FILE* const to = std::exchange(to_, nullptr);
        int why = std::fflush(to) != 0 ? errno : 0;
        if (to != stdout && std::fclose(to) != 0 && why == 0) why = errno;
        if (why == 0 && to != stdout && part_ != file_ &&
            std::rename(part_.c_str(), file_.c_str()) != 0) {
            why = errno;
        }
        if (why == 0) return;
        if (to != stdout && part_ != file_) ::unlink(part_.c_str());
        refuse(why);
    }

private:
    [[noreturn]] void refuse(int why) const {
        throw error(errc::invalid,
                    fmt::format("cannot write the trace to \"{}\" ({}); expected a file in a "
                                "folder of yours with room for it; example: -o /tmp/trace.json",
                                file_, std::strerror(why)));
    }

    std::string file_;
    std::string part_;
    std::FILE* to_ = nullptr;
};

/// Writes events of Chrome's trace format, one a line.
class event_writer {
public:
    event_writer(output& to, std::int64_t start) : to_(to), start_(start) {
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

    output& to_;
    std::int64_t start_;
    std::uint64_t count_ = 0;
    std::string line_;
    bool in_arguments_ = false;
};

constexpr std::string_view kind_names[] = {"?",       "call",     "one-way call",
                                           "handler", "transfer", "batch"};
constexpr std::uint64_t first_lane = 10'000'000;  // Above the kernel's thread ids.
constexpr std::size_t most_lanes = 1000;

/// Slices of one track must not overlap. So spans get lanes, as many as overlap at most.
class lanes {
public:
    /// The lane that is free from `begin` on; it is taken until `end`.
    std::size_t take(std::int64_t begin, std::int64_t end) {
        if (!busy_.empty() && (busy_.top().first <= begin || count_ == most_lanes)) {
            const std::size_t lane = busy_.top().second;
            if (busy_.top().first > begin) return most_lanes;
            busy_.pop();
            busy_.emplace(end, lane);
            return lane;
        }
        busy_.emplace(end, count_);
        return count_++;
    }
    std::size_t count() const noexcept { return count_; }

private:
    using until = std::pair<std::int64_t, std::size_t>;
    std::priority_queue<until, std::vector<until>, std::greater<>> busy_;
    std::size_t count_ = 0;
};

struct timed_span {
    std::int64_t begin, middle, end;
    trace_span_bytes what;
};

/// A unit's state, from its events in the order of time.
struct unit_state {
    std::int64_t runs_since = -1;
    std::uint32_t runs_on = 0;
    std::int64_t waits_since = -1;
    std::uint32_t waits_for = 0;
    std::uint32_t name = 0;
};

/// From a call to its handler, each in a slice.
struct arrow {
    struct end {
        std::uint32_t pid = 0;  ///< 0: there is none.
        std::uint64_t tid = 0;
        std::int64_t time = 0;
    };
    end from;
    end to;
};
/// By the span of the call. Several calls of one span have one arrow.
using arrow_table = std::unordered_map<std::uint64_t, arrow>;

void write_arrows(event_writer& to, const arrow_table& all) {
    for (const auto& [id, one] : all) {
        if (one.from.pid == 0 || one.to.pid == 0) continue;
        for (const char phase : {'s', 'f'}) {
            const arrow::end& at = phase == 's' ? one.from : one.to;
            to.begin(phase, "call", at.pid, at.tid);
            to.category("call");
            to.id(id);
            to.time(at.time);
            if (phase == 'f') to.raw(",\"bp\":\"e\"");
            to.end();
        }
    }
}

/// Writes what one process recorded.
class process_writer {
public:
    process_writer(event_writer& to, const process& what, std::int64_t offset, arrow_table& arrows)
        : to_(to), process_(what), file_(*what.file), offset_(offset), arrows_(arrows) {}

    void write() {
        name_process();
        std::vector<std::pair<trace_unit_bytes, std::uint32_t>> units;
        std::map<std::uint32_t, std::string_view> threads;
        file_.for_each([&](const trace_record_head& head, const char* at) {
            trace_span_bytes span{};
            trace_unit_bytes unit{};
            trace_mark_bytes mark{};
            if (is_span(head) && read_record(head, at, span)) {
                spans_[head.kind].push_back({here(span.begin),
                                             span.middle == 0 ? 0 : here(span.middle),
                                             std::max(here(span.end), here(span.begin)), span});
            } else if (head.kind == trace_unit && read_record(head, at, unit)) {
                threads.try_emplace(head.thread);
                units.emplace_back(unit, static_cast<std::uint32_t>(units.size()));
            } else if (head.kind == trace_mark && read_record(head, at, mark)) {
                threads.try_emplace(head.thread);
                write_mark(mark);
            } else if (head.kind == trace_thread && read_record(head, at, mark)) {
                threads[head.thread] = file_.text(mark.name);
            }
        });
        for (const auto& [thread, name] : threads)
            name_track(thread,
                       name.empty() ? fmt::format("thread {}", thread)
                                    : fmt::format("{} {}", name, thread),
                       thread);
        std::sort(units.begin(), units.end(), [](const auto& a, const auto& b) {
            return std::pair(a.first.time, a.second) < std::pair(b.first.time, b.second);
        });
        for (const auto& each : units)
            write_unit(each.first);
        for (auto& [kind, all] : spans_)
            write_spans(kind, all);
    }

private:
    /// By the clock of the first host.
    std::int64_t here(std::uint64_t time) const noexcept {
        return static_cast<std::int64_t>(time) + offset_;
    }

    void name_process() {
        const traced_process& told = process_.told;
        to_.begin('M', "process_name", process_.pid, 0);
        const std::size_t slash = told.program.rfind('/');
        to_.argument(
            "name",
            fmt::format("{} {} on {}",
                        slash == told.program.npos ? told.program : told.program.substr(slash + 1),
                        told.pid, told.host));
        to_.end();
        if (told.dropped != 0) {
            to_.begin('M', "process_labels", process_.pid, 0);
            to_.argument("labels", fmt::format("{} records dropped", told.dropped));
            to_.end();
        }
    }

    void name_track(std::uint64_t tid, std::string_view name, std::uint64_t order) {
        to_.begin('M', "thread_name", process_.pid, tid);
        to_.argument("name", name);
        to_.end();
        to_.begin('M', "thread_sort_index", process_.pid, tid);
        to_.argument("sort_index", order);
        to_.end();
    }

    void write_mark(const trace_mark_bytes& mark) {
        to_.begin('i', file_.text(mark.name), process_.pid, mark.head.thread);
        to_.category("mark");
        to_.time(here(mark.time));
        to_.raw(",\"s\":\"p\"");
        to_.argument("what", file_.text(mark.detail));
        to_.end();
    }

    // task_event: created, running, yielded, parked, resumed, ended …
    void write_unit(const trace_unit_bytes& event) {
        unit_state& unit = units_[event.unit];
        const std::int64_t now = here(event.time);
        if (event.name != 0) unit.name = event.name;
        switch (event.head.what) {
            case 1:
                end_wait(unit, now);
                unit.runs_since = now;
                unit.runs_on = event.head.thread;
                break;
            case 3:
                unit.waits_since = now;
                unit.waits_for = event.waits_for;
                [[fallthrough]];
            case 2:
                end_run(unit, event, now);
                break;
            case 4:
                end_wait(unit, now);
                break;
            case 5:
                end_run(unit, event, now);
                units_.erase(event.unit);  // The address is used again.
                break;
            default:
                break;
        }
    }
    void end_run(unit_state& unit, const trace_unit_bytes& event, std::int64_t now) {
        if (unit.runs_since < 0 || unit.runs_on != event.head.thread) return;
        const std::string_view name = file_.text(unit.name);
        to_.begin('X', name.empty() ? "ULT" : name, process_.pid, unit.runs_on);
        to_.category("unit");
        to_.time(unit.runs_since);
        to_.duration(now - unit.runs_since);
        to_.raw(fmt::format(",\"args\":{{\"unit\":\"0x{:x}\"}}", event.unit));
        to_.end();
        unit.runs_since = -1;
    }
    /// Any number of ULTs wait at once, so these are asynchronous events, not slices.
    void end_wait(unit_state& unit, std::int64_t now) {
        if (unit.waits_since < 0) return;
        const std::string_view what = file_.text(unit.waits_for);
        const std::string name = fmt::format("waits for {}", what.empty() ? "something" : what);
        const std::uint64_t id = ++waits_;
        for (const char phase : {'b', 'e'}) {
            to_.begin(phase, name, process_.pid, 0);
            to_.category("wait");
            to_.id(static_cast<std::uint64_t>(process_.pid) << 32 | id);
            to_.time(phase == 'b' ? unit.waits_since : now);
            if (phase == 'b') to_.argument("ult", file_.text(unit.name));
            to_.end();
        }
        unit.waits_since = -1;
    }

    void write_spans(std::uint8_t kind, std::vector<timed_span>& all) {
        std::sort(all.begin(), all.end(),
                  [](const timed_span& a, const timed_span& b) { return a.begin < b.begin; });
        lanes free;
        for (const timed_span& each : all) {
            const std::size_t lane = free.take(each.begin, each.end);
            const std::uint64_t tid = first_lane * kind + lane;
            if (lane == most_lanes) {
                write_overlapping(each);
                continue;
            }
            write_span(each, tid);
        }
        for (std::size_t i = 0; i < free.count(); ++i)
            name_track(first_lane * kind + i, fmt::format("{}s {}", kind_names[kind], i + 1),
                       first_lane * kind + i);
    }

    void describe(const timed_span& span) {
        to_.argument("peer", file_.text(span.what.peer));
        to_.argument("bytes", span.what.bytes);
        to_.argument("status", name(static_cast<errc>(span.what.code)));
        if (number_of(id_of(span.what.id)) != 0) {
            to_.argument("span", hex(span.what.id));
            to_.argument("trace", hex(span.what.trace));
        }
        if (number_of(id_of(span.what.parent)) != 0) to_.argument("parent", hex(span.what.parent));
    }

    void slice(std::string_view name, std::string_view category, std::uint64_t tid,
               std::int64_t from, std::int64_t until) {
        to_.begin('X', name, process_.pid, tid);
        to_.category(category);
        to_.time(from);
        to_.duration(until - from);
    }

    void write_span(const timed_span& span, std::uint64_t tid) {
        const auto kind = static_cast<span_kind>(span.what.head.kind);
        const std::string_view given = file_.text(span.what.name);
        const std::string_view name = given.empty() ? kind_names[span.what.head.kind] : given;
        slice(name, kind_names[span.what.head.kind], tid, span.begin, span.end);
        describe(span);
        to_.end();
        const std::int64_t middle = std::clamp(span.middle, span.begin, span.end);
        const bool is_handler = kind == span_kind::handler;
        if (span.middle > span.begin) {
            slice(is_handler ? "waits for a stream" : "queued", "part", tid, span.begin, middle);
            to_.end();
        }
        const std::uint64_t id = number_of(id_of(span.what.id));
        if (id == 0) return;
        if (is_handler) {
            arrows_[id].to = {process_.pid, tid, span.begin};
        } else if (kind == span_kind::call || kind == span_kind::one_way) {
            arrows_[id].from = {process_.pid, tid, span.middle == 0 ? span.begin : middle};
        }
    }

    /// One of more than fit lanes.
    void write_overlapping(const timed_span& span) {
        const std::string_view given = file_.text(span.what.name);
        const std::uint64_t id = static_cast<std::uint64_t>(process_.pid) << 32 | ++waits_;
        for (const char phase : {'b', 'e'}) {
            to_.begin(phase, given.empty() ? kind_names[span.what.head.kind] : given, process_.pid,
                      0);
            to_.category(kind_names[span.what.head.kind]);
            to_.id(id);
            to_.time(phase == 'b' ? span.begin : span.end);
            if (phase == 'b') describe(span);
            to_.end();
        }
    }

    template <std::size_t Bytes>
    static std::string hex(const std::byte (&id)[Bytes]) {
        std::string text;
        for (const std::byte each : id)
            text += fmt::format("{:02x}", static_cast<unsigned>(each));
        return text;
    }

    event_writer& to_;
    const process& process_;
    const trace_file& file_;
    std::int64_t offset_;
    arrow_table& arrows_;
    std::map<std::uint8_t, std::vector<timed_span>> spans_;
    std::unordered_map<std::uint64_t, unit_state> units_;
    std::uint64_t waits_ = 0;
};

std::vector<process> open_all(std::span<const std::string> folders, gathered_trace& told) {
    std::vector<process> all;
    for (const std::string& folder : folders) {
        std::error_code wrong;
        std::filesystem::directory_iterator files(folder, wrong);
        for (; !wrong && files != std::filesystem::directory_iterator(); files.increment(wrong)) {
            if (files->path().extension() != ".amtrace") continue;
            std::string why;
            process next;
            next.file = trace_file::open(files->path().string(), why);
            if (next.file != nullptr) {
                all.push_back(std::move(next));
            } else {
                told.unreadable.push_back(fmt::format("{}: {}", files->path().string(), why));
            }
        }
        if (wrong) {
            throw error(errc::invalid,
                        fmt::format("cannot read the folder \"{}\" ({}); expected one that "
                                    "AMALGAM_TRACE named; example: /tmp/trace",
                                    folder, wrong.message()));
        }
    }
    std::sort(all.begin(), all.end(), [](const process& a, const process& b) {
        return a.file->header().started_wall < b.file->header().started_wall;
    });
    return all;
}

/// What identifies a process to the reader, and which clock it has.
std::vector<host_clock> introduce(std::vector<process>& all) {
    std::vector<host_clock> clocks;
    std::set<std::uint32_t> pids;
    for (process& each : all) {
        const trace_file_header& header = each.file->header();
        each.told.program = trace_file::text_of(header.program);
        each.told.host = trace_file::text_of(header.host);
        each.told.pid = header.pid;
        each.told.dropped = header.dropped.load(std::memory_order_relaxed);
        // exec keeps a pid, and hosts have the same ones.
        each.pid = header.pid;
        while (!pids.insert(each.pid).second)
            ++each.pid;
        const std::string boot(trace_file::text_of(header.boot));
        const auto at = std::find_if(clocks.begin(), clocks.end(),
                                     [&](const host_clock& one) { return one.boot == boot; });
        each.clock = static_cast<std::size_t>(at - clocks.begin());
        if (at == clocks.end()) {
            clocks.push_back({.boot = boot,
                              .to_wall = is_time(header.started) && header.started_wall >> 62 == 0
                                             ? static_cast<std::int64_t>(header.started_wall) -
                                                   static_cast<std::int64_t>(header.started)
                                             : 0});
        }
    }
    return clocks;
}

}  // namespace

gathered_trace write_chrome_trace(std::span<const std::string> folders, const std::string& file) {
    gathered_trace told;
    std::vector<process> all = open_all(folders, told);
    if (all.empty()) {
        throw error(
            errc::not_found,
            fmt::format("nothing was recorded{}{}; expected a program of Amalgam that makes "
                        "an engine; example: amalgam trace -- ./server",
                        told.unreadable.empty() ? "" : ": ",
                        told.unreadable.empty() ? "" : told.unreadable.front()));
    }
    std::vector<host_clock> clocks = introduce(all);
    std::unordered_map<std::uint64_t, seen_call> calls;
    std::int64_t start = std::int64_t{1} << 60;
    for (process& each : all) {
        each.file->for_each([&](const trace_record_head& head, const char* at) {
            ++each.told.records;
            trace_span_bytes span{};
            if (!is_span(head) || !read_record(head, at, span)) return;
            const std::uint64_t id = number_of(id_of(span.id));
            if (id == 0) return;
            const auto kind = static_cast<span_kind>(head.kind);
            if (kind == span_kind::handler) {
                seen_call& call = calls[id];
                call.arrived = std::max<std::uint64_t>(span.begin, 1);
                call.returned = span.end;
                call.server = each.clock;
            } else if (kind == span_kind::call || kind == span_kind::one_way) {
                seen_call& call = calls[id];
                call.sent = std::max<std::uint64_t>(span.middle != 0 ? span.middle : span.begin, 1);
                // A one-way call is never answered, and tells nothing of clocks.
                call.answered = kind == span_kind::call ? span.end : 0;
                call.caller = each.clock;
            }
        });
    }
    std::map<std::pair<std::size_t, std::size_t>, clock_difference> differences;
    for (const auto& [id, call] : calls)
        compare(differences, call);
    calls.clear();
    align_clocks(clocks, differences);
    for (process& each : all) {
        const host_clock& clock = clocks[each.clock];
        each.told.clock_offset = std::chrono::nanoseconds(clock.offset);
        each.told.clock_error = std::chrono::nanoseconds(clock.error);
        if (!is_time(each.file->header().started)) continue;
        start =
            std::min(start, static_cast<std::int64_t>(each.file->header().started) + clock.offset);
    }
    output out(file);
    event_writer events(out, start);
    arrow_table arrows;
    for (const process& each : all)
        process_writer(events, each, clocks[each.clock].offset, arrows).write();
    write_arrows(events, arrows);
    told.events = events.count();
    events.finish();
    for (process& each : all)
        told.processes.push_back(std::move(each.told));
    return told;
}

}  // namespace amalgam

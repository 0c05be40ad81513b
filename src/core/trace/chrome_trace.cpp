#include "chrome_trace.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

namespace {

struct named_kind {
    std::string_view one, many;
};
constexpr named_kind kinds[] = {{"?", "?"},
                                {"call", "calls"},
                                {"one-way call", "one-way calls"},
                                {"handler", "handlers"},
                                {"transfer", "transfers"},
                                {"batch", "batches"},
                                {"stream", "streams"},
                                {"values", "batches of values"}};
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

/// Writes what one process recorded.
class process_writer {
public:
    process_writer(event_writer& to, const recorded_process& what, std::int64_t offset,
                   arrow_table& arrows)
        : to_(to), process_(what), file_(*what.file), offset_(offset), arrows_(arrows) {}

    void write() {
        name_process();
        std::vector<std::pair<trace_unit_bytes, std::uint32_t>> units;
        std::vector<trace_mark_bytes> marks;
        std::map<std::uint32_t, std::uint32_t> threads;  // Their names.
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
                marks.push_back(mark);
            } else if (head.kind == trace_thread && read_record(head, at, mark)) {
                threads[head.thread] = mark.name;
            }
        });
        file_.read_texts();  // Only now: a process that still records adds names.
        for (const auto& [thread, number] : threads) {
            const std::string_view name = file_.text(number);
            name_track(thread,
                       name.empty() ? fmt::format("thread {}", thread)
                                    : fmt::format("{} {}", name, thread),
                       thread);
        }
        for (const trace_mark_bytes& each : marks)
            write_mark(each);
        std::sort(units.begin(), units.end(), [](const auto& a, const auto& b) {
            return std::pair(a.first.time, a.second) < std::pair(b.first.time, b.second);
        });
        for (const auto& each : units)
            write_unit(each.first);
        for (auto& [kind, all] : spans_)
            write_spans(kind, all);
        file_.forget_texts();
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
        std::string labels;
        if (told.dropped != 0) labels = fmt::format("{} records dropped", told.dropped);
        if (told.unnamed != 0)
            labels +=
                fmt::format("{}{} names without room", labels.empty() ? "" : ", ", told.unnamed);
        if (labels.empty()) return;
        to_.begin('M', "process_labels", process_.pid, 0);
        to_.argument("labels", labels);
        to_.end();
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
            name_track(first_lane * kind + i, fmt::format("{} {}", kinds[kind].many, i + 1),
                       first_lane * kind + i);
    }

    void describe(const timed_span& span) {
        to_.argument("peer", file_.text(span.what.peer));
        to_.argument("bytes", span.what.bytes);
        if (span.what.values != 0) to_.argument("values", std::uint64_t{span.what.values});
        to_.argument("status", name(static_cast<errc>(span.what.code)));
        if (number_of(id_of(span.what.id)) != 0) {
            to_.argument("span", to_hex(span.what.id));
            to_.argument("trace", to_hex(span.what.trace));
        }
        const std::uint64_t above = number_of(id_of(span.what.parent));
        if (above != 0 && above != number_of(id_of(span.what.id)))
            to_.argument("parent", to_hex(span.what.parent));
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
        const std::string_view name = given.empty() ? kinds[span.what.head.kind].one : given;
        slice(name, kinds[span.what.head.kind].one, tid, span.begin, span.end);
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
            handlers_[id] = {tid, span.begin, span.end};
        } else if (kind == span_kind::transfer || kind == span_kind::stream) {
            draw_from_handler(span, tid, id);
        } else if (kind == span_kind::call || kind == span_kind::one_way) {
            arrows_[id].from = {process_.pid, tid, span.middle == 0 ? span.begin : middle};
        }
    }

    /// From the handler that asked for it, which was written before: it is of a kind that comes
    /// first.
    void draw_from_handler(const timed_span& span, std::uint64_t tid, std::uint64_t id) {
        const auto above = handlers_.find(number_of(id_of(span.what.parent)));
        if (above == handlers_.end()) return;
        const handler_place& from = above->second;
        if (span.begin < from.begin || span.begin > from.end) return;
        arrows_[id] = {{process_.pid, from.tid, span.begin}, {process_.pid, tid, span.begin}};
    }

    /// One of more than fit lanes.
    void write_overlapping(const timed_span& span) {
        const std::string_view given = file_.text(span.what.name);
        const std::uint64_t id = static_cast<std::uint64_t>(process_.pid) << 32 | ++waits_;
        for (const char phase : {'b', 'e'}) {
            to_.begin(phase, given.empty() ? kinds[span.what.head.kind].one : given, process_.pid,
                      0);
            to_.category(kinds[span.what.head.kind].one);
            to_.id(id);
            to_.time(phase == 'b' ? span.begin : span.end);
            if (phase == 'b') describe(span);
            to_.end();
        }
    }

    event_writer& to_;
    const recorded_process& process_;
    recorded_file& file_;
    std::int64_t offset_;
    arrow_table& arrows_;
    std::map<std::uint8_t, std::vector<timed_span>> spans_;
    std::unordered_map<std::uint64_t, unit_state> units_;
    struct handler_place {
        std::uint64_t tid = 0;
        std::int64_t begin = 0, end = 0;
    };
    std::unordered_map<std::uint64_t, handler_place> handlers_;  ///< By span.
    std::uint64_t waits_ = 0;
};

}  // namespace

void write_process(event_writer& to, const recorded_process& what, std::int64_t offset,
                   arrow_table& arrows) {
    process_writer(to, what, offset, arrows).write();
}

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

}  // namespace amalgam::detail

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include <amalgam/core/otlp_trace.hpp>
#include <amalgam/core/status.hpp>

#include "otlp_spans.hpp"
#include "recorded_file.hpp"

namespace amalgam {

namespace {

using namespace detail;

constexpr std::size_t most_read_bytes = std::size_t{16} << 20;

/// One process, whose file is read as it grows.
class followed_process {
public:
    explicit followed_process(std::unique_ptr<recorded_file> file) : file_(std::move(file)) {
        const trace_file_header& header = file_->header();
        if (is_time(header.started) && header.started_wall >> 62 == 0) {
            to_wall_ = static_cast<std::int64_t>(header.started_wall) -
                       static_cast<std::int64_t>(header.started);
        }
    }

    const recorded_file& file() const noexcept { return *file_; }
    std::int64_t to_wall() const noexcept { return to_wall_; }
    const unit_waits& waits() const noexcept { return waits_; }

    /// True: there are spans to take. Each is given after a second look, by which all is read that
    /// happened before it, on whichever thread.
    bool read() {
        if (ready_ != 0) return true;
        std::size_t found = spans_.size();
        look();
        if (found == 0) {
            found = spans_.size();
            if (found == 0) return false;
            look();
        }
        ready_ = found;
        file_->read_texts();
        return true;
    }
    bool has_spans() const noexcept { return ready_ != 0; }
    read_span take() {
        const read_span next = spans_.front();
        spans_.pop_front();
        --ready_;
        return next;
    }
    void taken() noexcept {
        if (ready_ == 0) file_->forget_texts();
    }

private:
    void look() {
        waits_.forget_ended();
        file_->read_header();
        std::vector<trace_unit_bytes> events;
        file_->read_on(read_, most_read_bytes, [&](const trace_record_head& head, const char* at) {
            trace_span_bytes span{};
            trace_unit_bytes unit{};
            if (is_span(head) && read_record(head, at, span)) {
                if (number_of(id_of(span.id)) == 0 || has_no_trace(span)) return;
                const auto runs = running_.find(head.thread);
                spans_.push_back({span, runs != running_.end() ? runs->second : 0});
            } else if (head.kind == trace_unit && read_record(head, at, unit)) {
                if (head.what == 1)
                    running_[head.thread] = unit.unit;
                else if (head.what != 4)
                    running_[head.thread] = 0;
                events.push_back(unit);
            }
        });
        std::stable_sort(events.begin(), events.end(),
                         [](const auto& a, const auto& b) { return a.time < b.time; });
        for (const trace_unit_bytes& each : events)
            waits_.see(each);
    }
    static bool has_no_trace(const trace_span_bytes& span) noexcept {
        return std::all_of(std::begin(span.trace), std::end(span.trace),
                           [](std::byte each) { return each == std::byte{0}; });
    }

    std::unique_ptr<recorded_file> file_;
    std::int64_t to_wall_ = 0;
    std::vector<std::uint32_t> read_;
    std::unordered_map<std::uint32_t, std::uint64_t> running_;  // The unit, by thread.
    unit_waits waits_;
    std::deque<read_span> spans_;
    std::size_t ready_ = 0;
};

}  // namespace

class otlp_reader::state {
public:
    state(std::vector<std::string> folders, otlp_options options)
        : folders_(std::move(folders)), options_(std::move(options)) {}

    otlp_batch next() {
        find_files();
        for (std::size_t tried = 0; tried < all_.size(); ++tried) {
            turn_ = (turn_ + 1) % all_.size();
            followed_process& one = all_[turn_];
            if (one.read()) return batch_of(one);
        }
        return {};
    }
    std::size_t processes() const noexcept { return all_.size(); }
    std::uint64_t dropped() const noexcept {
        std::uint64_t sum = 0;
        for (const followed_process& each : all_)
            sum += each.file().header().dropped.load(std::memory_order_relaxed);
        return sum;
    }
    std::vector<std::string> unreadable() const {
        std::vector<std::string> all;
        for (const auto& [path, why] : unreadable_)
            all.push_back(fmt::format("{}: {}", path, why));
        return all;
    }

private:
    otlp_batch batch_of(followed_process& one) {
        otlp_batch batch;
        batch.json = begin_request(one.file(), options_.service_name, options_.resource_attributes);
        while (one.has_spans() && batch.spans < std::max<std::size_t>(1, options_.most_spans)) {
            append_span(batch.json, one.file(), one.take(), one.to_wall(), one.waits());
            ++batch.spans;
        }
        end_request(batch.json);
        one.taken();
        return batch;
    }

    void find_files() {
        for (const std::string& folder : folders_) {
            std::error_code wrong;
            std::filesystem::directory_iterator files(folder, wrong);
            for (; !wrong && files != std::filesystem::directory_iterator();
                 files.increment(wrong)) {
                if (files->path().extension() != ".amtrace") continue;
                std::string path = files->path().string();
                if (known_.count(path) != 0) continue;
                std::string why;
                if (auto file = recorded_file::open(path, why)) {
                    all_.emplace_back(std::move(file));
                    unreadable_.erase(path);
                    known_.insert(std::move(path));
                } else {
                    unreadable_[path] = why;  // It may just be beginning.
                }
            }
            if (wrong) {
                throw error(errc::invalid,
                            fmt::format("cannot read the folder \"{}\" ({}); expected one that "
                                        "AMALGAM_TRACE named; example: /tmp/trace",
                                        folder, wrong.message()));
            }
        }
    }

    std::vector<std::string> folders_;
    otlp_options options_;
    std::deque<followed_process> all_;
    std::unordered_set<std::string> known_;
    std::map<std::string, std::string> unreadable_;
    std::size_t turn_ = 0;
};

otlp_reader::otlp_reader(std::vector<std::string> folders, otlp_options options)
    : state_(std::make_unique<state>(std::move(folders), std::move(options))) {}
otlp_reader::~otlp_reader() = default;

otlp_batch otlp_reader::next() {
    return state_->next();
}
std::size_t otlp_reader::processes() const noexcept {
    return state_->processes();
}
std::uint64_t otlp_reader::dropped() const noexcept {
    return state_->dropped();
}
std::vector<std::string> otlp_reader::unreadable() const {
    return state_->unreadable();
}

}  // namespace amalgam

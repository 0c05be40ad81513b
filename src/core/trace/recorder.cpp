#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/detail/number_text.hpp>
#include <amalgam/core/detail/pinned_library.hpp>
#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/core/detail/thread_owned.hpp>
#include <amalgam/core/hash.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>

#include "file_format.hpp"

namespace amalgam::detail {

constinit std::atomic<bool> is_recording{false};

namespace {

constexpr std::size_t default_max_mib = 64;

struct free_chunk {
    trace_chunk_header* at = nullptr;
    std::size_t used = 0;
};

/// What one process records. Never destroyed: threads may record until the very end.
struct recorder {
    int file = -1;
    std::string path;
    dev_t device = 0;
    ino_t number = 0;
    trace_file_header* header = nullptr;
    trace_text_slot* texts = nullptr;
    std::uint32_t max_chunks = 0;
    std::uint64_t threshold = 0;    // Of 2^64 traces so many are recorded; all: the greatest.
    std::atomic<bool> full{false};  // No chunk can be had any more.
    std::mutex lock;                // Of what threads that ended have left, and of new chunks.
    std::array<free_chunk, 64> left{};
    std::size_t left_count = 0;
    const recorder* of_parent = nullptr;  // Of the process that forked this one, for leak checkers.
};

std::atomic<recorder*> current{nullptr};
std::atomic<bool> asked{false};
const recorder* last_made = nullptr;
constinit std::mutex starting;

std::uint64_t wall_time() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

bool is_file_of(const recorder& one, int file) noexcept {
    struct stat what {};
    return ::fstat(file, &what) == 0 && what.st_dev == one.device && what.st_ino == one.number;
}

/// The recorder's descriptor, or -1. Daemons close descriptors that they do not know, and what has
/// the number since then is a file of the program's, not to be written to. Called under its lock.
int file_of(recorder& one) noexcept {
    if (is_file_of(one, one.file)) return one.file;
    const int again =
        ::open(one.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (again < 0) return -1;
    if (!is_file_of(one, again)) {
        ::close(again);
        return -1;
    }
    one.file = again;
    return again;
}

/// One thread's place in its chunk.
class writer {
public:
    ~writer() {
        if (of_ == nullptr || of_ != current.load(std::memory_order_acquire)) return;
        const std::lock_guard hold(of_->lock);
        if (at_ != nullptr && of_->left_count < of_->left.size())
            of_->left[of_->left_count++] = {at_, used_};
    }

    void write(recorder& to, trace_record_head head, const void* rest, std::size_t rest_bytes) {
        const std::size_t bytes = sizeof head + rest_bytes;
        if (of_ != &to || at_ == nullptr ||
            used_ + bytes > trace_chunk_bytes - sizeof(trace_chunk_header)) {
            if (!take_chunk(to)) {
                to.header->dropped.fetch_add(1, std::memory_order_relaxed);
                return;
            }
        }
        head.bytes = static_cast<std::uint16_t>(bytes);
        head.thread = thread_;
        auto* const to_bytes = reinterpret_cast<char*>(at_ + 1) + used_;
        std::memcpy(to_bytes, &head, sizeof head);
        std::memcpy(to_bytes + sizeof head, rest, rest_bytes);
        used_ += bytes;
        at_->used.store(static_cast<std::uint32_t>(used_), std::memory_order_release);
    }

private:
    bool take_chunk(recorder& to) {
        const bool is_new = of_ != &to;
        if (is_new) thread_ = static_cast<std::uint32_t>(::syscall(SYS_gettid));
        of_ = &to;
        at_ = nullptr;
        if (to.full.load(std::memory_order_relaxed)) return false;
        {
            const std::lock_guard hold(to.lock);
            // Half a chunk at least, or the next would have to be found soon.
            if (is_new && to.left_count != 0 &&
                to.left[to.left_count - 1].used < trace_chunk_bytes / 2) {
                const free_chunk found = to.left[--to.left_count];
                at_ = found.at;
                used_ = found.used;
            } else if (!add_chunk(to)) {
                to.full.store(true, std::memory_order_relaxed);
                return false;
            }
        }
        if (is_new) tell_name(to);
        return true;
    }
    bool add_chunk(recorder& to) {
        const std::uint32_t index = to.header->chunks.load(std::memory_order_relaxed);
        const auto offset =
            static_cast<off_t>(trace_chunks_at + std::size_t{index} * trace_chunk_bytes);
        if (index >= to.max_chunks) return false;
        const int file = file_of(to);
        // Allocated, not only mapped: a full disk shows here, not as SIGBUS at some record.
        if (file < 0 || ::posix_fallocate(file, offset, trace_chunk_bytes) != 0) return false;
        void* const at =
            ::mmap(nullptr, trace_chunk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
        if (at == MAP_FAILED) return false;
        at_ = static_cast<trace_chunk_header*>(at);
        used_ = 0;
        to.header->chunks.store(index + 1, std::memory_order_release);
        return true;
    }
    void tell_name(recorder& to) {
        char name[16] = {};
        if (::pthread_getname_np(::pthread_self(), name, sizeof name) != 0) return;
        const struct {
            std::uint64_t time;
            std::uint32_t name, detail;
        } rest{trace_time(), trace_text(name), 0};
        write(to, {.bytes = 0, .kind = trace_thread, .what = 0, .thread = 0}, &rest, sizeof rest);
    }

    recorder* of_ = nullptr;
    trace_chunk_header* at_ = nullptr;
    std::size_t used_ = 0;
    std::uint32_t thread_ = 0;
};

void write(std::uint8_t kind, std::uint8_t what, const void* rest, std::size_t bytes) noexcept {
    recorder* const to = current.load(std::memory_order_acquire);
    if (to == nullptr) return;
    writer* const mine = thread_owned<writer>::get();
    if (mine == nullptr) {  // The thread is ending.
        to->header->dropped.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    mine->write(*to, {.bytes = 0, .kind = kind, .what = what, .thread = 0}, rest, bytes);
}

template <std::size_t Bytes>
void copy_text(char (&to)[Bytes], std::string_view from) {
    const std::size_t length = std::min(from.size(), Bytes - 1);
    std::memcpy(to, from.data(), length);
}

std::string first_word_of(const char* path) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    char text[256];
    const ssize_t got = ::read(file, text, sizeof text);
    ::close(file);
    const std::string_view all(text, got > 0 ? static_cast<std::size_t>(got) : 0);
    return std::string(all.substr(0, all.find_first_of(std::string_view("\n\0", 2))));
}

std::string_view variable(const char* name) noexcept {
    const char* const text = std::getenv(name);
    return text != nullptr ? text : "";
}

/// What is to be logged about the start of a recorder, once that has let go of its lock: a sink may
/// make an engine.
using log_lines = std::vector<std::string>;

/// A number of the environment. `least` and above; else as `fallback`, with a log line.
double number_of(const char* variable, double fallback, double most, const char* example,
                 log_lines& later) {
    const char* const text = ::secure_getenv(variable);
    if (text == nullptr || *text == '\0') return fallback;
    const double value = number_in<double>(text).value_or(-1);
    if (value >= 0 && value <= most) return value;
    later.push_back(fmt::format("{} is \"{}\", expected a number from 0 to {}; example: {}={}",
                                variable, text, most, variable, example));
    return fallback;
}

recorder* no_recorder(std::string_view folder, int why, log_lines& later) {
    later.push_back(
        fmt::format("nothing is traced: cannot write to the folder \"{}\" that AMALGAM_TRACE names "
                    "({}); expected a folder of yours with room for 1 MiB at least; example: "
                    "AMALGAM_TRACE=/tmp/trace",
                    folder, std::strerror(why)));
    return nullptr;
}

recorder* open_recorder(const std::string& folder, log_lines& later) {
    const std::string path = fmt::format("{}/{}-{:016x}.amtrace", folder, ::getpid(), random_u64());
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return no_recorder(folder, errno, later);
    struct stat what {};
    void* at = MAP_FAILED;
    int why = ::posix_fallocate(file, 0, static_cast<off_t>(trace_chunks_at));
    if (why == 0) {
        at = ::mmap(nullptr, trace_chunks_at, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at == MAP_FAILED) why = errno;
    }
    if (why == 0 && ::fstat(file, &what) != 0) why = errno;
    if (why != 0) {
        ::close(file);
        ::unlink(path.c_str());
        return no_recorder(folder, why, later);
    }
    auto* const made = new recorder;
    made->file = file;
    made->path = path;
    made->device = what.st_dev;
    made->number = what.st_ino;
    made->header = static_cast<trace_file_header*>(at);
    made->texts = reinterpret_cast<trace_text_slot*>(static_cast<char*>(at) + trace_header_bytes);
    const double mib = number_of("AMALGAM_TRACE_MIB", default_max_mib, trace_most_mib, "64", later);
    made->max_chunks = static_cast<std::uint32_t>(mib * 1024 * 1024 / trace_chunk_bytes);
    const double rate = number_of("AMALGAM_TRACE_RATE", 1, 1, "0.01", later);
    made->threshold =
        rate >= 1 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(rate * 18446744073709551616.0);
    trace_file_header& header = *made->header;
    header.pid = static_cast<std::uint32_t>(::getpid());
    header.started = trace_time();
    header.started_wall = wall_time();
    copy_text(header.boot, first_word_of("/proc/sys/kernel/random/boot_id"));
    ::gethostname(header.host, sizeof header.host - 1);
    copy_text(header.program, first_word_of("/proc/self/cmdline"));
    copy_text(header.service, variable("OTEL_SERVICE_NAME"));
    copy_text(header.attributes, variable("OTEL_RESOURCE_ATTRIBUTES"));
    header.magic = trace_magic;
    made->of_parent = std::exchange(last_made, made);
    return made;
}

// The child's records would land among its parent's. It begins a file of its own when it makes an
// engine.
constinit fork_handlers recorder_handlers([] { starting.lock(); }, [] { starting.unlock(); },
                                          [] {
                                              current.store(nullptr, std::memory_order_relaxed);
                                              asked.store(false, std::memory_order_relaxed);
                                              is_recording.store(false, std::memory_order_relaxed);
                                              starting.unlock();
                                          });

}  // namespace

namespace {

/// Asks the environment, once.
void start_recorder(const char* folder, log_lines& later) noexcept {
    const bool watches_forks = recorder_handlers.watch();
    const std::lock_guard hold(starting);
    if (asked.load(std::memory_order_relaxed)) return;
    try {
        if (watches_forks) current.store(open_recorder(folder, later), std::memory_order_release);
        is_recording.store(current.load(std::memory_order_relaxed) != nullptr);
    } catch (const std::exception&) {
        // Out of memory: nothing is recorded.
    }
    asked.store(true, std::memory_order_release);
}

}  // namespace

bool start_recording() noexcept {
    if (asked.load(std::memory_order_acquire)) return recording();
    // A setuid program must not write files where its caller says.
    const char* const folder = ::secure_getenv("AMALGAM_TRACE");
    if (folder == nullptr || *folder == '\0') return false;
    pin_library();
    log_lines later;
    start_recorder(folder, later);
    for (const std::string& each : later)
        log(log_level::warn, "trace", each);
    return recording();
}

bool sample_new_trace() noexcept {
    const recorder* const to = current.load(std::memory_order_acquire);
    if (to == nullptr) return false;
    return to->threshold == ~std::uint64_t{0} || random_u64() < to->threshold;
}

std::uint64_t trace_time() noexcept {
    const auto since = clock::steady().now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// Threads add texts without a lock: whoever sets the hash of a slot fills it. A thread that meets
// the slot before it is filled goes on, so a text may be there twice, which does no harm.
std::uint32_t trace_text(std::string_view text) noexcept {
    recorder* const to = current.load(std::memory_order_acquire);
    if (to == nullptr || text.empty()) return 0;
    text = text.substr(0, sizeof(trace_text_slot::text));
    const std::uint64_t hash = fnv1a(text) | 1;
    for (std::uint32_t tried = 0; tried < 16; ++tried) {
        const auto index = static_cast<std::uint32_t>((mix(hash) + tried) % trace_texts);
        if (index == 0) continue;  // Means: none.
        trace_text_slot& slot = to->texts[index];
        std::uint64_t there = slot.hash.load(std::memory_order_acquire);
        if (there == 0 &&
            slot.hash.compare_exchange_strong(there, hash, std::memory_order_acq_rel)) {
            std::memcpy(slot.text, text.data(), text.size());
            slot.length.store(static_cast<std::uint32_t>(text.size() + 1),
                              std::memory_order_release);
            return index;
        }
        const std::uint32_t length = slot.length.load(std::memory_order_acquire);
        if (there == hash && length == text.size() + 1 &&
            std::memcmp(slot.text, text.data(), text.size()) == 0) {
            return index;
        }
    }
    to->header->unnamed.fetch_add(1, std::memory_order_relaxed);
    return 0;
}

void record_span(const span_record& what) noexcept {
    trace_span_bytes out{};
    out.begin = what.begin;
    out.middle = what.middle;
    out.end = what.end;
    std::memcpy(out.trace, what.trace.data(), sizeof out.trace);
    std::memcpy(out.id, what.id.data(), sizeof out.id);
    std::memcpy(out.parent, what.parent.data(), sizeof out.parent);
    out.name = what.name;
    out.peer = what.peer;
    out.bytes = what.bytes;
    out.code = static_cast<std::uint32_t>(what.code);
    out.values = what.values;
    write(static_cast<std::uint8_t>(what.kind), 0, reinterpret_cast<const char*>(&out) + 8,
          sizeof out - 8);
}

void record_unit(std::uint8_t what, const void* unit, std::uint32_t name,
                 std::uint32_t waits_for) noexcept {
    trace_unit_bytes out{};
    out.time = trace_time();
    out.unit = reinterpret_cast<std::uintptr_t>(unit);
    out.name = name;
    out.waits_for = waits_for;
    write(trace_unit, what, reinterpret_cast<const char*>(&out) + 8, sizeof out - 8);
}

void record_mark(std::string_view what, std::string_view detail) noexcept {
    trace_mark_bytes out{};
    out.time = trace_time();
    out.name = trace_text(what);
    out.detail = trace_text(detail);
    write(trace_mark, 0, reinterpret_cast<const char*>(&out) + 8, sizeof out - 8);
}

}  // namespace amalgam::detail

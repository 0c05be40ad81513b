#include "fabric/transports/mpi/library.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <amalgam/core/hash.hpp>
#include <amalgam/core/status.hpp>

#include "fabric/transports/mpi/inbox.hpp"

namespace amalgam::detail {

/// A process, with the host on which its id is valid.
struct mpi_library::identity {
    std::uint64_t host;
    std::uint64_t process;
    std::uint64_t started;

    static identity of(pid_t process);
    friend bool operator==(const identity&, const identity&) = default;
};

/// A closed port, and its peers' ids of connections on which they have not said farewell.
struct mpi_library::leftover {
    std::unique_ptr<mpi_inbox> inbox;
    std::vector<std::uint64_t> awaited;
    std::chrono::steady_clock::time_point until;
};

namespace {

// How long the peers of a closed port may take to notice.
constexpr std::chrono::seconds longest_lingering{10};

// How long MPI may take to finalize after another rank, which it might wait for, has died.
constexpr std::chrono::seconds finalize_limit{5};

std::string first_line(const std::string& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

/// Start time of a process, in ticks since boot: with the process id, it identifies one process and
/// no later one. 0: there is none.
std::uint64_t start_of(pid_t process) {
    const std::string line = first_line(fmt::format("/proc/{}/stat", process));
    // The name, in parentheses, may contain anything; the 20th field after it is the start time.
    const std::size_t name_end = line.rfind(')');
    if (name_end == line.npos) return 0;
    const char* at = line.c_str() + name_end;
    for (int field = 0; field < 20 && at != nullptr; ++field)
        at = std::strchr(at + 1, ' ');
    return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

/// Sets an environment variable while it exists, unless the user has set it: processes started
/// later do not inherit it.
class variable_for_now {
public:
    variable_for_now(const char* name, const char* value)
        : name_(std::getenv(name) == nullptr ? name : nullptr) {
        if (name_ != nullptr) ::setenv(name_, value, 1);
    }
    ~variable_for_now() {
        if (name_ != nullptr) ::unsetenv(name_);
    }
    variable_for_now(const variable_for_now&) = delete;
    variable_for_now& operator=(const variable_for_now&) = delete;

private:
    const char* name_;
};

[[noreturn]] void refuse(std::string_view what) {
    throw error(errc::unsupported, std::string(what));
}

}  // namespace

mpi_library::identity mpi_library::identity::of(pid_t process) {
    struct stat numbers {};  // Process ids are per namespace.
    (void)::stat("/proc/self/ns/pid", &numbers);
    const std::string host =
        fmt::format("{} {}", first_line("/proc/sys/kernel/random/boot_id"), numbers.st_ino);
    return {fnv1a(host), static_cast<std::uint64_t>(process), start_of(process)};
}

mpi_library& mpi_library::start() {
    static std::mutex guard;
    const std::lock_guard lock(guard);
    static mpi_library* const only = new mpi_library;  // Lives as long as MPI may call back.
    if (only->forked_.is_in_child())
        refuse(
            "MPI was initialized before this process was forked and does not work in the child; "
            "fork first");
    return *only;
}

mpi_library::mpi_library() {
    int is_started = 0, is_over = 0, level = MPI_THREAD_SINGLE;
    MPI_Finalized(&is_over);
    if (is_over != 0) refuse("MPI was finalized in this process (MPI_Finalize)");
    MPI_Initialized(&is_started);
    if (is_started != 0) {
        MPI_Query_thread(&level);
    } else {
        // Started alone, Open MPI would start a daemon for this process and create a folder that
        // other processes, starting or ending at the same time, also create and remove, which made
        // it fail now and then.
        std::optional<variable_for_now> no_daemon, no_folder;
        if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && std::getenv("PMIX_RANK") == nullptr) {
            no_daemon.emplace("OMPI_MCA_ess_singleton_isolated", "1");
            no_folder.emplace("OMPI_MCA_orte_create_session_dirs", "0");
        }
        if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
            refuse("cannot initialize MPI (MPI_Init_thread failed)");
        is_ours_to_end_ = true;
    }
    if (level < MPI_THREAD_SERIALIZED)
        refuse(
            "MPI was initialized for a single thread, but ports run on several; initialize it with "
            "MPI_Init_thread(…, MPI_THREAD_MULTIPLE, …)");
    takes_turns_ = level < MPI_THREAD_MULTIPLE;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &ours_) != MPI_SUCCESS)
        refuse("cannot create a communicator (MPI_Comm_dup failed)");
    MPI_Comm_set_errhandler(ours_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ours_, &rank_);
    MPI_Comm_size(ours_, &size_);
    learn_identities();
    if (is_ours_to_end_) ::on_exit(&on_exit, this);
}

void mpi_library::learn_identities() {
    static_assert(sizeof(identity) == 24);
    const identity own = identity::of(::getpid());
    ranks_.resize(static_cast<std::size_t>(size_));
    if (MPI_Allgather(&own, sizeof own, MPI_BYTE, ranks_.data(), sizeof own, MPI_BYTE, ours_) !=
        MPI_SUCCESS)
        refuse("cannot exchange the ranks' identities (MPI_Allgather failed)");
}

std::string mpi_library::version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int bytes = 0;
    MPI_Get_library_version(text, &bytes);
    const std::string_view all(text, static_cast<std::size_t>(std::max(bytes, 0)));
    return std::string(all.substr(0, all.find(',')));
}

// ---- port numbers

std::optional<std::uint16_t> mpi_library::take_number(std::optional<std::uint16_t> wanted) {
    std::unique_ptr<leftover> replaced;  // Freed after unlocking: it may keep().
    const std::lock_guard lock(guard_);
    // Messages still arriving for a closed port go to a new port with its number, which ignores
    // them.
    const auto old = std::find_if(leftovers_.begin(), leftovers_.end(),
                                  [&](const auto& one) { return one->inbox->number() == wanted; });
    if (old != leftovers_.end()) {
        numbers_.erase(*wanted);
        replaced = std::move(*old);
        leftovers_.erase(old);
    }
    constexpr std::size_t all = 65535;
    if (wanted == 0) wanted.reset();
    if (numbers_.size() == all || (wanted && numbers_.count(*wanted) != 0)) return std::nullopt;
    // In turn, so that looking up an old port does not find another.
    while (!wanted && (next_number_ == 0 || numbers_.count(next_number_) != 0))
        ++next_number_;
    const std::uint16_t number = wanted ? *wanted : next_number_++;
    numbers_.insert(number);
    return number;
}

void mpi_library::give_back_number(std::uint16_t number) noexcept {
    const std::lock_guard lock(guard_);
    numbers_.erase(number);
}

bool mpi_library::is_taken(std::uint16_t number) const noexcept {
    const std::lock_guard lock(guard_);
    return numbers_.count(number) != 0 &&
           std::none_of(leftovers_.begin(), leftovers_.end(),
                        [&](const auto& one) { return one->inbox->number() == number; });
}

// ---- detection of ended ranks

unique_fd mpi_library::watch(int rank) const noexcept try {
    const identity& who = ranks_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || who.host != ranks_[static_cast<std::size_t>(rank_)].host) return {};
    const auto process = static_cast<pid_t>(who.process);
    unique_fd watched(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (watched && start_of(process) == who.started) return watched;
    // Already gone: a pipe without a writer is also readable.
    int ends[2];
    if ((watched || errno == ESRCH) && ::pipe2(ends, O_CLOEXEC) == 0) {
        ::close(ends[1]);
        return unique_fd(ends[0]);
    }
    return {};
} catch (const std::bad_alloc&) {
    return {};
}

// ---- leftovers of closed ports

void mpi_library::linger(std::unique_ptr<mpi_inbox> inbox,
                         std::vector<std::uint64_t> awaited) noexcept try {
    auto one =
        std::make_unique<leftover>(leftover{std::move(inbox), std::move(awaited),
                                            std::chrono::steady_clock::now() + longest_lingering});
    const std::lock_guard lock(guard_);
    leftovers_.push_back(std::move(one));
    has_leftovers_ = true;
} catch (const std::bad_alloc&) {
    // Data still in flight to the port then waits forever.
}

void mpi_library::keep(MPI_Request request, void* bytes) noexcept try {
    const std::lock_guard lock(guard_);
    kept_.push_back({request, bytes});
} catch (const std::bad_alloc&) {
    // Still kept: nothing else refers to it.
}

void mpi_library::tend() noexcept try {
    std::vector<std::unique_ptr<mpi_inbox>> ended;  // Freed after unlocking: they may keep().
    const std::unique_lock lock(guard_, std::try_to_lock);
    if (!lock) return;
    for (std::size_t i = 0; i < leftovers_.size();) {
        leftover& one = *leftovers_[i];
        one.inbox->take(64, [&](int, const_bytes bytes) {
            if (bytes.size() < mpi_word::wire_bytes) return;
            const mpi_header header = mpi_header::decode(bytes.data());
            if (header.kind == mpi_kind::farewell) std::erase(one.awaited, header.to);
        });
        const bool all_noticed = one.awaited.empty() && !one.inbox->is_busy();
        if (!all_noticed && std::chrono::steady_clock::now() < one.until) {
            ++i;
            continue;
        }
        ended.reserve(ended.size() + 1);
        ended.push_back(std::move(one.inbox));
        numbers_.erase(ended.back()->number());
        leftovers_[i].swap(leftovers_.back());
        leftovers_.pop_back();
    }
    has_leftovers_ = !leftovers_.empty();
} catch (const std::bad_alloc&) {
    // Retried later.
}

// ---- the end

bool mpi_library::some_rank_is_gone() const noexcept {
    for (int rank = 0; rank < size_; ++rank) {
        const unique_fd process = watch(rank);
        pollfd one{process.get(), POLLIN, 0};
        if (process && ::poll(&one, 1, 0) != 0) return true;
    }
    return false;
}

void mpi_library::on_exit(int code, void* self) {
    static_cast<mpi_library*>(self)->finish(code);
}

/// Finalizes MPI when the process exits. That waits for all other ranks, so it is skipped if one is
/// dead, and limited in time if one dies meanwhile.
void mpi_library::finish(int code) noexcept {
    int is_over = 0;
    MPI_Finalized(&is_over);
    // A fork() child, or a program that exits while ports run.
    if (is_over != 0 || forked_.is_in_child() || numbers_.size() > leftovers_.size()) return;
    if (some_rank_is_gone()) return;
    std::atomic<bool> has_ended{false};
    std::thread watchdog;
    try {
        watchdog = std::thread([&] {
            auto until = std::chrono::steady_clock::time_point::max();
            while (!has_ended) {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                const auto now = std::chrono::steady_clock::now();
                if (until == until.max() && some_rank_is_gone()) until = now + finalize_limit;
                if (now > until && !has_ended) {
                    std::fflush(nullptr);
                    ::_exit(code);
                }
            }
        });
    } catch (const std::system_error&) {
        // No watchdog then.
    }
    leftovers_.clear();
    MPI_Comm_free(&ours_);
    MPI_Finalize();
    has_ended = true;
    if (watchdog.joinable()) watchdog.join();
}

}  // namespace amalgam::detail

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/detail/no_thread.hpp>
#include <amalgam/core/detail/pinned_library.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "tasks/debug/running_trace.hpp"
#include "tasks/debug/stack_trace.hpp"
#include "tasks/debug/write_text.hpp"
#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/mutex_wait.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/streams/stream.hpp"

namespace amalgam {

const char* name(ult_state state) noexcept {
    switch (state) {
        case ult_state::ready:
            return "ready";
        case ult_state::running:
            return "running";
        case ult_state::parked:
            return "parked";
        case ult_state::created:
            return "created";
        case ult_state::ended:
            return "ended";
    }
    return "unknown";
}

namespace {

using frames = std::array<std::uintptr_t, 64>;

void keep(const frames& seen, std::size_t count, ult_info& of) {
    for (std::size_t i = 0; i < count; ++i)
        of.trace.push_back({seen[i], {}});
}

}  // namespace

struct detail::ult_registry::listing {
    std::vector<ult_info> all;
    /// What one that is parked waits for: the stack of the holder of a mutex, or its own waiter by
    /// which the ULT that it joins will find it.
    struct wait {
        std::size_t of = 0;  ///< Index in `all`.
        std::uint32_t holder_page = 0;
        std::uintptr_t joins_by = 0;
    };
    std::vector<wait> waits;
    /// Those that were running. They are traced last: their threads may take a while to answer.
    std::vector<std::pair<std::size_t, running_ult>> running;
};

// A hold freezes what is on a stack; a ULT that was inspected may continue at once.
void detail::ult_registry::look(std::span<ult_core* const> at, bool with_traces, listing& into) {
    const hold still(at);
    for (ult_core* each : at) {
        ult_info one;
        one.id = each;
        one.home = each->home();
        if (one.home == nullptr) continue;  // it has just ended
        one.name = each->name_seen();
        if (const dispatcher* where = still.running(*each)) {
            one.state = ult_state::running;
            one.stream = where->of().options().name;
            one.waited = time_since(where->batch_seen());
            into.running.push_back({into.all.size(), {where, where->thread_seen(), each}});
        } else {
            if (const dispatcher* of = still.stream_of(*one.home))
                one.stream = of->of().options().name;
            const waiter* const what = each->waiting_on.load(std::memory_order_relaxed);
            if (what != nullptr && what->state_.load(std::memory_order_acquire) == waiter::parked) {
                one.state = ult_state::parked;
                one.waits_for = what->what_;
                one.waited = time_since(each->parked_at);
                look_at_wait(*what, one, into);
            }
            if (with_traces) {
                frames seen{};  // where nothing can be traced, nobody fills it
                keep(seen, trace_suspended(each->saved.stack.pointer, each->memory().top(), seen),
                     one);
            }
        }
        hold::let_go(*each);
        into.all.push_back(std::move(one));
    }
}

// What it waits for exists as long as it is held: it has either not got the mutex, or not unlocked
// it. A shared mutex's list is locked for a few instructions only, and by nobody who is held.
void detail::ult_registry::look_at_wait(const waiter& what, ult_info& one, listing& into) {
    const std::size_t of = into.all.size();
    const auto* const node = reinterpret_cast<const wait_node*>(&what);  // its first member
    if (what.what_ == mutex_wait::text) {
        const class mutex& awaited = static_cast<const mutex_wait*>(node)->of;
        one.mutex = &awaited;
        into.waits.push_back({of, awaited.held_at_.load(std::memory_order_relaxed), 0});
    } else if (what.what_ == shared_mutex_wait::text) {
        shared_mutex& awaited = static_cast<const shared_mutex_wait*>(node)->of;
        one.mutex = &awaited;
        const std::lock_guard hold(awaited.waiting_);
        one.readers = awaited.readers_;
        if (awaited.writing_) into.waits.push_back({of, awaited.written_at_, 0});
    } else if (what.what_ == condition_wait::text) {
        one.mutex = &static_cast<const condition_wait*>(node)->with;
    } else if (std::string_view(what.what_) == "join") {
        into.waits.push_back({of, 0, reinterpret_cast<std::uintptr_t>(&what)});
    }
}

// Under the lock. One walk serves all that were listed from `first` on.
void detail::ult_registry::find_awaited(listing& of, std::size_t first) {
    if (first == of.waits.size()) return;
    for (ult_core* each = first_; each != nullptr; each = each->next_known_) {
        if (each->home() == nullptr) continue;
        const std::uint32_t low = stack_page_at(each->memory().low);
        const std::uint32_t pages = stack_page_at(each->memory().top()) - low;
        const std::uintptr_t joiner =
            each->joiner.load(std::memory_order_relaxed) & ~join_state::may_leave;
        for (std::size_t i = first; i < of.waits.size(); ++i) {
            const listing::wait& one = of.waits[i];
            const bool holds = one.holder_page != 0 && each->memory().low != nullptr &&
                               one.holder_page - low < pages;
            const bool ends = one.joins_by != 0 && joiner == one.joins_by;
            if (holds || ends) of.all[one.of].waits_for_ult = each;
        }
    }
}

// The lock keeps stacks mapped. ULTs are held in batches: those of a server must keep running.
std::vector<ult_info> detail::ult_registry::list(bool with_traces) {
    constexpr std::size_t held_at_once = 256;
    listing found;
    std::vector<ult_core*> some;
    some.reserve(held_at_once);
    std::unique_lock hold_list(lock_);
    for (ult_core* each = first_; each != nullptr; each = each->next_known_) {
        if (each->home() != nullptr && !each->was_left_behind()) some.push_back(each);
        if (some.size() < held_at_once) continue;
        look(some, with_traces, found);
        some.clear();
    }
    if (!some.empty()) look(some, with_traces, found);
    // Each is compared with all others: for programs that hang, not for ten thousand that queue.
    constexpr std::size_t most_explained = 1000;
    if (found.waits.size() > most_explained) found.waits.resize(most_explained);
    find_awaited(found, 0);
    hold_list.unlock();
    if (with_traces) {
        for (const auto& [index, what] : found.running) {
            frames seen{};  // where nothing can be traced, nobody fills it
            keep(seen, trace_running(what, seen), found.all[index]);
        }
    }
    return std::move(found.all);
}

std::vector<detail::ult_snapshot> detail::ult_registry::list_some(std::span<const void* const> ids,
                                                                  std::size_t most) {
    listing found;
    std::vector<const void*> wanted(ids.begin(), ids.end());
    std::vector<const void*> seen;
    const std::lock_guard hold_list(lock_);
    while (!wanted.empty() && seen.size() < most) {
        std::sort(wanted.begin(), wanted.end());
        std::vector<ult_core*> some;
        for (ult_core* each = first_; each != nullptr; each = each->next_known_) {
            if (seen.size() + some.size() == most) break;
            if (each->home() == nullptr || each->was_left_behind()) continue;
            if (std::binary_search(wanted.begin(), wanted.end(), each)) some.push_back(each);
        }
        wanted.clear();
        if (some.empty()) break;
        seen.insert(seen.end(), some.begin(), some.end());
        const std::size_t before = found.waits.size();
        look(some, false, found);
        find_awaited(found, before);
        for (std::size_t i = before; i < found.waits.size(); ++i) {
            const void* const next = found.all[found.waits[i].of].waits_for_ult;
            if (next != nullptr && std::find(seen.begin(), seen.end(), next) == seen.end())
                wanted.push_back(next);
        }
    }
    std::vector<ult_snapshot> all;
    for (ult_info& each : found.all)
        all.push_back({std::move(each), 0});
    for (const listing::wait& each : found.waits) {
        if (all[each.of].info.waits_for_ult == nullptr) all[each.of].holder_page = each.holder_page;
    }
    return all;
}

std::vector<const void*> detail::ult_registry::find_at(std::span<const void* const> addresses) {
    std::vector<const void*> found(addresses.size());
    std::vector<std::size_t> by_address(addresses.size());
    for (std::size_t i = 0; i < by_address.size(); ++i)
        by_address[i] = i;
    const auto below = [&](std::size_t one, const void* other) {
        return std::less<>()(addresses[one], other);
    };
    std::sort(by_address.begin(), by_address.end(),
              [&](std::size_t one, std::size_t other) { return below(one, addresses[other]); });
    const std::lock_guard hold_list(lock_);
    for (ult_core* each = first_; each != nullptr; each = each->next_known_) {
        if (each->home() == nullptr || each->memory().low == nullptr) continue;
        auto at = std::lower_bound(by_address.begin(), by_address.end(),
                                   static_cast<const void*>(each->memory().low), below);
        for (; at != by_address.end() && below(*at, each->memory().top()); ++at)
            found[*at] = each;
    }
    return found;
}

std::vector<detail::ult_snapshot> detail::snapshot_ults(std::span<const void* const> ids,
                                                        std::size_t most) {
    return ult_registry::list_some(ids, most);
}

std::chrono::nanoseconds detail::time_since(std::uint64_t ticks) noexcept {
    return ult_registry::time_since(ticks);
}

std::vector<const void*> detail::ults_at(std::span<const void* const> addresses) {
    return ult_registry::find_at(addresses);
}

std::vector<ult_info> list_ults(bool with_traces) {
    if (detail::hooks::telling()) {
        throw error(errc::invalid,
                    "list_ults() cannot be called in the function of a task_hook, as the ULT that "
                    "it was called for cannot be held: let a ULT or thread call it");
    }
    auto all = detail::ult_registry::list(with_traces);
    for (ult_info& each : all) {
        for (ult_frame& frame : each.trace)
            frame.text = detail::describe_address(frame.address);
    }
    return all;
}

namespace {

/// While it exists, writing to a pipe without a reader only gives EPIPE, no signal.
class no_broken_pipe_signal {
public:
    no_broken_pipe_signal() noexcept {
        sigemptyset(&broken_pipe_);
        sigaddset(&broken_pipe_, SIGPIPE);
        was_pending_ = is_pending();
        ::pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
    }
    ~no_broken_pipe_signal() {
        constexpr timespec now{};
        if (!was_pending_ && is_pending()) ::sigtimedwait(&broken_pipe_, nullptr, &now);
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    no_broken_pipe_signal(const no_broken_pipe_signal&) = delete;
    no_broken_pipe_signal& operator=(const no_broken_pipe_signal&) = delete;

private:
    static bool is_pending() noexcept {
        sigset_t pending;
        return ::sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    }
    sigset_t broken_pipe_;
    sigset_t before_;
    bool was_pending_;
};

}  // namespace

void print_ults(int fd) {
    std::string text;
    for (const ult_info& each : list_ults(true)) {
        text += fmt::format("ULT '{}' ({}) {}", each.name, each.id, name(each.state));
        if (each.state == ult_state::parked) {
            const std::chrono::duration<double> seconds = each.waited;
            text += fmt::format(" for {:.3f} s, waiting for {}", seconds.count(), each.waits_for);
            if (each.waits_for_ult != nullptr)
                text += fmt::format(" of ULT {}", each.waits_for_ult);
            if (each.mutex != nullptr)
                text += fmt::format(
                    "{}{}",
                    each.waits_for == detail::condition_wait::text ? " with mutex " : " at ",
                    each.mutex);
            if (each.readers != 0) text += fmt::format(" with {} readers", each.readers);
        }
        text += each.stream.empty()
                    ? fmt::format(", pool {}\n", static_cast<const void*>(each.home))
                    : fmt::format(", stream '{}'\n", each.stream);
        for (std::size_t i = 0; i < each.trace.size(); ++i)
            text += fmt::format("    #{} {:#x} {}\n", i, each.trace[i].address, each.trace[i].text);
    }
    detail::write_text(fd, text);
}

void detail::write_text(int fd, std::string_view text) noexcept {
    const no_broken_pipe_signal survives;
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written > 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        } else if (written == 0 || errno != EINTR) {
            return;
        }
    }
}

namespace {

std::atomic<int> asks_to_print{-1};
std::atomic<pid_t> printing_process{0};

// A fork() child has the handler and the descriptor, but not the thread: writing there would make
// its parent print.
extern "C" void amalgam_ask_to_print(int) {
    const int before = errno;
    if (::getpid() != printing_process.load(std::memory_order_relaxed)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written =
        ::write(asks_to_print.load(std::memory_order_relaxed), &one, sizeof one);
    errno = before;
}

void start_printer() {
    unique_fd asked(::eventfd(0, EFD_CLOEXEC));
    if (!asked) {
        throw error(status{errc::no_memory, errno},
                    "out of file descriptors to print ULTs on a signal; raise the limit on open "
                    "files (ulimit -n)");
    }
    const int fd = asked.get();
    try {
        std::thread([fd] {
            for (std::uint64_t times = 0; ::read(fd, &times, sizeof times) > 0 || errno == EINTR;) {
                try {
                    if (times != 0) print_ults(STDERR_FILENO);
                } catch (const std::exception&) {
                    continue;  // out of memory for the list: ask again
                }
            }
        }).detach();
    } catch (const std::system_error& why) {
        throw amalgam::detail::no_thread("to print ULTs on a signal", why);
    }
    asks_to_print.store(asked.release(), std::memory_order_relaxed);
}

}  // namespace

void print_ults_on_signal(int signal_number) {
    static std::mutex one_at_a_time;
    const std::lock_guard hold(one_at_a_time);
    detail::pin_library();
    // A fork() child that asks gets its own printing thread.
    if (printing_process.load(std::memory_order_relaxed) != ::getpid()) {
        const int of_parent = asks_to_print.exchange(-1, std::memory_order_relaxed);
        if (of_parent >= 0) ::close(of_parent);
        start_printer();
        printing_process.store(::getpid(), std::memory_order_relaxed);
    }
    struct sigaction wanted {};
    wanted.sa_handler = amalgam_ask_to_print;
    wanted.sa_flags = SA_RESTART | SA_ONSTACK;
    sigemptyset(&wanted.sa_mask);
    if (::sigaction(signal_number, &wanted, nullptr) == 0) return;
    const int why = errno;
    throw error(status{errc::invalid, why},
                fmt::format("signal {} cannot be used to print ULTs ({}), expected one that a "
                            "program can handle; example: SIGUSR1",
                            signal_number, std::strerror(why)));
}

}  // namespace amalgam

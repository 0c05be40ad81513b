#include "tasks/streams/stream.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/detail/pinned_library.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>

#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/left_behind.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/streams/affinity.hpp"
#include "tasks/streams/forks.hpp"
#include "tasks/streams/ranks.hpp"

namespace amalgam::detail {

void check_primary(const execution_stream_options& options) {
    if (!options.primary) return;
    if (options.driven) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot be both primary and driven: a primary stream "
                                "owns the calling thread, a driven one runs only in run_ready()",
                                options.name));
    }
    if (const stream* const here = stream::current()) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot be primary: the calling thread already runs "
                                "stream '{}'; create it on a plain thread, such as main()",
                                options.name, here->options().name));
    }
}

void refuse_null(const std::unique_ptr<scheduler>& order) {
    if (order != nullptr) return;
    throw error(errc::invalid,
                "the new scheduler is null; example: "
                "std::make_unique<priority_scheduler>(std::vector<pool*>{&mine})");
}

namespace {

void check_wakeable(const execution_stream_options& options) {
    if (!options.wakeable || (options.driven && options.clock == nullptr)) return;
    throw error(errc::invalid,
                fmt::format("stream '{}' cannot be wakeable, as only streams driven by the steady "
                            "clock can: set .driven = true, and leave .clock unset",
                            options.name));
}

[[noreturn]] void refuse_to_bind_driven(const std::string& stream) {
    throw error(errc::invalid,
                fmt::format("stream '{}' is driven and has no thread to bind: bind the thread that "
                            "calls run_ready()",
                            stream));
}

cpu_set wanted_cpus(const execution_stream_options& options) {
    if (options.cpu < -1) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' has .cpu = {}, expected the number of a core, or -1 "
                                "for any",
                                options.name, options.cpu));
    }
    if (options.driven && (options.cpu >= 0 || !options.cpus.empty()))
        refuse_to_bind_driven(options.name);
    if (options.cpu < 0) return options.cpus;
    if (!options.cpus.empty()) {
        throw error(
            errc::invalid,
            fmt::format("stream '{}' has both .cpu = {} and .cpus = \"{}\": set one of them",
                        options.name, options.cpu, options.cpus.text()));
    }
    cpu_set one;
    one.add(static_cast<unsigned>(options.cpu));
    return one;
}

void check_cpus(const std::string& stream, const cpu_set& wanted) {
    if (wanted.empty()) return;
    const cpu_set allowed = cpu_set::of_this_thread();
    cpu_set others = wanted;
    others -= allowed;
    if (others.empty()) return;
    throw error(errc::invalid,
                fmt::format("stream '{}' cannot be bound to core {}: it is not among the {} cores "
                            "that this thread may use; see `taskset -p $$`, or use -1 for any core",
                            stream, others.text(), allowed.size()));
}

/// First of all: nothing is made yet.
execution_stream_options checked(execution_stream_options options) {
    pin_library();
    watch_forks();
    check_primary(options);
    check_wakeable(options);
    return options;
}

}  // namespace

stream::stream(execution_stream& owner, std::unique_ptr<scheduler> order,
               execution_stream_options options)
    : owner_(owner),
      options_(checked(std::move(options))),
      bell_(&bell::take(!options_.driven || options_.wakeable)),
      runs_(*this, options_.primary),
      schedulers_(runs_, *bell_, options_.name, !options_.driven),
      loop_(runs_, schedulers_, stop_, *bell_, options_) {
    runs_.owner = &owner;
    try {
        schedulers_.begin(std::move(order));
        if (options_.primary) schedulers_.pools().attach_own();
        ult_registry::add(runs_);
        loop_.timers().open(runs_, *bell_);
        cpus_ = wanted_cpus(options_);
        check_cpus(options_.name, cpus_);
        rank_ = ranks::take(options_.rank);
        begin_running();
    } catch (...) {
        schedulers_.pools().detach_all();
        loop_.timers().close();
        ult_registry::remove(runs_);
        ranks::give_back(rank());
        throw;
    }
}

stream::~stream() {
    stop();
    ult_registry::remove(runs_);
    ranks::give_back(rank());
    left_behind::end_all(runs_.work().own_pool(), options_.name);
}

void stream::begin_running() {
    if (hooks::any()) hooks::tell(task_event::stream_started, owner_);
    if (options_.primary) {
        primary_ = std::make_unique<primary>(runs_, loop_, options_.name, cpus_);
    } else if (!options_.driven) {
        start();
    }
}

void stream::start() {
    try {
        const amalgam::detail::blocked_signals not_ours;
        const std::lock_guard hold(thread_lock_);
        thread_ = std::thread([this] { thread_main(); });
    } catch (const std::system_error& why) {
        throw error(status{errc::no_memory, why.code().value()},
                    fmt::format("cannot create a thread for stream '{}': {}; raise the limit on "
                                "processes (ulimit -u) or use fewer streams",
                                options_.name, why.what()));
    }
}

void stream::thread_main() {
    ::pthread_setname_np(::pthread_self(), options_.name.substr(0, 15).c_str());
    if (const cpu_set mine = cpus(); !mine.empty()) bind_thread(::pthread_self(), mine);
    {
        const stream_loop::turn mine(loop_);
        while (!stop_.asked())
            loop_.turn_once();
        finish_ready();
    }
    stop_.reach(stop_state::stage::thread_ended);
}

[[gnu::noinline]] void stream::refuse_to_run_ready() const {
    refuse_forked();
    throw error(errc::invalid,
                fmt::format("stream '{}' has its own thread: run_ready() is only for streams "
                            "created with .driven = true",
                            options_.name));
}

std::size_t stream::run_ready(std::size_t most) {
    if (forked() || !options_.driven) [[unlikely]]
        refuse_to_run_ready();
    return loop_.run_ready(most);
}

void stream::replace_scheduler(std::unique_ptr<scheduler> order) {
    refuse_null(order);
    refuse_forked();
    // A run() that is on the loop's stack must return before its scheduler goes.
    if (current() == this && !schedulers_.runs_loop()) return schedulers_.replace(std::move(order));
    if (options_.driven && current() != this) {
        const stream_loop::driver mine(loop_);
        return schedulers_.replace(std::move(order));
    }
    scheduler_stack::request mine{std::move(order), {}, nullptr};
    schedulers_.ask(mine);
    // Of this and stop(), the later one sees the other.
    if (stop_.asked_before_sleep()) {
        schedulers_.replace_if_asked(true);
    } else {
        loop_.wake();
    }
    mine.who.waits_for("scheduler to be replaced");
    mine.who.park();
    if (mine.refused) std::rethrow_exception(mine.refused);
}

void stream::set_rank(int to) {
    if (to == rank()) return;
    if (to < 0) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' cannot get rank {}, expected 0 to {}; the lowest that "
                                "is free is given only by execution_stream_options::rank = -1",
                                options_.name, to, ranks::most));
    }
    rank_ = [&] {
        const int taken = ranks::take(to);
        ranks::give_back(rank());
        return taken;
    }();
}

stream_state stream::state() const noexcept {
    if (stop_.reached(stop_state::stage::stopped)) return stream_state::stopped;
    if (stop_.asked()) return stream_state::stopping;
    const bool rests = options_.driven ? !loop_.driven_seen() : loop_.asleep_seen();
    return rests ? stream_state::asleep : stream_state::running;
}

cpu_set stream::cpus() const {
    const std::lock_guard hold(thread_lock_);
    return cpus_;
}

void stream::set_cpus(const cpu_set& to) {
    refuse_forked();
    if (options_.driven) refuse_to_bind_driven(options_.name);
    cpu_set kept = to;
    const std::lock_guard hold(thread_lock_);
    const bool has_thread = primary_ != nullptr || thread_.joinable();
    const pthread_t its = primary_ ? primary_->thread() : thread_.native_handle();
    if (const int failed = has_thread ? bind_thread(its, to) : 0; failed != 0 && failed != ESRCH) {
        bind_thread(its, cpus_);
        throw error(status{errc::invalid, failed},
                    fmt::format("stream '{}' cannot be bound to CPUs {}, as the process may not "
                                "use all of them: {}; see `taskset -p $$`",
                                options_.name, to.text(), std::strerror(failed)));
    }
    std::swap(cpus_, kept);
}

// Schedulers know the pool and would pop it.
void stream::lose_pool() noexcept {
    log(log_level::error, "tasks",
        "a pool was destroyed while a stream served it, so the stream was stopped: destroy the "
        "stream first, or give it another scheduler",
        {{"stream", options_.name}});
    try {
        stop_within(std::chrono::seconds(1));
    } catch (const error&) {
        if (current() != this) return;     // a primary stream's: nobody else can stop it
        schedulers_.pools().detach_all();  // by the stream's own work
    }
    schedulers_.lose_all();
    if (primary_) schedulers_.pools().attach_own();
}

std::chrono::nanoseconds stream::cpu_time() const noexcept {
    clockid_t id;
    timespec used{};
    if (!thread_.joinable() ||
        ::pthread_getcpuclockid(const_cast<std::thread&>(thread_).native_handle(), &id) != 0 ||
        ::clock_gettime(id, &used) != 0) {
        return {};
    }
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace amalgam::detail

#include "tasks/streams/stream.hpp"

#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/detail/pinned_library.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>

#include "tasks/streams/forks.hpp"
#include "tasks/ult/left_behind.hpp"
#include "tasks/ult/registry.hpp"

namespace amalgam::detail {

namespace {

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

void check_wakeable(const execution_stream_options& options) {
    if (!options.wakeable || (options.driven && options.clock == nullptr)) return;
    throw error(errc::invalid,
                fmt::format("stream '{}' cannot be wakeable, as only streams driven by the steady "
                            "clock can: set .driven = true, and leave .clock unset",
                            options.name));
}

void check_core(const execution_stream_options& options) {
    if (options.cpu < 0) return;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ::pthread_getaffinity_np(::pthread_self(), sizeof allowed, &allowed);
    if (options.cpu < CPU_SETSIZE && CPU_ISSET(options.cpu, &allowed)) return;
    throw error(errc::invalid,
                fmt::format("stream '{}' cannot be bound to core {}: it is not among the {} cores "
                            "that this thread may use; see `taskset -p $$`, or use -1 for any core",
                            options.name, options.cpu, CPU_COUNT(&allowed)));
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
    try {
        schedulers_.begin(std::move(order));
        if (options_.primary) schedulers_.pools().attach_own();
        ult_registry::add(runs_);
        loop_.timers().open(runs_, *bell_);
        check_core(options_);
        if (options_.primary) {
            primary_ = std::make_unique<primary>(runs_, loop_, options_.name, options_.cpu);
        } else if (!options_.driven) {
            start();
        }
    } catch (...) {
        schedulers_.pools().detach_all();
        loop_.timers().close();
        ult_registry::remove(runs_);
        throw;
    }
}

stream::~stream() {
    stop();
    ult_registry::remove(runs_);
    left_behind::end_all(runs_.work().own_pool(), options_.name);
}

class stream::driver {
public:
    explicit driver(stream& self) : self_(self) {
        if (!self_.driving_.exchange(true, std::memory_order_acquire)) return;
        throw error(errc::invalid,
                    fmt::format("stream '{}' is already running: call run_ready() from one thread "
                                "at a time, and not from the stream's own work",
                                self_.options_.name));
    }
    ~driver() { self_.driving_.store(false, std::memory_order_release); }
    driver(const driver&) = delete;
    driver& operator=(const driver&) = delete;

private:
    stream& self_;
};

void stream::start() {
    try {
        const amalgam::detail::blocked_signals not_ours;
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
    bind_to_core(options_.cpu);
    {
        const stream_loop::turn mine(loop_);
        while (!stop_.asked())
            loop_.turn_once();
        finish_ready();
    }
    stop_.reach(stop_state::stage::thread_ended);
}

std::size_t stream::run_ready(std::size_t most) {
    refuse_forked();
    if (!options_.driven) {
        throw error(errc::invalid,
                    fmt::format("stream '{}' has its own thread: run_ready() is only for streams "
                                "created with .driven = true",
                                options_.name));
    }
    const driver only(*this);
    return loop_.run_ready(most);
}

void stream::replace_scheduler(std::unique_ptr<scheduler> order) {
    if (order == nullptr) {
        throw error(errc::invalid,
                    "the new scheduler is null; example: "
                    "std::make_unique<priority_scheduler>(std::vector<pool*>{&mine})");
    }
    refuse_forked();
    // A run() that is on the loop's stack must return before its scheduler goes.
    const bool may_at_once = !schedulers_.runs_loop();
    if (current() == this && may_at_once) return schedulers_.replace(std::move(order));
    if (options_.driven && current() != this) {
        const driver mine(*this);
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

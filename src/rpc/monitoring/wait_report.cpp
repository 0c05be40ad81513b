#include "rpc/monitoring/wait_report.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/hash.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/detail/stream_call.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/wait_report.hpp>
#include <amalgam/tasks/extension/ult_snapshot.hpp>

#include "rpc/call/pending_call.hpp"
#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"

namespace amalgam {

namespace detail {

namespace {

constexpr std::string_view waits_name = "amalgam.waits";
constexpr std::string_view handlers_name = "amalgam.waits.handlers";
constexpr std::string_view answer_wait = "rpc reply";
constexpr std::string_view credit_wait = "its caller to read what it has sent";

std::uint64_t scrambled(std::uint64_t what) noexcept {
    static const std::uint64_t key = random_u64();
    return what == 0 ? 0 : std::max<std::uint64_t>(1, mix(what ^ key));
}
std::uint64_t number_of_thread(int id) noexcept {
    return id == 0 ? 0 : scrambled(std::uint64_t{1} << 63 | static_cast<std::uint64_t>(id));
}

bool asks(std::string_view procedure) noexcept {
    return procedure.starts_with(waits_name);
}

/// Which handlers run calls of the peer that asks.
struct told_handlers {
    std::uint64_t engine = 0;
    std::vector<std::uint64_t> handlers;  ///< For each call; 0: none.
    std::vector<std::string> addresses;   ///< For who knows only the connection that came.

    template <typename Archive>
    void serialize(Archive& a) {
        a(engine, handlers, addresses);
    }
};

told_handlers handlers_of(engine_core& core, const peer& caller,
                          const std::vector<std::uint64_t>& calls) {
    told_handlers told{number_of(&core), {}, core.addresses()};
    if (told.addresses.size() > limits::max_addresses_told)
        told.addresses.resize(limits::max_addresses_told);
    for (std::size_t i = 0; i < std::min(calls.size(), limits::max_open_calls_told); ++i)
        told.handlers.push_back(number_of(core.server().find(caller, calls[i])));
    return told;
}

bool is_reply(std::string_view wait) noexcept {
    return wait == answer_wait;
}
bool is_future(std::string_view wait) noexcept {
    return wait.find("future") != std::string_view::npos;
}
bool is_reader(std::string_view wait) noexcept {
    return wait == stream_call::reader_wait;
}

/// A call, and what the report does not show of it.
struct seen_call {
    open_call call;
    peer to;
    const void* waiter = nullptr;  ///< On the stack of who waits.
    /// Whether a unit that waits for this may be the one that waits for the call.
    bool (*awaits)(std::string_view) noexcept = &is_reply;
    bool full = false;  ///< Asking its peer would wait in a queue.
};

struct seen_handler {
    open_handler handler;
    const void* unit = nullptr;
    bool waits_for_credit = false;
};

/// What the engine's stream knows.
struct seen_engine {
    std::vector<seen_call> calls;
    std::vector<seen_handler> handlers;
    std::uint64_t left_out = 0;
};

/// `room`: messages that may be queued for a peer before another one waits.
void collect_calls(engine_core& core, std::size_t room, seen_engine& into) {
    core.caller().for_each_pending([&](const pending_call& each) {
        if (asks(each.what->name)) return;
        if (into.calls.size() == limits::max_open_calls_told) {
            ++into.left_out;
            return;
        }
        seen_call one;
        one.call.id = each.id;
        one.call.procedure = each.what->name;
        one.call.provider = each.provider;
        one.call.unsent = each.where != outgoing::at::nowhere;
        if (each.began != 0) {
            const std::uint64_t ago = static_cast<std::uint32_t>(coarse_cycles() - each.began);
            one.call.open = time_since(cycles() - (ago << 20));
        }
        one.to = each.id != 0 ? each.callee->name : each.to;
        one.full = each.id == 0 || each.callee->queued >= room;
        one.call.peer = core.peer_addresses().address_of(one.to);
        if (const auto* const waited = cast_if_typed<const waited_call>(each.record)) {
            one.waiter = waited->waiter_seen();
        } else if (const auto* const later = cast_if_typed<const future_core>(each.record)) {
            one.waiter = later->waiter_seen();
            one.awaits = &is_future;
        } else if (auto* const stream = cast_if_typed<stream_call>(each.record)) {
            one.waiter = stream->reader_seen();
            one.awaits = &is_reader;
        }
        into.calls.push_back(std::move(one));
    });
}

void collect_handlers(engine_core& core, seen_engine& into) {
    core.server().for_each_running([&](served_call& each) {
        if (asks(each.what().name)) return;
        if (into.handlers.size() == limits::max_open_calls_told) {
            ++into.left_out;
            return;
        }
        seen_handler one;
        one.handler.id = number_of(&each);
        one.handler.procedure = each.what().name;
        one.handler.provider = each.provider();
        one.handler.caller = core.peer_addresses().address_of(each.from());
        one.handler.one_way = each.one_way();
        one.unit = each.unit();
        one.waits_for_credit = each.waits_for_credit();
        one.handler.unit = number_of(one.unit);
        into.handlers.push_back(std::move(one));
    });
}

class unit_list {
public:
    explicit unit_list(seen_engine& of) : of_(of) { find_ults(), find_threads(); }
    std::vector<waiting_unit> take() { return std::move(all_); }

private:
    void find_ults() {
        std::vector<const void*> waiters;
        for (const seen_call& each : of_.calls)
            waiters.push_back(each.waiter);
        ults_ = ults_at(waiters);
        std::vector<const void*> ids = ults_;
        for (const seen_handler& each : of_.handlers)
            ids.push_back(each.unit);
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        for (ult_snapshot& each : snapshot_ults(ids, limits::max_units_told)) {
            waiting_unit one;
            one.id = number_of(each.info.id);
            one.name = std::move(each.info.name);
            one.state = each.info.state;
            one.waits_for = std::move(each.info.waits_for);
            one.waited = each.info.waited;
            one.stream = std::move(each.info.stream);
            for (const seen_handler& sender : of_.handlers)
                if (sender.waits_for_credit && sender.unit == each.info.id &&
                    one.waits_for == "semaphore")
                    one.waits_for = credit_wait;
            one.mutex = number_of(each.info.mutex);
            one.readers = each.info.readers;
            one.unit = number_of(each.info.waits_for_ult);
            if (each.holder_page != 0) one.unit = thread_at(each.holder_page);
            for (std::size_t i = 0; i < ults_.size(); ++i) {
                open_call& call = of_.calls[i].call;
                if (ults_[i] != each.info.id || !of_.calls[i].awaits(one.waits_for)) continue;
                call.unit = one.id;
                one.call = call.id;
                if (call.open.count() == 0) call.open = one.waited;
            }
            all_.push_back(std::move(one));
        }
    }
    void find_threads() {
        for (std::size_t i = 0; i < of_.calls.size(); ++i) {
            if (of_.calls[i].waiter == nullptr || ults_[i] != nullptr) continue;
            const std::uint64_t id = thread_at(stack_page_at(of_.calls[i].waiter));
            for (waiting_unit& each : all_) {
                if (id == 0 || each.id != id) continue;
                open_call& call = of_.calls[i].call;
                call.unit = id;
                each.call = call.id;
                each.waits_for = of_.calls[i].awaits == &is_future   ? "future"
                                 : of_.calls[i].awaits == &is_reader ? stream_call::reader_wait
                                                                     : answer_wait;
                each.waited = call.open;
                each.state = ult_state::parked;
            }
        }
    }
    std::uint64_t thread_at(std::uint32_t which_page) {
        if (!threads_) threads_.emplace();
        const sleeping_threads::thread who = threads_->at(which_page);
        const std::uint64_t id = number_of_thread(who.id);
        const bool known = std::any_of(all_.begin(), all_.end(),
                                       [&](const waiting_unit& each) { return each.id == id; });
        if (id == 0 || known) return id;
        waiting_unit one;
        one.id = id;
        one.thread = who.id;
        one.name = who.name;
        one.state = ult_state::parked;
        all_.push_back(std::move(one));
        return id;
    }

    seen_engine& of_;
    std::vector<const void*> ults_;  ///< For each call.
    std::optional<sleeping_threads> threads_;
    std::vector<waiting_unit> all_;
};

peer_answer answer_in(status failed) noexcept {
    switch (failed.code) {
        case errc::timed_out:
            return peer_answer::silent;
        case errc::disconnected:
        case errc::unreachable:
            return peer_answer::gone;
        default:
            return peer_answer::refused;
    }
}

bool is_too_much(const std::vector<std::string>& addresses) noexcept {
    return addresses.size() > limits::max_addresses_told ||
           std::any_of(addresses.begin(), addresses.end(), [](const std::string& each) {
               return each.size() > limits::max_address_bytes_told;
           });
}

/// Asks the peers of all calls at once.
void ask_peers(engine& here, std::vector<seen_call>& calls, std::chrono::milliseconds limit) {
    struct question {
        peer to;
        std::vector<seen_call*> about;
        std::optional<future<told_handlers>> answer;
    };
    std::vector<question> all;
    for (seen_call& each : calls) {
        if (each.full) {
            if (each.call.id != 0) each.call.answer = peer_answer::silent;
            continue;
        }
        auto found = std::find_if(all.begin(), all.end(),
                                  [&](const question& one) { return one.to == each.to; });
        if (found == all.end()) {
            if (all.size() == limits::max_peers_asked) continue;
            found = all.insert(all.end(), question{each.to, {}, {}});
        }
        found->about.push_back(&each);
    }
    const auto ask =
        here.procedure<told_handlers(std::vector<std::uint64_t>)>(std::string(handlers_name));
    for (question& each : all) {
        std::vector<std::uint64_t> ids;
        for (const seen_call* one : each.about)
            ids.push_back(one->call.id);
        each.answer = ask.on(each.to).within(limit).start(ids);
    }
    for (question& each : all) {
        told_handlers told;
        peer_answer how = peer_answer::told;
        try {
            told = each.answer->get();
            // It may lie, and is told on.
            if (told.handlers.size() != each.about.size() || is_too_much(told.addresses))
                how = peer_answer::refused;
        } catch (const error& why) {
            if (why.code() == errc::canceled || why.code() == errc::closed) throw;
            how = answer_in(why.code());
        }
        for (std::size_t i = 0; i < each.about.size(); ++i) {
            open_call& call = each.about[i]->call;
            call.answer = how;
            if (how != peer_answer::told) continue;
            call.engine = told.engine;
            call.handler = told.handlers[i];
            call.listens_at = told.addresses;
        }
    }
}

wait_report report_of(engine& here, std::chrono::milliseconds asking) {
    engine_core& core = here.core();
    wait_report report;
    report.engine = number_of(&core);
    const engine_options options = core.configuration().options;
    report.name = options.name;
    report.process = ::getpid();
    report.host = host_name();
    report.addresses = core.addresses();
    seen_engine seen;
    core.on_stream([&] {
        collect_calls(core, options.max_queued / 2, seen);
        collect_handlers(core, seen);
    });
    report.units = unit_list(seen).take();
    ask_peers(here, seen.calls, asking);
    for (seen_call& each : seen.calls)
        report.calls.push_back(std::move(each.call));
    for (seen_handler& each : seen.handlers)
        report.handlers.push_back(std::move(each.handler));
    report.left_out = seen.left_out;
    return report;
}

}  // namespace

std::uint64_t number_of(const void* what) noexcept {
    return scrambled(std::uint64_t{reinterpret_cast<std::uintptr_t>(what)});
}

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

void define_waits(engine& here, const std::optional<allow_list>& to) {
    engine_core& core = here.core();
    // Not where handlers run: they may hang.
    here.define(library_name{waits_name},
                [&here](std::uint32_t milliseconds) {
                    return report_of(here, std::chrono::milliseconds(
                                               std::min(milliseconds, limits::longest_asking_ms)));
                },
                {.in = &core.stream().main_pool(), .allow = to});
    here.define(library_name{handlers_name},
                [&core](std::vector<std::uint64_t> calls) {
                    return handlers_of(core, call_context::current().from(), calls);
                },
                {.run = handler::inline_});
}

}  // namespace detail

wait_report read_waits(engine& here, std::chrono::milliseconds asking) {
    return detail::report_of(here, asking);
}

wait_report read_waits(engine& here, const peer& there, std::chrono::milliseconds timeout) {
    const auto asking = std::clamp(timeout / 2, std::chrono::milliseconds(1),
                                   std::chrono::milliseconds(detail::limits::longest_asking_ms));
    try {
        return here.procedure<wait_report(std::uint32_t)>(std::string(detail::waits_name))
            .on(there)
            .within(timeout)(static_cast<std::uint32_t>(asking.count()));
    } catch (const error& why) {
        if (why.code() != errc::not_found) throw;
        throw error(errc::not_found,
                    fmt::format("{} does not say what it waits for; to let it, call "
                                "am::offer_metrics(engine) there",
                                there.address()));
    }
}

}  // namespace amalgam

#include "why/chains.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "call/shown.hpp"

namespace amalgam::tool {
namespace {

using kind = wait_step::kind;

/// By which the handler of a stream asks its caller for the values.
constexpr std::string_view values_procedure = "amalgam.stream";
constexpr std::string_view value_wait = "value of an rpc stream";

/// A chain has each step once, and there are at most so many; of all chains together, so many that
/// who lies of a thousand that wait for each other does not fill a terminal.
constexpr std::size_t longest_chain = 1000, most_steps = 10000;

template <typename Items>
std::optional<std::size_t> index_of(const Items& in, std::uint64_t id) noexcept {
    if (id == 0) return std::nullopt;
    for (std::size_t i = 0; i < in.size(); ++i)
        if (in[i].id == id) return i;
    return std::nullopt;
}

}  // namespace

const asked_engine* all_waits::find(std::uint64_t engine) const noexcept {
    for (const asked_engine& each : engines)
        if (engine != 0 && each.told.engine == engine) return &each;
    return nullptr;
}

namespace {

const open_call& call_at(const all_waits& of, const wait_step& at) {
    return of.engines[at.engine].told.calls[at.index];
}
const open_handler& handler_at(const all_waits& of, const wait_step& at) {
    return of.engines[at.engine].told.handlers[at.index];
}
const waiting_unit& unit_at(const all_waits& of, const wait_step& at) {
    return of.engines[at.engine].told.units[at.index];
}

std::string no_handler(const all_waits& of, const open_call& call) {
    const std::string peer = shown(call.peer);
    switch (call.answer) {
        case peer_answer::silent: {
            const auto seen = of.outside.find(call.peer);
            const bool known = seen != of.outside.end() && !seen->second.empty();
            return fmt::format(
                "{} does not answer: it is stopped, something holds its first stream without a "
                "wait, or the network is down{}{}",
                peer, known ? ". Seen from outside: " : "", known ? seen->second : "");
        }
        case peer_answer::refused:
            return fmt::format(
                "{} answers, but does not say what its handlers wait for; to let it, call "
                "am::offer_metrics(engine) there",
                peer);
        case peer_answer::gone:
            return fmt::format("{} is gone: the connection to it has ended", peer);
        case peer_answer::told:
            break;
        default:
            if (call.id == 0) return "it failed, and waits for its next attempt";
            return fmt::format("{} was not asked, as too many peers have open calls", peer);
    }
    if (call.unsent) return "the request waits for room at the port: the peer does not read it";
    if (call.handler == 0)
        return fmt::format("no handler of {} runs it: the request or its answer is under way",
                           peer);
    const auto failed = of.unasked.find(call.peer);
    if (failed != of.unasked.end())
        return fmt::format("its handler runs, but {} could not be asked: {}", peer,
                           shown(failed->second, 1000));
    return fmt::format("its handler ended while {} was asked", peer);
}

std::string lasting(std::chrono::nanoseconds time) {
    if (time.count() <= 0) return {};
    const double seconds = std::chrono::duration<double>(time).count();
    return seconds < 1 ? fmt::format(", for {:.0f} ms", seconds * 1000)
                       : fmt::format(", for {:.1f} s", seconds);
}

std::string name_of(const waiting_unit& who) {
    if (who.thread != 0)
        return who.name.empty() ? fmt::format("thread {}", who.thread)
                                : fmt::format("thread {} \"{}\"", who.thread, shown(who.name, 64));
    if (!who.name.empty()) return fmt::format("ULT \"{}\"", shown(who.name, 64));
    return fmt::format("ULT {:08x}", static_cast<std::uint32_t>(who.id));
}

std::string several(std::size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// As other lines about the same one have it.
std::string name_of_mutex(const waiting_unit& who) {
    return fmt::format("{:08x}", static_cast<std::uint32_t>(who.mutex));
}

/// What a unit that waits for nothing known does.
std::string state_of(const waiting_unit& who) {
    if (who.state == ult_state::running)
        return fmt::format(
            "it runs, and has not let go of stream \"{}\"{}: it computes, or blocks in a system "
            "call",
            shown(who.stream, 64), lasting(who.waited));
    if (who.state != ult_state::parked) return "it is ready, but no stream has run it yet";
    if (who.waits_for.empty()) return "what it waits for is not known";
    if (who.waits_for == "sleep") return fmt::format("it sleeps{}", lasting(who.waited));
    if (who.waits_for == "condition variable")
        return fmt::format(
            "it waits for a condition variable that goes with mutex {}{}, and nobody has notified "
            "it",
            name_of_mutex(who), lasting(who.waited));
    if (who.waits_for == "shared mutex" && who.readers != 0)
        return fmt::format("it waits for shared mutex {}, which {} hold{}{}", name_of_mutex(who),
                           several(who.readers, "reader"), who.readers == 1 ? "s" : "",
                           lasting(who.waited));
    if (who.waits_for == "mutex" || who.waits_for == "shared mutex")
        return fmt::format(
            "it waits for a {}{}, which no ULT holds and no thread that sleeps: a coroutine "
            "does, or a thread that runs",
            who.waits_for, lasting(who.waited));
    if (who.waits_for == "rpc reply")
        return fmt::format("it waits for the answer to a call of another engine of its process{}",
                           lasting(who.waited));
    return fmt::format("it waits for: {}{}", shown(who.waits_for, 64), lasting(who.waited));
}

/// The next step, or why there is none.
std::optional<wait_step> next_of(const all_waits& of, const wait_step& at, std::string& end) {
    if (at.what == kind::call) {
        const open_call& call = call_at(of, at);
        const asked_engine* const there =
            call.answer == peer_answer::told ? of.find(call.engine) : nullptr;
        const auto found = there != nullptr ? index_of(there->told.handlers, call.handler)
                                            : std::optional<std::size_t>();
        if (found)
            return wait_step{static_cast<std::size_t>(there - of.engines.data()), kind::handler,
                             *found};
        end = no_handler(of, call);
        return std::nullopt;
    }
    const wait_report& here = of.engines[at.engine].told;
    if (at.what == kind::handler) {
        const open_handler& handler = handler_at(of, at);
        if (const auto found = index_of(here.units, handler.unit))
            return wait_step{at.engine, kind::unit, *found};
        end = handler.procedure == values_procedure
                  ? "who sends the stream has not sent the next value, and has not finished it"
              : handler.unit == 0
                  ? "its handler has returned, and a responder of the program is still to answer"
                  : "its handler has just ended";
        return std::nullopt;
    }
    const waiting_unit& unit = unit_at(of, at);
    if (const auto found = index_of(here.calls, unit.call))
        return wait_step{at.engine, kind::call, *found};
    if (const auto found = index_of(here.units, unit.unit))
        return wait_step{at.engine, kind::unit, *found};
    end = state_of(unit);
    return std::nullopt;
}

class chain_finder {
public:
    explicit chain_finder(const all_waits& of) : of_(of) {}

    std::vector<wait_chain> find() {
        const wait_report& first = of_.engines.front().told;
        // Calls of handlers are in the chains of these.
        for (std::size_t i = 0; i < first.calls.size(); ++i)
            if (!is_of_handler(first, first.calls[i])) follow({0, kind::call, i});
        for (std::size_t i = 0; i < first.handlers.size(); ++i)
            follow({0, kind::handler, i});
        for (std::size_t i = 0; i < first.calls.size(); ++i)
            follow({0, kind::call, i});
        return std::move(chains_);
    }

private:
    static bool is_of_handler(const wait_report& in, const open_call& call) {
        return call.unit != 0 &&
               std::any_of(in.handlers.begin(), in.handlers.end(),
                           [&](const open_handler& each) { return each.unit == call.unit; });
    }
    void follow(wait_step at) {
        if (was_seen(at)) return;
        wait_chain chain;
        for (std::optional<wait_step> next = at; next;) {
            const auto before = std::find(chain.steps.begin(), chain.steps.end(), *next);
            if (before != chain.steps.end()) {
                chain.cycle = static_cast<std::size_t>(before - chain.steps.begin());
                break;
            }
            if (chain.steps.size() == longest_chain ||
                (steps_ >= most_steps && !chain.steps.empty())) {
                chain.end = "the chain is too long to be followed";
                break;
            }
            chain.steps.push_back(*next);
            ++steps_;
            seen_.insert({next->engine, static_cast<int>(next->what), next->index});
            next = next_of(of_, *next, chain.end);
        }
        chains_.push_back(std::move(chain));
    }
    bool was_seen(const wait_step& at) const {
        return seen_.count({at.engine, static_cast<int>(at.what), at.index}) != 0;
    }

    const all_waits& of_;
    std::set<std::tuple<std::size_t, int, std::size_t>> seen_;
    std::size_t steps_ = 0;  // Of all chains.
    std::vector<wait_chain> chains_;
};

/// "bank" (process 4711)
std::string place_of(const all_waits& of, std::size_t engine) {
    const wait_report& told = of.engines[engine].told;
    return fmt::format("\"{}\" (process {})", shown(told.name, 64), told.process);
}

}  // namespace

std::string deadlock_of(const all_waits& of, const wait_chain& chain) {
    const auto begin = chain.steps.begin() + static_cast<std::ptrdiff_t>(*chain.cycle);
    std::vector<wait_step> cycle(begin, chain.steps.end());
    // It reads best from one who serves nobody: there it began.
    for (std::size_t i = 0; i < cycle.size(); ++i) {
        const wait_step& before = cycle[(i + cycle.size() - 1) % cycle.size()];
        if (cycle[i].what != kind::unit || before.what == kind::handler) continue;
        std::rotate(cycle.begin(), cycle.begin() + static_cast<std::ptrdiff_t>(i), cycle.end());
        break;
    }
    std::set<std::pair<std::string, std::int32_t>> processes;
    bool by_mutex = false;
    std::string clauses;
    for (std::size_t i = 0; i < cycle.size(); ++i) {
        const wait_report& here = of.engines[cycle[i].engine].told;
        processes.insert({here.host, here.process});
        if (cycle[i].what != kind::unit) continue;
        const wait_step& before = cycle[(i + cycle.size() - 1) % cycle.size()];
        const wait_step& after = cycle[(i + 1) % cycle.size()];
        const waiting_unit& unit = unit_at(of, cycle[i]);
        const std::string who =
            before.what == kind::handler
                ? fmt::format("the handler of \"{}\"", shown(handler_at(of, before).procedure))
                : name_of(unit);
        std::string what;
        if (after.what == kind::call) {
            what = fmt::format("the answer of \"{}\"", shown(call_at(of, after).procedure));
        } else if (unit.waits_for == "join") {
            what = fmt::format("the end of {}", name_of(unit_at(of, after)));
        } else {
            what = fmt::format("the {} that {} holds", shown(unit.waits_for, 64),
                               name_of(unit_at(of, after)));
            by_mutex = true;
        }
        if (!clauses.empty()) clauses += "; ";
        clauses += fmt::format("{} in {} waits for {}", who, place_of(of, cycle[i].engine), what);
    }
    const std::string where = processes.size() == 1
                                  ? "within one process"
                                  : fmt::format("over {} processes", processes.size());
    return fmt::format("deadlock {}: {}{}", where, clauses,
                       by_mutex ? ". Unlock a mutex before a call whose handler may come to need it"
                                : ". Let one of them answer without waiting for the next");
}

namespace {

/// What a unit waits for, if the chain goes on from it.
std::string wait_of(const all_waits& of, const wait_step& unit, const wait_step& next) {
    const waiting_unit& who = unit_at(of, unit);
    const std::string time = lasting(who.waited);
    if (next.what == kind::call && call_at(of, next).procedure == values_procedure)
        return fmt::format("it waits for the next value that its caller, {}, sends{}",
                           shown(call_at(of, next).peer), time);
    if (next.what == kind::call && who.waits_for == value_wait)
        return fmt::format("it waits for the next value of its call of \"{}\" to {}{}",
                           shown(call_at(of, next).procedure), shown(call_at(of, next).peer), time);
    if (next.what == kind::call)
        return fmt::format("it waits for the answer to its call of \"{}\" to {}{}",
                           shown(call_at(of, next).procedure), shown(call_at(of, next).peer), time);
    const std::string other = name_of(unit_at(of, next));
    if (who.waits_for == "join") return fmt::format("it waits for the end of {}{}", other, time);
    return fmt::format("it waits for the {} that {} holds{}", shown(who.waits_for, 64), other,
                       time);
}

void write_chain(const all_waits& of, const wait_chain& chain, std::string& text) {
    const wait_step& first = chain.steps.front();
    if (first.what == kind::call) {
        const open_call& call = call_at(of, first);
        const auto by = index_of(of.engines[first.engine].told.units, call.unit);
        text += fmt::format(
            "call of \"{}\" to {}{}{}\n", shown(call.procedure), shown(call.peer),
            lasting(call.open),
            by ? "; " + name_of(of.engines[first.engine].told.units[*by]) + " waits for it" : "");
    } else {
        const open_handler& handler = handler_at(of, first);
        text += fmt::format("handler of \"{}\", {} by {}\n", shown(handler.procedure),
                            handler.one_way ? "posted" : "called", shown(handler.caller));
    }
    for (std::size_t i = 0; i < chain.steps.size(); ++i) {
        const wait_step& at = chain.steps[i];
        const bool last = i + 1 == chain.steps.size();
        if (at.what != kind::unit) continue;
        const bool handles = i > 0 && chain.steps[i - 1].what == kind::handler;
        const wait_step* const next =
            last ? chain.cycle ? &chain.steps[*chain.cycle] : nullptr : &chain.steps[i + 1];
        text += fmt::format("  in {}: {}{}: {}\n", place_of(of, at.engine),
                            handles ? "its handler, " : "", name_of(unit_at(of, at)),
                            next != nullptr ? wait_of(of, at, *next) : chain.end);
    }
    if (chain.cycle)
        text += "  " + deadlock_of(of, chain) + "\n";
    else if (chain.steps.back().what != kind::unit)
        text += "  " + chain.end + "\n";
}

}  // namespace

std::uint64_t id_of_step(const all_waits& of, const wait_step& at) {
    switch (at.what) {
        case kind::call:
            return call_at(of, at).id;
        case kind::handler:
            return handler_at(of, at).id;
        default:
            return unit_at(of, at).id;
    }
}

std::vector<wait_chain> chains_of(const all_waits& of) {
    return chain_finder(of).find();
}

std::vector<std::uint64_t> cycle_in(const all_waits& of, const wait_chain& chain) {
    std::vector<std::uint64_t> ids;
    if (!chain.cycle) return ids;
    for (std::size_t i = *chain.cycle; i < chain.steps.size(); ++i)
        ids.push_back(id_of_step(of, chain.steps[i]));
    // From wherever it was entered.
    std::rotate(ids.begin(), std::min_element(ids.begin(), ids.end()), ids.end());
    return ids;
}

std::string text_of(const all_waits& of, const std::vector<wait_chain>& chains) {
    const asked_engine& first = of.engines.front();
    const wait_report& told = first.told;
    std::string text =
        fmt::format("{} is {} on {}: {} open, {} running; asked {}\n", shown(first.address),
                    place_of(of, 0), shown(told.host, 64), several(told.calls.size(), "call"),
                    several(told.handlers.size(), "handler"), several(of.engines.size(), "engine"));
    for (const wait_chain& each : chains)
        write_chain(of, each, text);
    if (chains.empty()) text += "nothing waits\n";
    if (told.left_out != 0) text += fmt::format("{} more calls and handlers\n", told.left_out);
    return text;
}

}  // namespace amalgam::tool

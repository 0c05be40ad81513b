#include "rpc/core/route_search.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/procedure.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"

namespace amalgam::detail {

namespace {

constexpr const char* another_engine = "another engine answers at this address";

std::string why_no_answer(engine_core& core, const peer& there, const failure& why) {
    switch (why.what.code) {
        case errc::unreachable:
            if (const std::string_view reason = core.peer_addresses().reason(there, why.what);
                !reason.empty())
                return fmt::format("no answer: {}", reason);
            return "no answer";
        case errc::disconnected:
        case errc::timed_out:
            return "no answer";
        case errc::not_found:
            return "the peer cannot identify itself, as its version of Amalgam is older";
        default:
            return why.sentence;
    }
}

}  // namespace

future<peer> engine_core::start_lookup(const std::vector<std::string>& addresses) {
    if (addresses.empty()) {
        throw error(errc::invalid,
                    "no addresses to look up, expected at least one; example: "
                    "lookup({\"shm://server\", \"tcp://10.0.0.1:7000\"})");
    }
    std::vector<route_search::asked_address> asked;
    for (const std::string& each : addresses) {
        const uri parsed = uri::parse(each);
        asked.push_back({to_string(parsed), transport_of(parsed)});
    }
    future<peer> later;
    on_stream([&] { later = std::make_shared<route_search>(*this, asked)->start(); });
    return later;
}

route_search::route_search(engine_core& core, const std::vector<asked_address>& addresses)
    : core_(core),
      alive_(core),
      introduce_(core.procedures().intern(introduction::procedure,
                                          signature_text<introduction(introduction)>())) {
    if (core.ports() == 0) throw error(errc::closed, core.why_closed());
    std::string have;
    for (std::size_t i = 0; i < core.ports(); ++i)
        fmt::format_to(std::back_inserter(have), "{}{}", i == 0 ? "" : ", ", core.can(i).transport);
    // Addresses of one transport prefer different ports: each may be on its own network.
    std::map<std::string, std::size_t> of_transport;
    for (const asked_address& each : addresses) {
        const bool twice = std::any_of(candidates_.begin(), candidates_.end(),
                                       [&](const auto& one) { return one.address == each.text; });
        if (twice) continue;
        candidate& one = candidates_.emplace_back();
        one.address = each.text;
        one.order = candidates_.size() - 1;
        for (std::size_t i = 0; i < core.ports(); ++i) {
            if (core.can(i).transport == each.transport)
                one.ports.push_back(static_cast<std::uint16_t>(i));
        }
        const capabilities* const can = one.ports.empty() ? nullptr : &core.can(one.ports.front());
        one.says_who = can != nullptr && can->between_hosts;
        one.rank = rank_of(core.peer_addresses().is_own(one.address) ? nullptr : can, one.order);
        if (can == nullptr) {
            one.is = state::refused;
            one.why_not =
                fmt::format("no port of this engine speaks {}, only {}", each.transport, have);
            continue;
        }
        const std::size_t first = of_transport[each.transport]++ % one.ports.size();
        std::rotate(one.ports.begin(), one.ports.begin() + static_cast<std::ptrdiff_t>(first),
                    one.ports.end());
    }
    const auto speaks = [](const candidate& one) { return one.is == state::asking; };
    if (std::none_of(candidates_.begin(), candidates_.end(), speaks)) {
        throw error(errc::unsupported, fmt::format("{}: {}", candidates_.front().address,
                                                   candidates_.front().why_not));
    }
    const bool none_says_who = std::none_of(candidates_.begin(), candidates_.end(),
                                            [](const candidate& one) { return one.says_who; });
    for (candidate& each : candidates_) {
        if (none_says_who && speaks(each)) each.says_who = true;
    }
    std::sort(candidates_.begin(), candidates_.end(),
              [](const candidate& a, const candidate& b) { return a.rank < b.rank; });
}

future<peer> route_search::start() {
    future<peer> later = found_.get_future();
    post(core_.stream(), [me = shared_from_this()] { me->run(); }, {.name = "rpc lookup"});
    return later;
}

void route_search::run() noexcept {
    try {
        look();
    } catch (const error&) {
        found_.set_exception(std::current_exception());
    } catch (...) {
        found_.set_failure(failure{{errc::no_memory}, {}});
    }
    who_is_known_.set();  // After a failure, nobody else wakes those still waiting.
}

void route_search::look() {
    for (candidate& each : candidates_) {
        if (each.is != state::asking) continue;
        post(core_.stream(), [me = shared_from_this(), &each] { me->ask(each); },
             {.name = "rpc lookup"});
    }
    clock::time_point until = clock::time_point::max();
    for (;;) {
        changed_.reset();
        const bool late = core_.now() >= until;
        if (!knows_who()) find_who(late);
        if (decided() || (late && best() != nullptr)) break;
        const bool any = std::any_of(candidates_.begin(), candidates_.end(), [](const auto& one) {
            return one.is == state::answered || one.is == state::works;
        });
        if (any && until == clock::time_point::max())
            until = core_.now() + limits::introduction_limit;
        if (late || until == clock::time_point::max()) {
            changed_.wait();
        } else {
            (void)changed_.wait_until(until);
        }
    }
    const candidate* const chosen = best();
    if (chosen == nullptr) {
        std::string tried;
        for (const candidate* each : in_order()) {
            fmt::format_to(std::back_inserter(tried), "{}{} ({})", tried.empty() ? "" : ", ",
                           each->address, each->why_not);
        }
        const bool denied = std::any_of(candidates_.begin(), candidates_.end(),
                                        [](const candidate& one) { return one.denied; });
        return found_.set_failure(
            {{denied ? errc::denied : errc::unreachable},
             fmt::format("none of the addresses leads to the engine: {}", tried)});
    }
    if (peer_state* const way = core_.peers().find(chosen->way)) way->untold = false;
    found_.set_value(chosen->way);
}

/// In list order.
std::vector<route_search::candidate*> route_search::in_order() {
    std::vector<candidate*> all(candidates_.size());
    for (candidate& each : candidates_)
        all[each.order] = &each;
    return all;
}

/// The first global address of the list identifies the engine; if late, the next.
void route_search::find_who(bool late) {
    bool may_still_come = false;
    for (candidate* const each : in_order()) {
        if (!each->says_who || each->is == state::refused) continue;
        if (each->is == state::answered) step(*each, [&] { settle(*each); });
        if (knows_who()) break;
        may_still_come |= each->is == state::asking;
        if (may_still_come && !late) return;
    }
    if (knows_who() || !may_still_come) who_is_known_.set();
}

/// The best that works; null if none yet.
const route_search::candidate* route_search::best() const noexcept {
    for (const candidate& each : candidates_) {
        if (each.is == state::works) return &each;
    }
    return nullptr;
}

bool route_search::decided() const noexcept {
    return std::none_of(candidates_.begin(), candidates_.end(), [](const candidate& one) {
        return one.is == state::asking || one.is == state::answered;
    });
}

void route_search::ask(candidate& one) noexcept {
    step(one, [&] { one.is = reach(one) ? state::answered : state::refused; });
    changed_.set();
    if (one.is == state::answered) {
        step(one, [&] {
            who_is_known_.wait();
            if (one.is != state::answered) return;
            if (knows_who()) return join(one);
            refuse(
                one,
                "the peer may be another engine: not confirmed by an address valid on every host");
        });
    }
    step(one, [&] { note(); });
    changed_.set();
}

template <typename Step>
void route_search::step(candidate& one, Step what) noexcept {
    try {
        what();
    } catch (const std::exception& why) {
        one.is = state::refused;
        try {
            one.why_not = text_of(why);
        } catch (const std::bad_alloc&) {
            one.why_not.clear();
        }
    }
}

/// Gets the answer at an address, through the first port that gets one.
bool route_search::reach(candidate& one) {
    if (core_.peer_addresses().is_own(one.address)) {
        one.way = core_.self();
        one.answer.home = core_.home();
        return true;
    }
    for (const std::uint16_t port : one.ports) {
        if (reach_by(one, port)) return true;
    }
    return false;
}

bool route_search::reach_by(candidate& one, std::uint16_t port) {
    const result<peer> there = core_.peer_addresses().dial(port, one.address);
    if (!there) {
        one.why_not = there.sentence();
        return false;
    }
    const introduction mine{
        .home = core_.home(), .port = port, .number = core_.next_route_number()};
    const procedure<introduction(introduction)> introduce(core_, introduce_, true);
    auto answer = introduce.on(*there).within(core_.silence_limit()).try_call(mine);
    if (!answer) {
        one.why_not = why_no_answer(core_, *there, answer.why());
        one.denied = answer.code().code == errc::denied;
        return false;
    }
    one.way = *there;
    one.answer = *answer;
    one.answer.number = mine.number;
    return true;
}

/// This address identifies the intended engine.
void route_search::settle(candidate& one) {
    is_self_ = one.answer.home == core_.home();
    if (is_self_) {
        one.way = core_.self();
        one.is = state::works;
        return;
    }
    peer_state* const way = core_.peers().find(one.way);
    if (way == nullptr) return refuse(one, "the connection was lost right after its answer");
    std::shared_ptr<known_engine> engine = core_.routes().engine_of(one.way);
    if (engine == nullptr || engine->home != one.answer.home) {
        engine = std::make_shared<known_engine>();
        engine->home = one.answer.home;
    }
    engine->ticket = one.answer.ticket;
    engine->proof = one.answer.proof;
    core_.add_route(engine, *way, one.answer, one.order);
    engine_ = std::move(engine);
    one.is = state::works;
}

/// The same engine must answer here.
void route_search::join(candidate& one) {
    if (is_self_ && one.answer.home == core_.home()) {
        one.way = core_.self();
        one.is = state::works;
        return;
    }
    if (is_self_ || one.answer.home != engine_->home) return refuse(one, another_engine);
    const introduction mine{.home = core_.home(),
                            .port = static_cast<std::uint16_t>(one.way.port()),
                            .number = one.answer.number,
                            .ticket = engine_->ticket};
    const procedure<introduction(introduction)> introduce(core_, introduce_, true);
    auto answer = introduce.on(one.way).within(core_.silence_limit()).try_call(mine);
    if (!answer) return refuse(one, why_no_answer(core_, one.way, answer.why()));
    if (answer->home != engine_->home || answer->proof != engine_->proof)
        return refuse(one, another_engine);
    peer_state* const way = core_.peers().find(one.way);
    if (way == nullptr || engine_->routes.empty())
        return refuse(one, "the connection was lost right after its answer");
    answer->number = mine.number;
    core_.add_route(engine_, *way, *answer, one.order);
    one.is = state::works;
}

void route_search::refuse(candidate& one, std::string why) {
    one.is = state::refused;
    one.why_not = std::move(why);
    peer_state* const way = core_.peers().find(one.way);
    if (way != nullptr && way->untold && !way->introduced) core_.outbox().cut_off(way->name);
}

/// For peer::explain().
void route_search::note() {
    if (engine_ == nullptr) return;
    for (const candidate& each : candidates_) {
        if (each.is == state::asking || each.is == state::answered) continue;
        auto at = std::find_if(engine_->tried.begin(), engine_->tried.end(),
                               [&](const auto& one) { return one.address == each.address; });
        if (at == engine_->tried.end()) at = engine_->tried.insert(at, {each.address, {}, {}});
        at->way = each.is == state::works ? each.way : peer();
        at->why_not = each.why_not;
    }
}

}  // namespace amalgam::detail

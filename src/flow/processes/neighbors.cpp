#include "flow/processes/neighbors.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <amalgam/rpc/call_context.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/channel/reach.hpp"
#include "flow/channel/wire.hpp"
#include "flow/limits.hpp"

namespace amalgam::detail {

neighbors::neighbors(run_context& run, channel_set& channels) : run_(run), channels_(channels) {
    for (const bool sends_to_us : {false, true})
        for (const std::size_t group : channels_.groups(sends_to_us))
            add(group, sends_to_us);
}

void neighbors::add(std::size_t group, bool sends_to_us) {
    for (std::size_t i = 0; i < run_.replicas_of(group); ++i) {
        auto one = std::make_unique<neighbor>();
        one->who = {group, i};
        one->label = run_.label(one->who);
        one->sends_to_us = sends_to_us;
        all_.push_back(std::move(one));
    }
}

void neighbors::serve() {
    run_.over.define(library_name{wire::stay}, [this] { return serve_stay(); });
    run_.over.define(library_name{wire::join},
                     [this](std::string graph, std::uint32_t group, std::uint32_t replica) {
                         take_join(graph, {group, replica});
                     });
}

void neighbors::stop_waiting() {
    std::unique_lock hold(lock_);
    joined_.notify_all();
}

void neighbors::take_join(const std::string& graph, process_id who) {
    if (graph != run_.graph.fingerprint())
        throw error(errc::mismatch,
                    fmt::format("it built a different graph than group {}, expected the same "
                                "nodes, pipelines and groups in every process",
                                run_.label(run_.here)));
    neighbor& one = find(who, true);
    check_key(one, call_context::current().from());
    {
        std::unique_lock hold(lock_);
        if (closed_) throw error(errc::closed, "the run has ended");
        const peer from = call_context::current().from();
        if (std::exchange(one.joined, true)) {
            if (one.at == from) return;  // A retry after a lost answer.
            throw error(errc::denied,
                        fmt::format("group {} has already joined group {} from {}, "
                                    "expected only one process of that name",
                                    one.label, run_.label(run_.here), one.at.address()));
        }
        one.at = from;
        joined_.notify_all();
    }
    watch(one);
}

/// Who shows the key of another process of the run is not who he says. Over ways for which the run
/// makes no keys nobody shows one.
void neighbors::check_key(const neighbor& one, const peer& at) const {
    const identity shown = at.who();
    if (shown.kind != identity_kind::certificate) return;
    for (process_id each; each.group < run_.keys.size(); ++each.group)
        for (each.replica = 0; each.replica < run_.keys[each.group].size(); ++each.replica)
            if (run_.keys[each.group][each.replica] == shown.key && each != one.who)
                throw error(errc::denied, fmt::format("this is not group {}: it has the key of "
                                                      "group {}",
                                                      one.label, run_.label(each)));
}

const neighbor& neighbors::caller(process_id who, bool sends_to_us) const {
    const neighbor& one = find(who, sends_to_us);
    if (one.at == call_context::current().from()) return one;
    throw error(
        errc::denied,
        fmt::format(
            "this is not group {}, which has not joined yet or has joined from another address",
            one.label));
}

void neighbors::blame(const neighbor& one, const error& wrong) {
    if (wrong.code() != errc::invalid) return;  // Just the end of the run here.
    run_.nodes.fail({{{errc::mismatch},
                      fmt::format("group {} violated the protocol: {}", one.label, wrong.what())},
                     true});
}

std::string neighbors::serve_stay() {
    run_.closed.wait();
    auto failed = run_.nodes.failed();
    return failed ? failed->what.sentence : "";
}

bool neighbors::join_all(const address_book& addresses) {
    auto deadline = run_.over.now() + run_.options.join_limit;
    for (auto& one : all_) {
        if (one->sends_to_us || run_.nodes.failed()) continue;
        join(*one, addresses[one->who.group][one->who.replica], deadline);
    }
    return !run_.nodes.failed();
}

void neighbors::join(neighbor& one, const std::string& address, clock::time_point deadline) {
    auto join = run_.over.procedure<wire::join_signature>(wire::join);
    const auto ask = [&](const peer& who, std::chrono::nanoseconds limit) {
        return join.on(who).within(limit).try_call(run_.graph.fingerprint(),
                                                   static_cast<std::uint32_t>(run_.here.group),
                                                   static_cast<std::uint32_t>(run_.here.replica));
    };
    const result<peer> found = reach(run_.over, address, deadline, ask,
                                     [this] { return run_.nodes.failed().has_value(); });
    if (!found) return fail_to_join(one, address, found.why());
    try {
        check_key(one, *found);
    } catch (const error& wrong) {
        return fail_to_join(one, address, {{wrong.code()}, wrong.what()});
    }
    one.at = *found;
    channels_.connect(one.who, one.at);
    watch(one);
}

void neighbors::fail_to_join(const neighbor& one, const std::string& address, const failure& why) {
    auto limit = std::chrono::duration<double>(run_.options.join_limit).count();
    run_.nodes.fail(
        {{why.what,
          may_come(why.what.code)
              ? fmt::format(
                    "group {} did not answer at {} within {} s ({}), expected it to be running",
                    one.label, address, limit, why.sentence)
              : fmt::format("group {} at {} cannot be joined: {}", one.label, address,
                            why.sentence)},
         true});
}

void neighbors::expect_senders(clock::time_point deadline) {
    std::unique_lock hold(lock_);
    for (auto& one : all_) {
        if (!one->sends_to_us) continue;
        auto done = [&] { return one->joined || closed_ || run_.nodes.failed(); };
        if (joined_.wait_until(hold, deadline, done)) continue;
        auto limit = std::chrono::duration<double>(run_.options.join_limit).count();
        hold.unlock();
        run_.nodes.fail(
            {{{errc::timed_out},
              fmt::format("group {} did not join within {} s, expected it to be running",
                          one->label, limit)},
             true});
        return;
    }
}

void neighbors::watch(neighbor& one) {
    // In its own ULT: started while serving a join, it would inherit that join's deadline.
    amalgam::spawn(run_.over.stream(), [this, &one] {
        one.stay = run_.over.procedure<wire::stay_signature>(wire::stay).on(one.at).start();
        one.watched = true;
    }).join();
    one.watcher = amalgam::spawn(run_.over.stream(), [this, &one] {
        (void)one.stay.wait();  // answer.get() tells how it ended.
        future<std::string> answer;
        {
            std::unique_lock hold(lock_);
            answer = std::move(one.stay);
        }
        try {
            one.last_words.sentence = answer.get();
            if (!one.last_words.sentence.empty()) one.last_words.what = {errc::handler_failed};
        } catch (const error& wrong) {
            one.last_words = {wrong.code(), wrong.what()};
        }
        if (one.last_words.what.ok() && exchanges_with(one))
            one.last_words = {{errc::disconnected},
                              "it reported the end of its run before all items were exchanged"};
        if (!one.last_words.what.ok() && exchanges_with(one)) lose(one, one.last_words);
        one.gone.set();
    });
}

bool neighbors::exchanges_with(const neighbor& one) const {
    return channels_.is_open(one.who, one.sends_to_us);
}

/// Whether this run depends on that process.
bool neighbors::is_needed(const neighbor& one) const {
    return exchanges_with(one) || (!one.sends_to_us && channels_.has_unconsumed(one.who));
}

void neighbors::check_liveness(const std::function<bool(clock::duration pause)>& go_on) {
    if (run_.options.silence_limit.count() == 0) return;
    const clock::duration pause =
        clock::duration(run_.options.silence_limit) / limits::liveness_checks;
    auto ping = run_.over.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping");
    while (!run_.closed.wait_for(pause)) {
        if (!go_on(pause)) return;
        for (auto& one : all_) {
            if (!one->watched || one->gone.is_set()) continue;
            if (one->pulse.valid() && !one->pulse.ready()) {
                // Counts checks, not time: a process that was suspended itself blames nobody for
                // checks it did not make.
                if (++one->unanswered_checks < limits::liveness_checks) continue;
                if (is_needed(*one)) {
                    const std::chrono::duration<double> limit = run_.options.silence_limit;
                    lose(*one, {{errc::disconnected},
                                fmt::format("it has not answered for {} s", limit.count())});
                    return;
                }
            }
            one->unanswered_checks = 0;
            one->pulse = ping.on(one->at).start(0);
        }
    }
}

void neighbors::lose(const neighbor& one, const failure& why) {
    bool it_failed = why.what == errc::handler_failed;  // It said so before it ended.
    run_.nodes.fail(
        {{why.what, it_failed
                        ? fmt::format("group {} failed: {}", one.label,
                                      why.sentence.substr(0, limits::max_reason_bytes))
                        : fmt::format("lost contact with group {} ({})", one.label, why.sentence)},
         true});
}

void neighbors::lose_receiver(process_id who, const failure& why) {
    neighbor& one = find(who, false);
    // A failing process answers `stay` and refuses other calls, in either order.
    bool said = one.gone.wait_for(limits::failure_report_limit) &&
                one.last_words.what == errc::handler_failed;
    lose(one, said ? one.last_words : why);
}

void neighbors::close() {
    {
        std::unique_lock hold(lock_);
        closed_ = true;
        joined_.notify_all();
        for (auto& one : all_)
            if (one->stay.valid()) one->stay.cancel();
    }
    run_.closed.set();  // Ends loops' watchers and check_liveness(), too.
    for (auto& one : all_)
        if (one->watcher.joinable()) one->watcher.join();
}

neighbor& neighbors::find(process_id who, bool sends_to_us) const {
    for (auto& one : all_)
        if (one->who == who && one->sends_to_us == sends_to_us) return *one;
    throw error(errc::invalid, fmt::format("group {} replica {} does not send to this process",
                                           who.group, who.replica));
}

}  // namespace amalgam::detail

#include "run.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/procedure.hpp>

#include "access.hpp"

namespace ff::detail {
namespace {

using steady = std::chrono::steady_clock;

std::atomic<bool> runs{false};

/// It may be there later.
bool may_come(amalgam::status why) {
    const amalgam::errc code =
        why.code == amalgam::errc::handler_failed ? why.handler_code() : why.code;
    return code == amalgam::errc::unreachable || code == amalgam::errc::disconnected ||
           code == amalgam::errc::timed_out || code == amalgam::errc::not_found ||
           code == amalgam::errc::unavailable || code == amalgam::errc::closed;
}

/// The transport of a URI, as ports are told apart by it.
std::string transport(const std::string& address) {
    return amalgam::to_string(
        amalgam::uri::parse(amalgam::client_uri(amalgam::uri::parse(address))));
}

/// As much of it as error() prints.
struct sentence {
    explicit sentence(run_base::words words) {
        char* at = text;
        for (const std::string_view& each : words) {
            const auto left = static_cast<std::size_t>(text + most - at);
            const std::size_t count = std::min(each.size(), left);
            if (count != 0) std::memcpy(at, each.data(), count);
            at += count;
        }
        *at = '\0';
    }
    static constexpr std::size_t most = 1000;
    char text[most + 1];
};

}  // namespace

distributed_part::distributed_part(group_registry& all) : all_(all) {}

distributed_part::~distributed_part() {
    close();
}

void distributed_part::open() {
    const auto any = [this](bool far_group::*what) {
        return std::any_of(groups_.begin(), groups_.end(),
                           [what](const auto& each) { return (*each.second).*what; });
    };
    std::vector<std::string> ports;
    std::vector<std::string> transports;
    if (any(&far_group::sends)) {
        if (mine_->address.empty())
            throw std::runtime_error("group " + mine_->name +
                                     " has no endpoint, and other groups send to it");
        ports.push_back(mine_->address);
        transports.push_back(transport(mine_->address));
    }
    for (const auto& [name, each] : groups_) {
        if (!each->listens) continue;
        if (each->address.empty())
            throw std::runtime_error("group " + name + " has no endpoint, and " + mine_->name +
                                     " sends to it");
        const std::string client = transport(each->address);
        if (std::find(transports.begin(), transports.end(), client) != transports.end()) continue;
        ports.push_back(client);
        transports.push_back(client);
    }
    if (ports.empty()) return;  // All of it is in this process.
    amalgam::engine_options options;
    options.name = "dff";
    engine_ =
        std::make_unique<amalgam::engine>(amalgam::endpoints(std::move(ports)), std::move(options));
    over = engine_.get();
    define();
}

void distributed_part::define() {
    calls.emplace(*over);
    const amalgam::procedure_options at_once{.run = amalgam::handler::inline_};
    lost_ = over->on_peer_lost(
        [this](const amalgam::peer& who, amalgam::status why) { lose(who, why); });
    over->define(
        "ff.batch",
        [this](std::uint64_t number, amalgam::const_bytes frames) { take_batch(number, frames); },
        at_once);
    over->define(
        "ff.item",
        [this](std::uint64_t number, std::uint32_t edge, amalgam::const_bytes bytes) {
            take_item(number, edge, bytes);
        },
        at_once);
    over->define(
        "ff.credit",
        [this](std::uint32_t edge, std::uint64_t items, std::uint64_t bytes) {
            if (far_edge* const from = edge_to(edge)) from->credited(items, bytes);
        },
        at_once);
    over->define(
        "ff.closed",
        [this](std::uint32_t edge) {
            if (far_edge* const from = edge_to(edge)) from->close();
        },
        at_once);
    over->define("ff.end", [this](amalgam::responder<void> done, std::uint64_t batches) {
        take_end(std::move(done), batches);
    });
    over->define("ff.failed", [this](std::string why) { take_failed(why); });
    // The last: who has joined may send.
    over->define("ff.join",
                 [this](std::string from, std::uint64_t graph, std::vector<std::uint64_t> windows) {
                     take_join(from, graph, windows);
                 });
}

void distributed_part::join() {
    const auto limit = std::chrono::duration_cast<steady::duration>(
        std::chrono::duration<double>(all_.config.join_seconds));
    const auto until = steady::now() + limit;
    for (const auto& [name, each] : groups_)
        if (each->listens && !failed_) join(*each, until);
    if (!failed_) wait_for_senders(until);
}

void distributed_part::join(far_group& there, steady::time_point until) {
    std::vector<std::uint64_t> windows;
    for (const auto& each : edges_)
        if (each != nullptr && each->out && &each->there == &there) windows.push_back(each->window);
    const auto ask = over->procedure<wire::join>("ff.join");
    auto pause = std::chrono::milliseconds(5);
    for (;;) {
        amalgam::failure why;
        if (const auto found = over->try_lookup(there.address)) {
            {
                const std::lock_guard guard(lock_);
                there.to = *found;
                there.took_all = true;  // Its loss is no loss yet.
            }
            const auto answer =
                ask.on(*found)
                    .within(std::max<steady::duration>(until - steady::now(), pause))
                    .try_call(all_.mine, graph_, windows);
            if (answer) {
                const std::lock_guard guard(lock_);
                there.took_all = false;
                return;
            }
            why = answer.why();
        } else {
            why = found.why();
        }
        if (failed_) return;
        const bool late = steady::now() + pause >= until;
        if (late || !may_come(why.what))
            return fail({"group ", there.name, " at ", there.address,
                         late ? " did not answer in time (" : " cannot be joined (", why.sentence,
                         ")"});
        std::unique_lock guard(lock_);
        changed_.wait_for(guard, pause, [this] { return failed_.load(); });
        pause = std::min(pause * 2, std::chrono::milliseconds(100));
    }
}

void distributed_part::wait_for_senders(steady::time_point until) {
    std::string missing;
    {
        std::unique_lock guard(lock_);
        changed_.wait_until(guard, until, [&] {
            missing.clear();
            for (const auto& [name, each] : groups_)
                if (each->sends && !each->from) missing += (missing.empty() ? "" : ", ") + name;
            return failed_ || missing.empty();
        });
    }
    if (!failed_ && !missing.empty())
        fail({"no word from group ", missing, ", which sends to group ", all_.mine, ", within ",
              std::to_string(static_cast<long>(all_.config.join_seconds)),
              " s; start it, or set \"joinSeconds\" in the configuration file"});
}

bool distributed_part::start() {
    const std::lock_guard guard(lock_);
    for (const auto& each : runners_)
        each->announce();
    if (failed_) return false;
    return std::all_of(runners_.begin(), runners_.end(),
                       [](const auto& each) { return each->start() == 0; });
}

/// Those that have begun end, though they wait for an item or for room, and the other groups learn
/// why.
void distributed_part::give_up_start() {
    fail({"group ", all_.mine,
          " cannot start all threads of its nodes; allow it more (ulimit -u), or give it fewer "
          "nodes"});
    for (const auto& each : runners_)
        for (const auto& input : each->in.inputs)
            input.queue->close();
}

/// Batches that are not full leave after a moment.
void distributed_part::linger() {
    std::unique_lock guard(lock_);
    while (!changed_.wait_for(guard, std::chrono::milliseconds(1),
                              [this] { return over_ || failed_; })) {
        guard.unlock();
        for (const auto& [name, each] : groups_) {
            if (each->listens) each->flush_old();
        }
        guard.lock();
    }
}

void distributed_part::send_ends() {
    const auto end = over->procedure<wire::end>("ff.end");
    for (const auto& [name, each] : groups_) {
        if (!each->listens || failed_) continue;
        each->flush();
        far_group* const there = each.get();
        // On the engine's stream, so before the loss of a group that ends when it has answered.
        end.on(each->to).call_then(
            [this, there](const amalgam::result<void>& answer) {
                if (!answer)
                    return fail({"group ", there->name, " at ", there->address,
                                 " did not take all that was sent to it (", answer.sentence(),
                                 ")"});
                const std::lock_guard guard(lock_);
                there->took_all = true;
                changed_.notify_all();
            },
            each->batches());
    }
}

void distributed_part::wait_for_ends() {
    std::unique_lock guard(lock_);
    changed_.wait(guard, [this] {
        return failed_ || std::all_of(groups_.begin(), groups_.end(), [](const auto& each) {
                   const far_group& there = *each.second;
                   return (!there.sends || there.ended) && (!there.listens || there.took_all);
               });
    });
}

void distributed_part::fail(words why) noexcept {
    {
        const std::lock_guard guard(lock_);
        if (failed_ || over_) return;
        failed_ = true;
        changed_.notify_all();
    }
    const sentence said(why);
    error("%s\n", said.text);
    for (const auto& each : edges_)
        if (each != nullptr && each->out) each->close();
    for (const auto& each : runners_)
        each->abandon();
    if (!calls) return;
    for (const auto& [name, each] : groups_) {
        for (const amalgam::peer& who : {each->to, each->from}) {
            if (!who) continue;
            try {
                calls->failed.on(who).post(said.text);
            } catch (const std::exception&) {  // It will see that this group is gone.
            }
        }
    }
}

void distributed_part::close() {
    {
        const std::lock_guard guard(lock_);
        over_ = true;
        changed_.notify_all();
    }
    if (lingers_.joinable()) lingers_.join();
    lost_.end();
    if (engine_ != nullptr) engine_->stop();
    engine_.reset();  // Nothing of it may run once the groups are gone.
    for (const auto& each : edges_)
        if (each != nullptr) each->queue->drop_rest();
}

int distributed_part::run(ff_node& whole) {
    int result = 0;
    try {
        if (!plan(whole)) return -1;
        open();
        if (over != nullptr) join();
        if (over != nullptr && mine_->batch_size > 1) lingers_ = std::thread([this] { linger(); });
        if (!start()) give_up_start();
        for (const auto& each : runners_)
            if (each->wait() < 0) result = -1;
        if (over != nullptr && !failed_) send_ends();
        if (over != nullptr && !failed_) wait_for_ends();
    } catch (const std::exception& why) {
        if (!failed_) fail({"group ", all_.mine, ": ", why.what()});
        for (const auto& each : runners_)
            each->wait();
    }
    close();
    access::network_of(whole) = net_;
    return failed_ ? -1 : result;
}

bool run_distributed(ff_node& whole, int& result) {
    group_registry& all = groups();
    if (!all.dry_run_file.empty()) {
        result = write_dry_run(whole);
        return true;
    }
    if (all.mine.empty()) {  // The program goes on all the same.
        error("run_and_wait_end: DFF_Init() has failed, so there is no group to run\n");
        result = -1;
        return true;
    }
    if (runs.exchange(true)) return false;  // Of a block inside a node.
    distributed_part part(all);
    result = part.run(whole);
    runs = false;
    return true;
}

}  // namespace ff::detail

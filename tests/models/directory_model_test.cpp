// Random histories of a directory of several hosts, in virtual time: hosts are cut off, killed and
// restarted, and so are the processes that register, find and watch resources and send each other
// messages. Each answer is checked against what may be true at that time.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/mutex.hpp>

#include "seeded_runs.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using time = clock::time_point;

constexpr int types = 3;
/// Time after the last fault until all know each other again, and nothing lost remains.
constexpr auto settling = 60s;
/// Time until a host's changes are visible to it, and to queries there.
constexpr auto telling = 1s;

/// A resource that was, or may have been, registered.
struct entry {
    int type = 0;
    time begun;
    std::optional<time> added;  ///< add() returned.
    std::optional<time> going;  ///< Its removal began,
    std::optional<time> gone;   ///< and ended.
    resource_id id = resource_id::none;
};

/// Messages from one resource to another.
struct sending {
    std::size_t to = 0;  ///< The entry.
    int number = 0;
    future<void> over;
};

/// A resource owned by a process now.
struct box {
    std::size_t is = 0;  ///< The entry.
    resource held;
    std::map<std::size_t, int> sent;      ///< Number of messages, by entry.
    std::map<std::size_t, int> received;  ///< Latest number, by sender.
    std::vector<sending> under_way;
};

/// A process that uses the directory of its host.
struct process {
    std::string name;
    std::size_t host = 0;
    bool killed = false;  ///< Or its directory is gone for good, so it reaches nobody.
    std::unique_ptr<engine> runs;
    std::unique_ptr<context> here;
    std::vector<std::unique_ptr<box>> boxes;
    mutex uses_boxes;
    std::vector<future<void>> operations;
    resource_watch watch;
    int watched_type = 0;
    bool watch_ended = true;
    std::set<std::string> watched;  ///< Names reported as present.
};

struct server {
    std::string name;
    std::unique_ptr<engine> runs;
    std::unique_ptr<directory_server> directory;
    bool cut = false;
    time changed;  ///< Of `cut`.
};

class history {
public:
    explicit history(std::uint64_t seed) : random_(seed), net_({.seed = seed}) {
        net_.delay(50us, 150us);
        for (std::size_t i = 0; i < 2 + random_.below(3); ++i) {
            servers_.push_back({"host" + std::to_string(i), {}, {}, false, {}});
            start(i, net_.port(servers_[i].name));
        }
        net_.run_for(3s);
        for (std::size_t i = 0; i < servers_.size() + random_.below(3); ++i) {
            all_.push_back(std::make_unique<process>());
            all_[i]->name = "user" + std::to_string(i);
            all_[i]->host = i % servers_.size();
            start(*all_[i], net_.port(all_[i]->name));
        }
        last_fault_ = net_.now();
    }
    ~history() {
        for (const auto& each : all_)
            end(*each);
    }

    void run() {
        for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i)
            step();
        calm_down();
        if (!testing::Test::HasFailure()) check_all();
    }

private:
    // ---- processes and servers

    void start(std::size_t which, std::unique_ptr<port> at) {
        server& one = servers_[which];
        one.runs = std::make_unique<engine>(std::move(at));
        directory_options options;
        options.ring.seed = random_() | 1;
        if (started_once_ || which != 0) {
            options.ring.others = {"loop://host" + std::to_string(which == 0 ? 1 : 0)};
        }
        one.directory = std::make_unique<directory_server>(*one.runs, options);
    }
    void start(process& one, std::unique_ptr<port> at) {
        one.runs = std::make_unique<engine>(std::move(at));
        one.operations.push_back(one.runs->spawn([this, &one] {
            const std::string directory = "loop://" + servers_[one.host].name;
            for (int i = 0; i < 1000 && !one.here; ++i) {
                try {
                    one.here = std::make_unique<context>(
                        *one.runs, context_options{.directory = directory, .reopen_within = 10min});
                } catch (const error& why) {
                    EXPECT_TRUE(is_of_the_network(why)) << why.what();
                    this_task::sleep_for(100ms);
                }
            }
        }));
        wait(one);
        EXPECT_TRUE(one.here != nullptr);
    }
    static bool is_of_the_network(const error& why) {
        switch (why.code().code) {
            case errc::disconnected:
            case errc::unreachable:
            case errc::unavailable:
            case errc::timed_out:
            case errc::closed:
                return true;
            default:
                return false;
        }
    }
    /// Runs until all its operations are done.
    void wait(process& one) {
        for (auto& each : one.operations) {
            for (int i = 0; i < 180'000 && !each.ready(); ++i)
                net_.run_for(10ms);
            ASSERT_TRUE(each.ready()) << one.name << " waits for ever";
            each.get();
        }
        one.operations.clear();
    }
    template <typename Work>
    void begin(process& one, Work work) {
        std::erase_if(one.operations, [](auto& each) { return each.ready(); });
        one.operations.push_back(one.runs->spawn([this, &one, work = std::move(work)]() mutable {
            const time from = net_.now();
            try {
                work(from);
            } catch (const error& why) {
                EXPECT_TRUE(is_of_the_network(why)) << why.what();
                if (gave_up(one, why)) return;
                EXPECT_FALSE(was_quiet(from) && !one.killed) << one.name << ": " << why.what();
            }
        }));
    }
    /// In a partitioned network another host may take over the ids of its directory, if that is
    /// restarted there; then it cannot return. Nor can one that was killed meanwhile.
    bool gave_up(process& one, const error& why) {
        if (std::string_view(why.what()).find("make a new context") == std::string_view::npos)
            return false;
        EXPECT_TRUE(was_parted_ || one.killed) << one.name << ": " << why.what();
        one.killed = true;
        all_go(one);
        return true;
    }
    void all_go(process& one) {
        for (const auto& each : one.boxes)
            if (!entries_[each->is].going) entries_[each->is].going = net_.now();
    }
    void end(process& one) {
        wait(one);
        if (!one.runs) return;
        all_go(one);
        one.operations.push_back(one.runs->spawn([&one] {
            one.watch = {};
            one.boxes.clear();
            one.here.reset();
        }));
        std::vector<std::size_t> its;
        for (const auto& each : one.boxes)
            its.push_back(each->is);
        wait(one);
        for (const std::size_t each : its)
            entries_[each].gone = net_.now();
        one.runs.reset();
        one.killed = false;
        one.watched.clear();
        one.watch_ended = true;
    }

    // ---- time

    void fault() { last_fault_ = net_.now(); }
    bool all_stands() const {
        return cut_ways_.empty() &&
               std::all_of(servers_.begin(), servers_.end(),
                           [](const server& each) { return each.runs && !each.cut; });
    }
    /// No fault from long before `since` until now.
    bool was_quiet(time since) const { return all_stands() && since > last_fault_ + settling; }

    // ---- possible answers

    /// Any query from `from` until now must find it.
    bool is_sure(const entry& what, time from) const {
        return what.added && *what.added + telling < from && !what.going;
    }
    /// No query from `from` on may find it.
    bool is_gone(const entry& what, time from) const {
        return what.gone && was_quiet(from) && *what.gone + telling < from && *what.gone < from;
    }
    void check_found(const found_resource& found, int type, time from) {
        const std::string name(found.what.text("n"));
        const auto at = names_.find(name);
        ASSERT_TRUE(at != names_.end()) << "\"" << name << "\" was never registered";
        const entry& what = entries_[at->second];
        EXPECT_EQ(what.type, type);
        if (what.added) {
            EXPECT_EQ(what.id, found.id);
        }
        EXPECT_FALSE(is_gone(what, from)) << name << " had gone before it was asked for";
    }

    // ---- operations

    process& any() { return *all_[random_.below(all_.size())]; }
    static attribute_list query(int type) {
        attribute_list wanted{{"type", std::to_string(type)}};
        wanted.ask("n");
        return wanted;
    }

    void add(process& one) {
        if (one.boxes.size() > 6) return;
        const std::size_t at = entries_.size();
        entries_.push_back({static_cast<int>(random_.below(types)), net_.now(), {}, {}, {}, {}});
        names_[std::to_string(at)] = at;
        begin(one, [this, &one, at](time) {
            auto made = std::make_unique<box>();
            made->is = at;
            made->held = one.here->add(
                {{"type", std::to_string(entries_[at].type)}, {"n", std::to_string(at)}});
            entries_[at].id = made->held.id();
            entries_[at].added = net_.now();
            const std::lock_guard hold(one.uses_boxes);
            one.boxes.push_back(std::move(made));
        });
    }
    void remove(process& one) {
        begin(one, [this, &one](time) {
            const std::lock_guard hold(one.uses_boxes);
            if (one.boxes.empty()) return;
            std::swap(one.boxes[random_.below(one.boxes.size())], one.boxes.back());
            const std::unique_ptr<box> ends = std::move(one.boxes.back());
            one.boxes.pop_back();
            take(*ends);
            entries_[ends->is].going = net_.now();
            ends->held = {};
            entries_[ends->is].gone = net_.now();
        });
    }
    void find(process& one) {
        const int type = static_cast<int>(random_.below(types));
        begin(one, [this, &one, type](time from) {
            const bool calm = was_quiet(from) && !one.killed;
            const result<found_resource> found = one.here->try_find(query(type));
            if (found.ok()) return check_found(*found, type, from);
            const errc code = found.code().code;
            EXPECT_FALSE(code == errc::timed_out && was_quiet(from) && !one.killed);
            if (code != errc::not_found && code != errc::timed_out)
                throw error(found.code(), found.sentence());
            // From the first moment of a fault, incomplete answers must be reported as such.
            if (!calm || code != errc::not_found) return;
            for (const entry& each : entries_)
                EXPECT_FALSE(each.type == type && is_sure(each, from))
                    << one.name << " did not find " << &each - entries_.data();
        });
    }
    void search(process& one) {
        const int type = static_cast<int>(random_.below(types));
        begin(one, [this, &one, type](time from) {
            const bool calm = was_quiet(from) && !one.killed;
            std::set<std::string> seen;
            resource_search all = one.here->search(query(type));
            for (const found_resource& each : all) {
                EXPECT_TRUE(seen.emplace(each.what.text("n")).second)
                    << each.what.text("n") << " was found twice";
                check_found(each, type, from);
            }
            EXPECT_FALSE(all.missed() != 0 && was_quiet(from) && !one.killed);
            if (!calm || all.missed() != 0) return;
            check_complete(seen, type, from, one.name + " did not find ");
        });
    }
    void check_complete(const std::set<std::string>& seen, int type, time from,
                        const std::string& what) {
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            if (entries_[i].type != type || !is_sure(entries_[i], from)) continue;
            EXPECT_TRUE(seen.contains(std::to_string(i))) << what << i;
        }
    }
    void look(process& one) {
        if (!one.watch_ended) return;
        one.watch_ended = false;
        one.watched.clear();
        one.watched_type = static_cast<int>(random_.below(types));
        begin(one, [&one](time) {
            try {
                one.watch = one.here->watch(query(one.watched_type), [&](const auto& change) {
                    const std::string name(change.which.what.text("n"));
                    if (change.what == resource_change::kind::appeared) one.watched.insert(name);
                    if (change.what == resource_change::kind::gone) one.watched.erase(name);
                    if (change.what == resource_change::kind::ended) one.watch_ended = true;
                });
            } catch (const error&) {
                one.watch_ended = true;
                throw;
            }
        });
    }

    static std::string text_of(std::size_t from, int number) {
        std::string text = std::to_string(from) + " " + std::to_string(number) + " ";
        text.resize(number % 7 == 6 ? 70'000 : 40 + static_cast<std::size_t>(number) % 200, 'x');
        return text;
    }
    void send(process& one) {
        std::vector<std::size_t> known;
        for (std::size_t i = 0; i < entries_.size(); ++i)
            if (entries_[i].added && !entries_[i].gone) known.push_back(i);
        if (known.empty()) return;
        const std::size_t to = known[random_.below(known.size())];
        begin(one, [this, &one, to](time) {
            const std::lock_guard hold(one.uses_boxes);
            if (one.boxes.empty()) return;
            box& from = *one.boxes[random_.below(one.boxes.size())];
            for (std::uint64_t i = 0; i < 1 + random_.below(4); ++i) {
                const int number = ++from.sent[to];
                const std::string text = text_of(from.is, number);
                message_buffer content = one.here->take_buffer(text.size());
                std::copy(text.begin(), text.end(), reinterpret_cast<char*>(content.data()));
                content.resize(text.size());
                from.under_way.push_back(
                    {to, number, from.held.start_send(entries_[to].id, 1, std::move(content))});
            }
        });
    }
    /// Received messages: in sending order, without duplicates, intact.
    void take(box& at) {
        while (const auto got = at.held.try_receive()) {
            const std::string text(got->content.text());
            std::size_t from = 0;
            int number = 0;
            ASSERT_EQ(std::sscanf(text.c_str(), "%zu %d ", &from, &number), 2) << text.size();
            EXPECT_EQ(text, text_of(from, number));
            EXPECT_EQ(got->from, entries_[from].id);
            EXPECT_GT(number, at.received[from]) << "from " << from << " to " << at.is;
            at.received[from] = std::max(at.received[from], number);
        }
    }
    void receive(process& one) {
        begin(one, [this, &one](time) {
            const std::lock_guard hold(one.uses_boxes);
            for (const auto& each : one.boxes)
                take(*each);
        });
    }

    // ---- faults

    void fail() {
        const std::size_t which = random_.below(servers_.size());
        server& one = servers_[which];
        started_once_ = true;
        switch (random_.below(4)) {
            case 0:  // A restarted directory knows nothing of its clients.
                if (one.cut) return;
                fault();
                net_.kill(one.name);
                net_.run_for(10ms);
                one.directory.reset();
                one.runs.reset();
                net_.run_for(random_.below(4000) * 1ms);
                start(which, net_.restart(one.name));
                fault();
                break;
            case 1: {
                process& killed = any();
                heal_all();  // Otherwise others might give up while this is waited for.
                fault();
                net_.kill(killed.name);
                killed.killed = true;
                all_go(killed);
                end(killed);
                start(killed, net_.restart(killed.name));
                fault();
                break;
            }
            case 2:
                turn(one.name, servers_[random_.below(servers_.size())].name);
                break;
            default:
                fault();
                turn(one);
        }
    }
    /// One host stops hearing another, or hears it again.
    void turn(const std::string& from, const std::string& to) {
        if (from == to) return;
        fault();
        was_parted_ = true;
        if (cut_ways_.emplace(from, to).second) return net_.cut(from, to);
        cut_ways_.erase({from, to});
        net_.heal(from, to);
    }
    void turn(server& one) {
        one.cut ? net_.heal(one.name) : net_.cut(one.name);
        one.cut = !one.cut;
        was_parted_ = true;
        one.changed = net_.now();
        fault();
    }
    void heal_all() {
        for (server& each : servers_) {
            if (each.cut) turn(each);
        }
        while (!cut_ways_.empty())
            turn(std::string(cut_ways_.begin()->first), std::string(cut_ways_.begin()->second));
    }
    void step() {
        for (server& each : servers_)  // Before its contexts give up.
            if (each.cut && each.changed + 5min < net_.now()) turn(each);
        switch (random_.below(24)) {
            case 0:
                fail();
                break;
            case 1:
                net_.run_for(settling + 1s);
                break;
            case 2:
            case 3:
            case 4:
            case 5:
                add(any());
                break;
            case 6:
                remove(any());
                break;
            case 7:
            case 8:
            case 9:
                find(any());
                break;
            case 10:
            case 11:
                search(any());
                break;
            case 12:
                look(any());
                break;
            case 13:
            case 14:
                receive(any());
                break;
            case 15:
            case 16:
            case 17:
            case 18:
                send(any());
                break;
            default:
                net_.run_for(random_.below(3000) * 1ms);
        }
    }

    // ---- the end

    void calm_down() {
        heal_all();
        fault();
        net_.run_for(settling);
        for (const auto& each : all_)
            wait(*each);
        net_.run_for(settling + 2 * telling);
    }
    void check_all() {
        const time now = net_.now();
        for (const auto& each : all_) {
            if (each->killed) continue;
            for (int type = 0; type < types; ++type) {
                begin(*each, [this, one = each.get(), type](time from) {
                    std::set<std::string> seen;
                    resource_search all = one->here->search(query(type));
                    for (const found_resource& found : all)
                        seen.emplace(found.what.text("n"));
                    EXPECT_EQ(all.missed(), 0u) << one->name;
                    check_complete(seen, type, from, one->name + " does not find ");
                    check_only(seen, type, from, one->name + " finds ");
                });
            }
            wait(*each);
            if (each->watch_ended || each->killed) continue;
            check_complete(each->watched, each->watched_type, now, each->name + " does not see ");
            check_only(each->watched, each->watched_type, now, each->name + " still sees ");
        }
        check_messages();
    }
    void check_only(const std::set<std::string>& seen, int type, time from,
                    const std::string& what) {
        for (const std::string& each : seen) {
            const entry& is = entries_[names_.at(each)];
            EXPECT_EQ(is.type, type);
            EXPECT_FALSE(is_gone(is, from)) << what << each << ", which has gone";
        }
    }
    /// Every message reported as delivered is stored, or was received.
    void check_messages() {
        std::map<std::size_t, box*> where;
        for (const auto& each : all_) {
            receive(*each);
            wait(*each);
            for (const auto& one : each->boxes)
                where[one->is] = one.get();
        }
        for (const auto& [from, sender] : where) {
            for (sending& each : sender->under_way) {
                ASSERT_TRUE(!each.over.valid() || each.over.ready()) << "a message is under way";
                if (!each.over.valid() || !each.over.wait().ok()) continue;
                const auto to = where.find(each.to);
                if (to == where.end()) continue;
                EXPECT_GE(to->second->received[from], each.number)
                    << "a message of " << from << " to " << each.to << " was lost";
            }
        }
    }

    seeded_random random_;
    loop_network net_;
    std::vector<server> servers_;
    std::vector<std::unique_ptr<process>> all_;
    std::vector<entry> entries_;
    std::map<std::string, std::size_t> names_;
    time last_fault_;
    std::set<std::pair<std::string, std::string>> cut_ways_;  ///< From, to.
    bool started_once_ = false;
    bool was_parted_ = false;
};

TEST(directory_model, answers_are_what_may_be_true_while_hosts_and_processes_come_and_go) {
    for (const std::uint64_t seed : seeded_runs(8)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        history(seed).run();
    }
}

}  // namespace
}  // namespace amalgam

// Random pushes and pulls against a model of what an ended transfer may have done to the memory of
// both sides; afterwards it must do nothing more.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/ult.hpp>

#include "seeded_runs.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t slot_count = 8;
constexpr std::size_t slot_bytes = 60'000;
/// Written to local memory after its transfer has ended: it must stay, and never arrive anywhere.
constexpr std::byte used_again{0xa5};

void fill(std::vector<std::byte>& bytes, seeded_random& random) {
    std::uint64_t state = random();
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const std::uint64_t word = (state ^ state >> 29) & 0x7f7f7f7f7f7f7f7f;  // Never used_again.
        std::memcpy(bytes.data() + i, &word, sizeof word);
    }
}

bool is_loss(errc code) {
    return code == errc::disconnected || code == errc::unreachable || code == errc::closed;
}

/// A range of the remote memory, moved by at most one transfer at a time.
struct slot {
    enum class state {
        known,   ///< It holds `now`, and nobody changes it.
        busy,    ///< A transfer is in flight.
        unquiet  ///< One was lost with its connection: its bytes may still be written.
    };
    state what = state::known;
    std::vector<std::byte> now;
    std::vector<std::byte> next;  ///< While busy or unquiet: what is being written over `now`.
};

/// One transfer, in its own ULT.
struct operation {
    std::size_t at = 0;
    bool is_push = false;
    bool begun = false;
    bool over = false;
    std::uint64_t losses = 0;  ///< Of connections, before it started.
    std::vector<std::byte> local;
    ult by;
};

/// The remote memory, a client's transfers to and from it, and the possible states of both.
class model {
public:
    model(engine& client, seeded_random& random) : client_(client), random_(random) {
        for (slot& each : slots_) {
            each.now.resize(slot_bytes);
            fill(each.now, random_);
            memory_.insert(memory_.end(), each.now.begin(), each.now.end());
        }
    }

    std::vector<std::byte>& memory() { return memory_; }
    std::size_t running() const {
        return static_cast<std::size_t>(std::count_if(operations_.begin(), operations_.end(),
                                                      [](const auto& one) { return !one->over; }));
    }

    void start(const bulk& far) {
        const std::size_t at = random_.below(slot_count);
        slot& where = slots_[at];
        if (where.what != slot::state::known) return;
        where.what = slot::state::busy;
        operations_.push_back(std::make_unique<operation>());
        operation& one = *operations_.back();
        one.at = at;
        one.is_push = random_.chance(0.6);
        one.local.assign(slot_bytes, used_again);
        where.next = where.now;
        if (one.is_push) {
            fill(where.next, random_);
            one.local = where.next;
        }
        bulk_options how;
        how.striped = random_.chance(0.6);
        if (random_.chance(0.4)) how.chunk_bytes = 1 + random_.below(slot_bytes);
        if (how.chunk_bytes != 0) how.chunk_bytes = std::max<std::size_t>(how.chunk_bytes, 2000);
        if (random_.chance(0.3)) how.within = std::chrono::microseconds(random_.below(5000));
        const bool pipelined = random_.chance(0.2);
        one.by = spawn(client_.stream(), [this, far, how, pipelined, &one] {
            one.begun = true;
            one.losses = losses();
            try {
                move(far.part(one.at * slot_bytes, slot_bytes), how, pipelined, one);
                ended(one, errc::ok);
            } catch (const error& why) {
                ended(one, why.code().code);
            }
        });
    }
    void cancel_one() {
        for (const auto& one : operations_) {
            // Canceled before its start, it would never run or report.
            if (!one->begun || one->over || !random_.chance(0.5)) continue;
            return one->by.cancel();
        }
    }
    /// The memory is no longer exposed: its contents are final.
    void shown_no_more() {
        for (std::size_t i = 0; i < slot_count; ++i)
            if (slots_[i].what == slot::state::unquiet) settle(i);
        frozen_ = memory_;
    }
    void shown_again() { frozen_.clear(); }
    /// Long after all lost connections: nothing of them is written any more.
    void all_is_quiet() { shown_no_more(), shown_again(); }

    /// Checks that all is in a possible state.
    void check() {
        if (!frozen_.empty()) {
            EXPECT_TRUE(memory_ == frozen_) << "memory that is not shown changed";
        }
        for (std::size_t i = 0; i < slot_count; ++i) {
            if (slots_[i].what != slot::state::known) continue;
            EXPECT_TRUE(std::memcmp(far(i), slots_[i].now.data(), slot_bytes) == 0)
                << "slot " << i << " changed after its transfer had ended";
        }
        for (const auto& one : operations_) {
            if (!one->over) continue;
            EXPECT_TRUE(one->local == unused_)
                << "local memory changed after its transfer had ended";
        }
        if (operations_.size() > 20)
            std::erase_if(operations_, [](const auto& one) { return one->over; });
    }
    /// The client's engine ends, and all its connections with it.
    void client_stops() { stopped_ = true; }
    void join_all() { operations_.clear(); }

private:
    const std::byte* far(std::size_t at) const { return memory_.data() + at * slot_bytes; }

    static void move(const bulk& range, const bulk_options& how, bool pipelined, operation& one) {
        if (!pipelined)
            return one.is_push ? range.push(one.local, how) : range.pull(one.local, how);
        const pipeline_options same{.within = how.within};
        const std::size_t chunk = how.chunk_bytes == 0 ? 20'000 : how.chunk_bytes;
        if (one.is_push) {
            range.push_pipelined(
                chunk, 3,
                [&](mutable_bytes into, std::uint64_t offset) {
                    std::memcpy(into.data(), one.local.data() + offset, into.size());
                },
                same);
        } else {
            range.pull_pipelined(
                chunk, 3,
                [&](const_bytes from, std::uint64_t offset) {
                    std::memcpy(one.local.data() + offset, from.data(), from.size());
                },
                same);
        }
    }

    std::uint64_t losses() const {
        std::uint64_t lost = stopped_ ? 1 : 0;
        for (const counter_value& each : client_.counters().snapshot())
            if (each.name == "rpc.peers_lost") lost += each.value;
        return lost;
    }

    /// Runs right at the end, to detect later writes.
    void ended(operation& one, errc code) {
        slot& where = slots_[one.at];
        if (code == errc::ok) {
            EXPECT_TRUE(std::memcmp(far(one.at), where.next.data(), slot_bytes) == 0)
                << (one.is_push ? "a push" : "a pull") << " that ended well left something else";
            EXPECT_TRUE(one.local == where.next) << "local bytes are not those";
        }
        // A ULT canceled during a push learns nothing else.
        const bool maybe_lost = code == errc::canceled && losses() != one.losses;
        if (!one.is_push || !(is_loss(code) || maybe_lost))
            settle(one.at);
        else
            where.what = slot::state::unquiet;
        std::fill(one.local.begin(), one.local.end(), used_again);
        one.over = true;
    }
    void settle(std::size_t at) {
        slot& where = slots_[at];
        const std::byte* const holds = far(at);
        std::size_t strange = 0;
        const bool whole = std::memcmp(holds, where.now.data(), slot_bytes) == 0 ||
                           std::memcmp(holds, where.next.data(), slot_bytes) == 0;
        for (std::size_t i = 0; i < slot_bytes && !whole; ++i)
            strange += holds[i] != where.now[i] && holds[i] != where.next[i] ? 1 : 0;
        EXPECT_EQ(strange, 0u) << "bytes that nobody wrote, in slot " << at;
        where.now.assign(holds, holds + slot_bytes);
        where.what = slot::state::known;
    }

    engine& client_;
    seeded_random& random_;
    std::vector<std::byte> memory_;
    std::vector<std::byte> frozen_;
    std::vector<slot> slots_ = std::vector<slot>(slot_count);
    std::vector<std::unique_ptr<operation>> operations_;
    const std::vector<std::byte> unused_ = std::vector<std::byte>(slot_bytes, used_again);
    bool stopped_ = false;
};

// ---- in virtual time: paths that are slow, cut, lost

struct virtual_world {
    explicit virtual_world(std::uint64_t seed)
        : random(seed),
          net({.seed = seed,
               .inline_bytes = random.chance(0.7) ? std::size_t{1} << 20 : 4096,
               .link_bytes = std::size_t{1} << (16 + random.below(7))}),
          server(ports(), {.ports = {.silence_limit = server_limit}}),
          client(net.port("client", {.silence_limit = client_limit}),
                 {.ports = {.silence_limit = client_limit}}) {
        net.delay(10us, std::chrono::microseconds(20 + random.below(2000)));
        net.reorder(random.chance(0.5));
        server.define("memory", [this] { return bulk(shown); });
    }

    std::vector<std::unique_ptr<port>> ports() {
        std::vector<std::unique_ptr<port>> both;
        for (const char* name : {"a", "b"})
            both.push_back(net.port(name, {.silence_limit = server_limit}));
        return both;
    }
    /// Looks up the server and gets its memory. Takes virtual time.
    void find() {
        auto found = client.spawn([this] {
            try {
                const peer there = client.lookup(server.addresses());
                far = client.procedure<bulk()>("memory").on(there).within(100ms)();
            } catch (const error&) {
                far = bulk();
            }
        });
        for (int i = 0; i < 200 && !found.ready(); ++i)
            net.run_for(50ms);
        EXPECT_TRUE(found.ready());
    }
    void some_time() { net.run_for(std::chrono::microseconds(random.below(1500))); }

    seeded_random random;
    std::chrono::milliseconds server_limit{random.chance(0.5) ? 50 : 5000};
    std::chrono::milliseconds client_limit{random.chance(0.5) ? 40 : 1000};
    loop_network net;
    exposed shown;
    engine server;
    engine client;
    bulk far;
};

void run_in_virtual_time(std::uint64_t seed) {
    virtual_world world(seed);
    seeded_random& random = world.random;
    model expects(world.client, random);
    world.shown = expose(world.server, expects.memory(), access::read_write);
    world.find();
    const double cuts = random.chance(0.5) ? 0.05 : 0.005;
    for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
        if (random.chance(0.5) && world.far) expects.start(world.far);
        if (random.chance(0.15)) expects.cancel_one();
        if (random.chance(cuts)) world.net.cut(random.chance(0.5) ? "a" : "b");
        if (random.chance(0.03)) world.net.run_for(50ms);  // May exceed a silence limit.
        if (random.chance(0.07)) {
            world.net.heal("a");
            world.net.heal("b");
        }
        if (random.chance(0.01)) world.net.fail_operation(1 + random.below(50));
        if (random.chance(0.02)) {
            world.shown.close();
            expects.shown_no_more();
            world.some_time();
            expects.check();
            world.shown = expose(world.server, expects.memory(), access::read_write);
            expects.shown_again();
            world.find();
        }
        if (random.chance(0.02)) {
            world.net.heal("a");
            world.net.heal("b");
            world.find();
        }
        world.some_time();
        expects.check();
    }
    world.net.fail_operation(~std::uint64_t{0});
    if (random.chance(0.5)) {
        world.net.heal("a");
        world.net.heal("b");
    }
    if (random.chance(0.2)) {
        expects.client_stops();
        world.client.stop();
    }
    if (random.chance(0.2)) world.server.stop();
    world.net.run_for(60s);
    world.net.heal("a");
    world.net.heal("b");
    world.net.run_for(60s);
    EXPECT_EQ(expects.running(), 0u) << "transfers that never end";
    expects.all_is_quiet();
    expects.check();
    EXPECT_EQ(world.net.open_operations(), 0u);
    expects.join_all();
    world.far = bulk();
    world.shown.close();
}

TEST(bulk_model, ended_transfers_move_no_byte_over_ways_that_are_slow_cut_or_lost) {
    for (const std::uint64_t seed : seeded_runs(15))
        run_in_virtual_time(seed);
}

// ---- between threads, over real transports

/// URIs of one engine's listening ports, and of the other's.
struct real_ways {
    const char* name;
    std::vector<std::string> server;
    std::vector<std::string> client;
    bool may_be_missing = false;  ///< Not in every build.
};

std::vector<real_ways> all_ways() {
    std::vector<real_ways> all{
        {"loop", {"loop://bulk-model-server"}, {"loop://bulk-model-client"}}};
#if !defined(__SANITIZE_THREAD__)  // It cannot see ordering through sockets.
    const std::string tcp = "tcp://127.0.0.1:0";
    all.push_back({"tcp", {tcp}, {"tcp://"}});
    all.push_back({"shm", {"shm://"}, {"shm://"}});
    all.push_back({"tcp twice", {tcp, tcp}, {"tcp://"}});
    all.push_back({"tcp and shm", {tcp, "shm://"}, {"tcp://", "shm://"}});
    all.push_back({"tcp and loop",
                   {tcp, "loop://bulk-model-server"},
                   {"tcp://", "loop://bulk-model-client"}});
    all.push_back(
        {"ucx and tcp", {"ucx+tcp://127.0.0.1:0", tcp}, {"ucx+tcp://lo/", "tcp://"}, true});
    all.push_back({"ofi and tcp", {"ofi+tcp://127.0.0.1:0", tcp}, {"ofi+tcp://", "tcp://"}, true});
#endif
    return all;
}

/// Two engines, or none if a transport is not built.
struct real_world {
    explicit real_world(const real_ways& ways) {
        try {
            server.emplace(ways.server);
            client.emplace(ways.client);
        } catch (const error&) {
            if (!ways.may_be_missing) throw;
        }
    }
    explicit operator bool() const { return server.has_value() && client.has_value(); }

    exposed shown;
    std::optional<engine> server;
    std::optional<engine> client;
};

bulk find(engine& server, engine& client, const exposed& shown) {
    server.define("memory", [&shown] { return bulk(shown); });
    const peer there = client.lookup(server.addresses());
    bulk far = client.procedure<bulk()>("memory").on(there)();
    server.undefine("memory");
    return far;
}

/// The model belongs to the client's first stream, where this runs as a ULT.
void drive(engine& server, engine& client, model& expects, exposed& shown, seeded_random& random) {
    bulk far = find(server, client, shown);
    for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
        expects.start(far);
        if (random.chance(0.3)) expects.cancel_one();
        if (random.chance(0.03)) {
            shown.close();
            expects.shown_no_more();
            expects.check();
            shown = expose(server, expects.memory(), access::read_write);
            expects.shown_again();
            far = find(server, client, shown);
        }
        if (random.chance(0.5))
            this_task::sleep_for(std::chrono::microseconds(random.below(400)));
        else
            this_task::yield();
        expects.check();
    }
    if (random.chance(0.3)) server.stop();  // Transfers in flight end as lost, or well.
    while (expects.running() != 0)
        this_task::sleep_for(100us);
    shown.close();
    expects.shown_no_more();
    expects.check();
    expects.join_all();
}

void run_between_threads(const real_ways& ways, std::uint64_t seed) {
    SCOPED_TRACE(ways.name);
    seeded_random random(seed);
    std::optional<model> expects;
    real_world world(ways);
    if (!world) return;
    expects.emplace(*world.client, random);
    world.shown = expose(*world.server, expects->memory(), access::read_write);
    world.client->run([&] { drive(*world.server, *world.client, *expects, world.shown, random); });
    world.client->stop();
    world.server->stop();
}

TEST(bulk_model, ended_transfers_move_no_byte_over_real_transports) {
    for (const std::uint64_t seed : seeded_runs(2))
        for (const real_ways& ways : all_ways())
            run_between_threads(ways, seed);
}

}  // namespace
}  // namespace amalgam

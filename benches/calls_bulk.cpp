// Transfers of 4 KiB over shared memory: several at once, with their progress told, of memory of a
// kind, and between two others.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <amalgam/bulk.hpp>

#include "calls.hpp"
#include "pair_in_one_thread.hpp"

namespace amalgam::bench {

namespace {

constexpr const char* uri = "shm://";
constexpr std::size_t bytes = 4096;

/// What the client holds of the server's memory, which is ordinary or of a kind.
struct memory_of_server {
    memory_of_server() {
        served = serves.serve(block, access::read_write);
        both.server.define("where", [&]() -> bulk { return shown; });
        both.server.define("where.kind", [&]() -> bulk { return served; });
        ask("where", there);
        ask("where.kind", there_of_kind);
    }
    ~memory_of_server() {
        both.in_ult_of(both.server, [&] { served.close(); });
    }
    void ask(const char* name, std::optional<bulk>& into) {
        const auto where = both.client.procedure<bulk()>(name).on(both.server.address());
        both.in_ult_of(both.client, [&] { into.emplace(where()); });
    }

    pair_in_one_thread both{uri};
    std::vector<std::byte> target = std::vector<std::byte>(bytes);
    std::vector<std::byte> mine = std::vector<std::byte>(bytes, std::byte{7});
    exposed shown = expose(both.server, target, access::read_write);
    memory_block block{host_memory(), bytes};
    memory_server serves{both.server};
    served_memory served;
    std::optional<bulk> there, there_of_kind;
};

/// Per `one(memory)` of ULTs of the client.
template <typename One>
double in_callers(const length& l, One one) {
    memory_of_server memory;
    return l.nanoseconds_each(calls, [&] {
        memory.both.in_callers([&] {
            for (std::size_t i = 0; i < calls_each; ++i)
                one(memory);
        });
    });
}

double pull_alone(const length& l) {
    return in_callers(l, [](memory_of_server& of) { of.there->pull(of.mine); });
}

double push_told(const length& l) {
    std::uint64_t told = 0;
    const double each = in_callers(l, [&](memory_of_server& of) {
        of.there->push(of.mine, {.on_progress = [&](std::uint64_t done) { told += done; }});
    });
    return told == 0 ? -1 : each;
}

double two_pushes(const length& l) {
    return in_callers(l, [](memory_of_server& of) {
        of.there->push(of.mine);
        of.there->push(of.mine);
    });
}

double transfers_of_two(const length& l) {
    return in_callers(l, [](memory_of_server& of) {
        transfers all;
        all.push(*of.there, of.mine);
        all.push(*of.there, of.mine);
        all.run();
    });
}

double pull_of_kind(const length& l) {
    return in_callers(l, [](memory_of_server& of) { of.there_of_kind->pull(of.mine); });
}

double pull_into_kind(const length& l) {
    return in_callers(l, [](memory_of_server& of) {
        const memory_block mine(host_memory(), bytes);
        pull(*of.there, mine);
    });
}

/// From the client's memory to the server's, told by a third, which asks the server.
double copy_between_two(const length& l) {
    memory_of_server memory;
    pair_in_one_thread& both = memory.both;
    engine asks(uri, pair_in_one_thread::driven({}));
    const exposed source = expose(both.client, memory.mine, access::read);
    both.client.define("where", [&]() -> bulk { return source; });
    const copy_service serves(both.server);
    const auto in_ult = [&](auto work) {
        future<void> done = asks.spawn(work);
        both.drive_until([&] {
            asks.progress();
            return done.ready();
        });
        done.get();
    };
    std::optional<bulk> from, to;
    in_ult([&] {
        from.emplace(asks.procedure<bulk()>("where").on(both.client.address())());
        to.emplace(asks.procedure<bulk()>("where").on(both.server.address())());
    });
    bool by_target = true;
    const double each = l.nanoseconds_each(calls, [&] {
        in_ult([&] {
            for (std::size_t i = 0; i < calls; ++i)
                by_target = copy(asks, *from, *to) == copied_by::target && by_target;
        });
    });
    in_ult([&] {
        from.reset();
        to.reset();
    });
    return by_target ? each : -1;
}

constexpr question questions[] = {
    {"shm-pull", pull_alone},           {"shm-push-told", push_told},
    {"shm-two-pushes", two_pushes},     {"shm-transfers-of-two", transfers_of_two},
    {"shm-pull-of-kind", pull_of_kind}, {"shm-pull-into-kind", pull_into_kind},
    {"shm-copy", copy_between_two},
};

}  // namespace

std::span<const question> questions_of_bulk() noexcept {
    return questions;
}

}  // namespace amalgam::bench

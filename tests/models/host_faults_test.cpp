// Faults of a host's processes: servers are stopped (SIGSTOP), continued, killed and restarted at
// random moments, while one client calls them in every form. Every operation ends; every result is
// right; every failure has a fitting code; and finally the client is at rest, with its memory and
// descriptors freed.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/ult.hpp>

#include "conformance/child_process.hpp"
#include "seeded_runs.hpp"

#if defined(__SANITIZE_THREAD__)
/// Children of later runs are forked after threads existed, and start threads themselves.
extern "C" const char* __tsan_default_options() {
    return "die_after_fork=0";
}
#endif

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;

constexpr std::size_t server_count = 3;
constexpr std::size_t spare_count = 6;  ///< They replace killed ones.
constexpr std::size_t block_bytes = 300'000;
constexpr std::size_t callers = 6;

engine_options quick_to_notice() {
    engine_options how;
    how.ports.silence_limit = 300ms;
    return how;
}

std::byte pattern(std::size_t at) {
    return static_cast<std::byte>(at * 7 + at / 251);
}

/// A child: waits for a URI, serves there until its line ends.
int serve(channel& line) {
    default_logger().set_level(log_level::off);
    std::string uri;
    try {
        uri = line.hear();
    } catch (const std::runtime_error&) {
        return 0;  // An unused spare.
    }
    engine here(uri, quick_to_notice());
    std::vector<std::byte> known(block_bytes);
    for (std::size_t i = 0; i < known.size(); ++i)
        known[i] = pattern(i);
    std::array<std::vector<std::byte>, callers> written;
    for (auto& each : written)
        each.resize(block_bytes);
    const exposed shown = expose(here, const_segments(known));
    std::vector<exposed> writable;
    for (auto& each : written)
        writable.push_back(expose(here, each, access::read_write));

    here.define("next", [](std::uint64_t number) { return number + 1; });
    here.define("echo", [](std::string text) { return text; });
    here.define("note", [](std::string) {});
    here.define("count", [](stream_writer<std::uint64_t>& out, std::uint64_t values) {
        for (std::uint64_t i = 0; i < values; ++i)
            out(i);
    });
    here.define("back", [&here](std::uint64_t number) {
        const peer asking = call_context::current().from();
        return here.procedure<std::uint64_t(std::uint64_t)>("next").on(asking).within(2s)(number);
    });
    here.define("known", [&]() -> bulk { return shown; });
    here.define("written", [&](std::uint32_t which) -> bulk { return writable.at(which); });
    line.say(here.address());
    try {
        for (;;)
            line.hear();
    } catch (const std::runtime_error&) {
        return 0;
    }
}

/// Possible results of a call to a process that is stopped, killed, or restarted.
bool is_a_fault_of_the_host(errc code) {
    switch (code) {
        case errc::timed_out:
        case errc::disconnected:
        case errc::unreachable:
        case errc::unavailable:
        case errc::overloaded:
            return true;
        default:
            return false;
    }
}

/// The servers, and the faults injected into them.
class host {
public:
    host() {
        for (std::size_t i = 0; i < server_count + spare_count; ++i)
            processes_.push_back(std::make_unique<child_process>(&serve));
    }

    void start(const std::string& uri) {
        uri_ = uri;
        for (std::size_t i = 0; i < server_count; ++i)
            start_in(i);
    }
    std::string address(std::size_t server) const {
        const std::lock_guard hold(lock_);
        return addresses_[server];
    }
    void make_trouble(seeded_random& random) {
        const std::size_t server = random.below(server_count);
        child_process& process = *processes_[running_[server]];
        const std::uint64_t which = random.below(10);
        if (stopped_[server]) {
            process.thaw();
            stopped_[server] = false;
        } else if (which == 0 && next_ < processes_.size()) {
            process.kill();
            start_in(server);
        } else if (which < 7) {
            process.freeze();
            stopped_[server] = true;
            if (which == 1 && next_ < processes_.size()) {  // Killed while stopped.
                process.kill();
                stopped_[server] = false;
                start_in(server);
            }
        }
    }
    void calm_down() {
        for (std::size_t i = 0; i < server_count; ++i) {
            if (std::exchange(stopped_[i], false)) processes_[running_[i]]->thaw();
        }
    }

private:
    void start_in(std::size_t server) {
        running_[server] = next_++;
        child_process& process = *processes_[running_[server]];
        process.line().say(uri_);
        const std::string where = process.line().hear();
        const std::lock_guard hold(lock_);
        addresses_[server] = where;
    }

    std::vector<std::unique_ptr<child_process>> processes_;
    std::string uri_;
    std::size_t next_ = 0;
    std::array<std::size_t, server_count> running_{};
    std::array<bool, server_count> stopped_{};
    mutable std::mutex lock_;
    std::array<std::string, server_count> addresses_;
};

/// Calls the servers in every form, as one ULT.
class caller {
public:
    caller(engine& client, const host& servers, std::uint32_t number, std::uint64_t seed)
        : client_(client), servers_(servers), number_(number), random_(seed) {}

    void work(const std::atomic<bool>& over) {
        while (!over)
            once();
    }
    std::uint64_t good() const { return good_; }

private:
    void once() {
        const std::string where = servers_.address(random_.below(server_count));
        try {
            const peer there = client_.lookup(where);
            switch (random_.below(7)) {
                case 0:
                    return number(there, "next");
                case 1:
                    return number(there, "back");
                case 2:
                    return text(there);
                case 3:
                    return values(there);
                case 4:
                    return pull(there);
                case 5:
                    return push(there);
                default:
                    client_.procedure<void(std::string)>("note").on(there).post(some_text());
            }
        } catch (const error& why) {
            const errc code = why.code().code;
            EXPECT_TRUE(
                is_a_fault_of_the_host(code == errc::handler_failed ? why.handler_code() : code))
                << name(why.code().code) << ": " << why.what();
            this_task::sleep_for(1ms);
        }
    }

    /// With a time limit or without one: then loss of the peer ends it.
    template <typename Procedure>
    Procedure limited(Procedure call) {
        if (random_.chance(0.3)) return call;
        return call.within(std::chrono::milliseconds(5 + random_.below(200)));
    }
    void number(const peer& there, const char* procedure) {
        const std::uint64_t sent = random_();
        EXPECT_EQ(
            limited(client_.procedure<std::uint64_t(std::uint64_t)>(procedure).on(there))(sent),
            sent + 1);
        ++good_;
    }
    std::string some_text() {
        const std::size_t sizes[] = {0, 10, 2'000, 70'000, 900'000};
        return std::string(sizes[random_.below(5)], static_cast<char>('a' + random_.below(26)));
    }
    void text(const peer& there) {
        const std::string sent = some_text();
        EXPECT_TRUE(limited(client_.procedure<std::string(std::string)>("echo").on(there))(sent) ==
                    sent);
        ++good_;
    }
    void values(const peer& there) {
        const std::uint64_t all = random_.below(2000);
        auto stream = limited(
            client_.procedure<streamed<std::uint64_t>(std::uint64_t)>("count").on(there))(all);
        std::uint64_t read = 0;
        const std::uint64_t most = random_.chance(0.2) ? random_.below(all + 1) : all + 1;
        while (read < most) {
            const std::optional<std::uint64_t> next = stream.next();
            if (!next) break;
            ASSERT_EQ(*next, read);
            ++read;
        }
        if (most > all) {
            EXPECT_EQ(read, all);
        }
        ++good_;
    }
    void pull(const peer& there) {
        const bulk known = limited(client_.procedure<bulk()>("known").on(there))();
        const std::size_t from = random_.below(block_bytes);
        std::vector<std::byte> into(random_.below(block_bytes - from));
        known.pull(from, into);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < into.size(); ++i)
            wrong += into[i] != pattern(from + i);
        EXPECT_EQ(wrong, 0U);
        ++good_;
    }
    void push(const peer& there) {
        const bulk mine =
            limited(client_.procedure<bulk(std::uint32_t)>("written").on(there))(number_);
        std::vector<std::byte> sent(block_bytes), back(block_bytes);
        for (std::size_t i = 0; i < sent.size(); ++i)
            sent[i] = pattern(i + random_.below(2));
        mine.push(sent);
        mine.pull(back);
        EXPECT_TRUE(sent == back);
        ++good_;
    }

    engine& client_;
    const host& servers_;
    const std::uint32_t number_;
    seeded_random random_;
    std::uint64_t good_ = 0;
};

/// Open descriptors of this process.
std::multiset<std::string> descriptors() {
    std::multiset<std::string> all;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
        const std::string what = std::filesystem::read_symlink(each.path()).string();
        all.insert(what.substr(0, what.find(':')));  // Without socket numbers.
    }
    return all;
}

std::uint64_t counter(engine& of, std::string_view wanted) {
    for (const counter_value& each : of.counters().snapshot()) {
        if (each.name == wanted) return each.value;
    }
    return 0;
}

/// Once all run again, all can be reached.
void expect_good_calls(engine& client, const host& servers) {
    for (std::size_t i = 0; i < server_count; ++i) {
        const auto next =
            client.procedure<std::uint64_t(std::uint64_t)>("next", {.idempotent = true})
                .on(servers.address(i))
                .retrying(20, 50ms);
        EXPECT_EQ(next(1), 2U);
    }
}

void run(const std::string& uri, std::uint64_t seed) {
    seeded_random random(seed);
    host servers;
    try {
        engine(uri, quick_to_notice()).stop();  // Opens what exists once per process.
    } catch (const error&) {
        EXPECT_NE(uri.find('+'), std::string::npos) << "only plug-ins may be missing";
        return;
    }
    const auto descriptors_before = descriptors();
    servers.start(uri);
    {
        engine client(uri, quick_to_notice());
        client.define("next", [](std::uint64_t number) { return number + 1; });
        std::atomic<bool> over{false};
        std::vector<std::unique_ptr<caller>> all;
        std::vector<future<void>> ended;
        for (std::uint32_t i = 0; i < callers; ++i) {
            all.push_back(std::make_unique<caller>(client, servers, i, random()));
            ended.push_back(client.spawn([&over, one = all.back().get()] { one->work(over); }));
        }
        for (int i = 0; i < 30; ++i) {
            // Sometimes longer than the silence limit, mostly shorter.
            std::this_thread::sleep_for(
                std::chrono::milliseconds(random.below(20) == 0 ? 500 : random.below(40)));
            servers.make_trouble(random);
        }
        servers.calm_down();
        over = true;
        std::uint64_t good = 0;
        for (std::uint32_t i = 0; i < callers; ++i) {
            ended[i].get();
            good += all[i]->good();
        }
        EXPECT_GT(good, 0U);
        expect_good_calls(client, servers);
        for (const char* each : {"rpc.running", "rpc.lent", "rpc.borrowed_bytes"})
            EXPECT_EQ(counter(client, each), 0U) << each;
    }
    EXPECT_EQ(descriptors(), descriptors_before);
}

TEST(host_faults, every_call_ends_and_the_client_goes_on_whoever_is_stopped_or_killed) {
    default_logger().set_level(log_level::off);
    const char* const uris[] = {"shm://", "tcp://127.0.0.1:0", "ucx+tcp://127.0.0.1:0",
                                "ofi+tcp://127.0.0.1:0"};
    for (const std::uint64_t seed : seeded_runs(4))
        run(uris[seed % 4], seed);
}

}  // namespace
}  // namespace amalgam

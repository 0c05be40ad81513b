#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "seeded_runs.hpp"

// Random programs of calls: threads, handlers and callbacks call, cancel, stop and destroy whatever
// they can reach, and throw anything. Nevertheless each call ends once, with its own value or a
// possible outcome; its handler runs at most once; a stream's values arrive in order and intact;
// and finally every engine is gone.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_calls = 1 << 14;
constexpr std::uint64_t answer_offset = 1'000'000;

[[noreturn]] void throw_something(std::uint64_t which) {
    switch (which % 4) {
        case 0:
            throw error(errc::denied, "a user's function");
        case 1:
            throw std::runtime_error("a user's function");
        case 2:
            throw std::bad_alloc();
        default:
            throw 7;
    }
}

/// Throws while being serialized or deserialized, if its flags say so.
struct item {
    static constexpr std::uint8_t throws_in_save = 1, throws_in_load = 2;
    std::uint64_t id = 0;
    std::uint8_t flags = 0;
    std::string text;

    template <typename Archive>
    void save(Archive& to) const {
        to(id, flags, text);
        if ((flags & throws_in_save) != 0) throw_something(id);
    }
    template <typename Archive>
    void load(Archive& from) {
        from(id, flags, text);
        if ((flags & throws_in_load) != 0) throw_something(id);
    }
    static constexpr std::string_view amalgam_type_name = "item";
};

struct world;

struct box {
    box(world& of, const std::string& uri);
    void start(const std::shared_ptr<box>& self);

    world& all;
    const int order;  // Of construction.
    std::string address;
    std::atomic<bool> stopped{false};
    std::optional<engine> here;
};

/// Sees every call of an engine.
struct watch : interceptor {
    explicit watch(world& of) : all(of) {}
    void calling(outgoing_call&) override { look(); }
    void called(std::string_view, const peer&, status, clock::duration) override { look(); }
    void serving(call_context& call) override {
        if (!call.procedure().starts_with("amalgam.")) look();
    }
    void served(call_context&, status, clock::duration) override { look(); }
    void look();
    world& all;
};

enum class place { thread, ult, callback };

struct world {
    world(std::uint64_t run, std::string transport, int operations)
        : seed(run), uri(std::move(transport)), budget(operations) {}

    std::uint64_t next_random() { return mixed.fetch_add(1) * 0x9E3779B97F4A7C15u + seed; }

    std::shared_ptr<box> make();
    std::shared_ptr<box> some(seeded_random& random) {
        const std::lock_guard hold(lock);
        return slots[random.below(slots.size())];
    }
    std::string some_address(seeded_random& random) {
        const std::lock_guard hold(lock);
        return addresses.empty() ? "loop://nobody" : addresses[random.below(addresses.size())];
    }
    std::optional<future<item>> some_future() {
        const std::lock_guard hold(lock);
        if (futures.empty()) return std::nullopt;
        std::optional<future<item>> last(std::move(futures.back()));
        futures.pop_back();
        return last;
    }
    void replace(seeded_random& random, std::shared_ptr<box> by) {
        const std::lock_guard hold(lock);
        std::swap(slots[random.below(slots.size())], by);
        // The replaced one is released outside the lock, by the caller's parameter.
        graves.push_back(std::move(by));
    }
    void leave(std::shared_ptr<box> what) {
        const std::lock_guard hold(lock);
        graves.push_back(std::move(what));
    }
    void remove(const std::shared_ptr<box>& what) {
        const std::lock_guard hold(lock);
        for (std::shared_ptr<box>& each : slots) {
            if (each == what) each = nullptr;  // The caller's reference remains.
        }
    }
    void bury() {
        std::vector<std::shared_ptr<box>> last;
        {
            const std::lock_guard hold(lock);
            last.swap(graves);
        }
    }

    /// Another thread answers.
    void answer_later(responder<item> to, item what) {
        const std::lock_guard hold(answers_lock);
        answers.emplace_back(std::move(to), std::move(what));
        more_answers.notify_one();
    }
    void answer_until_the_end() {
        std::unique_lock hold(answers_lock);
        for (;;) {
            more_answers.wait(hold, [&] { return !answers.empty() || no_more_answers; });
            if (answers.empty()) return;
            std::pair<responder<item>, item> next = std::move(answers.back());
            answers.pop_back();
            hold.unlock();
            next.first(next.second);
            hold.lock();
        }
    }
    void end_answers() {
        const std::lock_guard hold(answers_lock);
        no_more_answers = true;
        more_answers.notify_one();
    }

    /// A port freed by an engine may be reused by another program, even one of this kind.
    std::string only_here(const std::string& name) const {
        return name + "." + std::to_string(::getpid()) + "." + std::to_string(seed);
    }

    const std::uint64_t seed;
    const std::string uri;
    std::atomic<int> boxes{0};
    std::atomic<std::uint64_t> mixed{1};
    std::atomic<int> budget;
    std::atomic<bool> quiet{false};  // No more random faults.

    std::mutex answers_lock;
    std::condition_variable more_answers;
    std::vector<std::pair<responder<item>, item>> answers;
    bool no_more_answers = false;

    std::mutex lock;
    std::array<std::shared_ptr<box>, 3> slots;
    std::vector<std::shared_ptr<box>> graves;
    std::vector<std::string> addresses;
    std::vector<std::weak_ptr<int>> tokens;  // Each lives as long as an engine's core.
    std::vector<future<item>> futures;
    std::vector<streamed<item>> streams;

    // Per call, by its number.
    std::atomic<std::uint64_t> numbers{0};
    std::array<std::atomic<std::uint8_t>, most_calls> ran{}, told{}, asked{}, attempts{};
};

void maybe_throw(world& all, unsigned one_in) {
    const std::uint64_t r = seeded_random(all.next_random())();
    if (!all.quiet && r % one_in == 0) throw_something(r >> 32);
}

void act(world& all, const std::shared_ptr<box>& self, place where);

void watch::look() {
    const std::uint64_t r = seeded_random(all.next_random())();
    if (r % 16 == 0 && !this_task::in_ult()) act(all, nullptr, place::callback);
    maybe_throw(all, 24);
}

bool is_possible(errc how) {
    switch (how) {
        case errc::timed_out:
        case errc::overloaded:
        case errc::unavailable:
        case errc::unreachable:
        case errc::disconnected:
        case errc::invalid:
        case errc::not_found:
        case errc::denied:
        case errc::mismatch:
        case errc::canceled:
        case errc::no_memory:
        case errc::handler_failed:
        case errc::closed:
            return true;
        default:
            return false;
    }
}

void check_ended(world& all, std::uint64_t id, const result<item>& got) {
    if (got.ok()) {
        EXPECT_EQ(got->id, id + answer_offset);
        EXPECT_EQ(got->text.find_first_not_of(static_cast<char>('a' + id % 26)), std::string::npos);
        EXPECT_GE(all.ran[id], 1);
    } else {
        EXPECT_TRUE(is_possible(got.code().code)) << name(got.code().code) << got.sentence();
    }
    EXPECT_LE(all.ran[id], all.attempts[id]);
}

std::shared_ptr<box> world::make() {
    auto fresh = std::make_shared<box>(*this, uri);
    fresh->start(fresh);
    const std::lock_guard hold(lock);
    addresses.push_back(fresh->address);
    if (addresses.size() > 6) addresses.erase(addresses.begin());
    return fresh;
}

box::box(world& of, const std::string& uri) : all(of), order(++of.boxes) {
    static std::atomic<int> names{0};
    const bool loop = uri == "loop://";
    here.emplace(loop ? "loop://model" + std::to_string(++names) : uri,
                 engine_options{.streams = 2,
                                .max_queued = 16,
                                .interceptors = {std::make_shared<watch>(of)},
                                .drain = 20s});
    address = here->address();
}

void box::start(const std::shared_ptr<box>& self) {
    world* const w = &all;
    const auto token = std::make_shared<int>(0);
    {
        const std::lock_guard hold(w->lock);
        w->tokens.push_back(token);
    }
    const std::weak_ptr<box> weak = self;
    // May park: then it holds the engine, so that nobody ends the stream under it.
    const auto echo = [w, weak, token](place where, const item& in) {
        w->ran[in.id].fetch_add(1);
        if (const std::shared_ptr<box> mine = weak.lock()) {
            if (in.id % 3 == 0) act(*w, mine, where);
        }
        maybe_throw(*w, 24);
        return item{in.id + answer_offset, static_cast<std::uint8_t>(in.flags >> 2), in.text};
    };
    here->define(w->only_here("echo"), [echo](const item& in) { return echo(place::ult, in); });
    here->define(w->only_here("inline"),
                 [echo](const item& in) { return echo(place::callback, in); },
                 {.run = handler::inline_});
    here->define(w->only_here("elsewhere"), [echo](const item& in) { return echo(place::ult, in); },
                 {.in = &here->stream(1).main_pool()});
    here->define(w->only_here("late"), [w, echo](responder<item> answer, const item& in) {
        const item out = echo(place::callback, in);
        if (in.id % 5 == 0) return;  // Destroys the responder.
        if (in.id % 2 == 0) return answer(out);
        w->answer_later(std::move(answer), out);
    });
    here->define(w->only_here("count"),
                 [w, weak](stream_writer<item>& out, std::uint64_t number, int values) {
                     const std::shared_ptr<box> mine = weak.lock();
                     if (mine == nullptr) throw error(errc::closed, "its engine ends");
                     for (int i = 0; i < values; ++i) {
                         out(item{number + static_cast<std::uint64_t>(i), 0, "v"});
                         maybe_throw(*w, 200);
                         if (i % 7 == 3) this_task::yield();
                     }
                     if (number % 4 == 0) act(*w, mine, place::ult);
                 });
}

item next_item(world& all, seeded_random& random) {
    const std::uint64_t id = all.numbers.fetch_add(1) % most_calls;
    const std::size_t sizes[] = {0, 30, 300, 5'000, 100'000};
    std::uint8_t flags = 0;
    if (!all.quiet && random.chance(0.15)) flags = static_cast<std::uint8_t>(random.below(16));
    all.attempts[id] = 1;
    return {id, flags, std::string(sizes[random.below(5)], static_cast<char>('a' + id % 26))};
}

void read_some(streamed<item>& values, std::uint64_t first, int most, int all_of_them) {
    int read = 0;
    try {
        while (read < most) {
            const std::optional<item> next = values.next();
            if (!next) break;
            EXPECT_EQ(next->id, first + static_cast<std::uint64_t>(read));
            ++read;
        }
        if (read < most) {
            EXPECT_EQ(read, all_of_them);
        }
    } catch (const error& why) {
        EXPECT_TRUE(is_possible(why.code().code)) << name(why.code().code) << why.what();
    }
    EXPECT_LE(read, all_of_them);
}

/// At the end of a step whose ULT must not end this engine: hands it to a thread to release.
struct left_to_threads {
    world& all;
    std::shared_ptr<box>& what;
    bool applies;
    ~left_to_threads() {
        if (applies) all.leave(std::move(what));
    }
};

/// One step of a program. `self`: the engine that runs it, held by the caller; or null.
void act(world& all, const std::shared_ptr<box>& self, place where) {
    if (all.budget.fetch_sub(1) <= 0) return;
    seeded_random random(all.next_random());
    std::shared_ptr<box> by = self != nullptr && random.chance(0.3) ? self : all.some(random);
    if (by == nullptr) return;
    // Only ULTs of the older of two engines may wait for the other's end; mutual waits would
    // deadlock.
    const bool may_end = !this_task::in_ult() || (where == place::ult && self->order <= by->order);
    const left_to_threads last_of_it{all, by, !may_end};
    engine& here = *by->here;
    world* const w = &all;
    try {
        const char* const procedures[] = {"echo", "inline", "elsewhere", "late", "none"};
        const std::string name =
            w->only_here(procedures[random.below(40) == 0 ? 4 : random.below(4)]);
        const std::uint64_t step = random.below(100);
        if (step < 60) {
            const peer there = here.lookup(all.some_address(random));
            auto call = here.procedure<item(item)>(name, {.idempotent = true})
                            .on(there)
                            .within(std::chrono::milliseconds(random.below(30)));
            if (random.chance(0.1)) call = call.urgent();
            const item what = next_item(all, random);
            if (random.chance(0.1)) {
                call = call.retrying(3, 1ms);
                all.attempts[what.id] = 3;
            }
            if (step < 20 && where != place::callback) {
                check_ended(all, what.id, call.try_call(what));
            } else if (step < 35) {
                future<item> later = call.start(what);
                if (random.chance(0.3)) later.cancel();
                const std::lock_guard hold(all.lock);
                if (random.chance(0.7)) all.futures.push_back(std::move(later));
            } else if (step < 52) {
                call.call_then(
                    [w, id = what.id, weak = std::weak_ptr<box>(by)](const result<item>& got) {
                        w->told[id].fetch_add(1);
                        check_ended(*w, id, got);
                        act(*w, weak.lock(), place::callback);
                        maybe_throw(*w, 10);
                    },
                    what);
                all.asked[what.id] = 1;
            } else {
                call.post(what);
            }
        } else if (step < 72) {
            const peer there = here.lookup(all.some_address(random));
            const auto first = static_cast<std::uint64_t>(random.below(1000));
            const int values = static_cast<int>(random.below(40));
            auto stream = here.procedure<streamed<item>(std::uint64_t, int)>(w->only_here("count"))
                              .on(there)
                              .within(std::chrono::milliseconds(1 + random.below(30)))
                              .window(64)(first, values);
            if (where != place::callback) {
                if (random.chance(0.2)) stream.cancel();
                read_some(stream, first, static_cast<int>(random.below(50)), values);
            }
            const std::lock_guard hold(all.lock);
            if (random.chance(0.3)) all.streams.push_back(std::move(stream));
        } else if (step < 78 && may_end) {
            by->stopped = true;
            here.stop();
        } else if (step < 84 && this_task::in_ult()) {
            if (!may_end) return;
            all.remove(by);
            by.reset();
        } else if (step < 84) {
            all.replace(random, where == place::thread ? all.make() : nullptr);
            by.reset();
            all.bury();
        } else if (step < 90) {
            // Captures no owner of the engine, since it may never run.
            const auto body = [w, weak = std::weak_ptr<box>(by)](place inside) {
                if (const auto mine = weak.lock()) act(*w, mine, inside);
                maybe_throw(*w, 4);
            };
            execution_stream& on = here.stream(random.below(2));
            const std::uint64_t how = random.below(4);
            if (how == 0) {
                // The engine's end does not wait for this: it may remain suspended.
                post(on, [w] {
                    this_task::yield();
                    maybe_throw(*w, 4);
                });
            } else if (how == 1) {
                post_tasklet(on, [body] { body(place::callback); });
            } else if (how == 2 && where != place::callback && may_end) {
                here.run([body] { body(place::ult); });
            } else {
                (void)here.spawn([body] { body(place::ult); });
            }
        } else if (step < 94) {
            // Canceled without a lock: that runs user functions.
            if (std::optional<future<item>> last = all.some_future()) {
                if (random.chance(0.5)) last->cancel();
            }
        } else if (step < 97) {
            (void)here.counters().snapshot();
            (void)here.try_lookup(all.some_address(random));
        } else if (here.undefine(w->only_here("inline"))) {
            here.define(w->only_here("inline"), [w](const item& in) {
                w->ran[in.id].fetch_add(1);
                return item{in.id + answer_offset, 0, in.text};
            });
        }
    } catch (const error& why) {
        EXPECT_TRUE(is_possible(why.code().code)) << name(why.code().code) << why.what();
    } catch (...) {
        // Thrown by serialization.
    }
}

/// After a long time, reports who waits for what, and goes on waiting: a watchdog ends it.
template <typename Done>
void wait_until(const char* what, Done done) {
    const auto late = std::chrono::steady_clock::now() + 10s;
    bool told = false;
    while (!done()) {
        std::this_thread::yield();
        if (told || std::chrono::steady_clock::now() < late) continue;
        told = true;
        std::fprintf(stderr, "still waiting: %s\n", what);
        for (const ult_info& one : list_ults())
            std::fprintf(stderr, "  ult %s waits for %s\n", one.name.c_str(),
                         one.waits_for.c_str());
    }
}

void end_what_outlives_engines(world& all) {
    std::vector<future<item>> futures;
    std::vector<streamed<item>> streams;
    {
        const std::lock_guard hold(all.lock);
        futures.swap(all.futures);
        streams.swap(all.streams);
    }
    for (future<item>& each : futures) {
        wait_until("a future", [&] { return !each.valid() || each.ready(); });
    }
    for (streamed<item>& each : streams) {
        each.cancel();
        try {
            while (each.next())
                continue;
        } catch (const error& why) {
            EXPECT_TRUE(is_possible(why.code().code)) << name(why.code().code);
        }
    }
}

void run(std::uint64_t seed) {
    const char* const transports[] = {"loop://", "shm://", "tcp://127.0.0.1:0"};
    auto all = std::make_unique<world>(seed, transports[seed % 3], 400);
    for (auto& each : all->slots)
        each = all->make();
    std::thread answers([&all] { all->answer_until_the_end(); });
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&all] {
            while (all->budget > 0) {
                act(*all, nullptr, place::thread);
                all->bury();
            }
        });
    }
    for (auto& each : threads)
        each.join();
    all->quiet = true;
    // Every function of call_then() is called, whether or not its engine still exists.
    for (std::size_t id = 0; id < most_calls; ++id) {
        wait_until("a function to be told",
                   [&] { return all->asked[id] == 0 || all->told[id] != 0; });
    }
    all->bury();
    for (auto& each : all->slots) {
        if (each != nullptr && !each->stopped) {
            const auto at_rest = [&] {
                for (const counter_value& one : each->here->counters().snapshot()) {
                    if ((one.name == "rpc.running" || one.name == "rpc.lent") && one.value != 0) {
                        return false;
                    }
                }
                return true;
            };
            wait_until("an engine to be at rest", at_rest);
        }
    }
    for (auto& each : all->slots)
        each.reset();
    // A ULT that still runs may leave something that holds its engine.
    for (const auto& each : all->tokens) {
        wait_until("the end of an engine", [&] {
            all->bury();
            end_what_outlives_engines(*all);
            return each.expired();
        });
    }
    end_what_outlives_engines(*all);
    all->end_answers();
    answers.join();
    for (std::size_t id = 0; id < most_calls; ++id) {
        EXPECT_EQ(all->told[id], all->asked[id]) << "call " << id;
        EXPECT_LE(all->ran[id], std::max<int>(all->attempts[id], 1)) << "call " << id;
    }
}

TEST(rpc_model, every_call_ends_once_whatever_everybody_does) {
    default_logger().set_level(log_level::off);  // For exceptions nobody receives.
    for (const std::uint64_t seed : seeded_runs(30))
        run(seed);
}

}  // namespace
}  // namespace amalgam

// Injected code over one transport, beside one-way calls that do the same, between two processes
// pinned to a core each, which both poll: `bench_inject TEST WAY URI SIZE [SECONDS]`. What arrives
// is counted. Prints one JSON object, as `amalgam perf` does.
//   latency    a message of SIZE bytes there, and one back
//   rate       messages one after the other; only the last of a batch is waited for
//   first-use  a call of an image of 4 KiB that the target has not got
//   WAY: rpc (one-way calls), cached (the target has the code), always (it is in every message)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>
#include <amalgam/tasks/ult.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

struct question {
    std::string test, way, uri;
    std::size_t bytes = 0;
    double seconds = 1;
};

/// One of the two: it sends, and counts what comes.
class end_point {
public:
    explicit end_point(const question& asked) : asked_(asked) {
        on_.define("count", [this](const_bytes) { ++arrived_; }, {.run = handler::inline_});
        on_.define("arrived", [this] { return std::uint64_t{arrived_}; }, {.run = handler::inline_});
        on_.define("forget", [this] { open(); });
        open();
    }
    std::string address() const { return on_.address(); }
    void connect(const std::string& address) {
        there_ = on_.lookup(address);
        if (asked_.way == "rpc") {
            const auto content = std::make_shared<const std::vector<std::byte>>(asked_.bytes);
            send_ = [content, call = on_.procedure<void(const_bytes)>("count").on(there_)] {
                call.post_held(content, const_bytes(*content));
            };
        } else {
            send_ = [this, message = message_of("count")] { message.post(there_); };
        }
    }

    perf::measurement round_trips() {
        std::uint64_t back = 0;
        return on_.run([&] {
            return perf::measure_round_trips(asked_.seconds, [&] {
                send_();
                for (++back; arrived_ < back;)
                    this_task::yield();
            });
        });
    }
    void send_back(const perf::channel& talk) {
        on_.run([&] {
            for (std::uint64_t answered = 0, idle = 0; ++idle % (1u << 16) != 0 || !talk.closed();) {
                if (arrived_ == answered) {
                    this_task::yield();
                } else {
                    send_();
                    ++answered;
                }
            }
        });
    }
    perf::measurement rate() {
        const std::size_t batch =
            std::clamp<std::size_t>((std::size_t{1} << 22) / asked_.bytes, 4, 256);
        const auto all_there = on_.procedure<std::uint64_t()>("arrived").on(there_);
        perf::measurement result = on_.run([&] {
            return perf::measure_round_trips(asked_.seconds, [&] {
                for (std::size_t i = 0; i < batch; ++i)
                    send_();
                (void)all_there();
            });
        });
        result.ops_per_s *= static_cast<double>(batch);
        result.bytes_per_s = result.ops_per_s * static_cast<double>(asked_.bytes);
        result.depth = batch;
        return result;
    }
    perf::measurement first_uses() {
        const injection message = message_of("count_4k");
        const auto forget = on_.procedure<void()>("forget").on(there_);
        std::vector<double> all;
        on_.run([&] {
            const auto start = perf::clock_type::now();
            do {
                forget();
                const auto begin = perf::clock_type::now();
                (void)message.call(there_);
                all.push_back(perf::seconds_since(begin) * 1e6);
            } while (perf::seconds_since(start) < asked_.seconds);
        });
        std::sort(all.begin(), all.end());
        perf::measurement result;
        result.p50_us = all[all.size() / 2];
        result.p99_us = all[all.size() * 99 / 100];
        result.ops_per_s = 1e6 / result.p50_us;
        return result;
    }

private:
    injection message_of(const std::string& image) {
        return inject_.add(code_image::load(AMALGAM_BENCH_IMAGES "/" + image + ".image"))
            .create(asked_.bytes, asked_.way == "always" ? shipping::always : shipping::once);
    }
    /// For code, of which it has none.
    void open() {
        injection_options options;
        options.allows.unsigned_too = true;
        options.target_args = &arrived_;
        options.run = handler::inline_;
        target_.reset();
        target_.emplace(on_, std::move(options));
    }

    const question& asked_;
    unsigned long arrived_ = 0;
    engine on_{asked_.uri, {.name = "bench", .spin = always_spin}};
    injector inject_{on_};
    std::optional<injection_target> target_;
    peer there_;
    std::function<void()> send_;
};

void serve(const question& asked, perf::channel& talk) {
    end_point here(asked);
    talk.write_line(here.address());
    here.connect(talk.read_line());
    talk.write_line("ready");
    if (asked.test == "latency") {
        here.send_back(talk);
    } else {
        (void)talk.read_line();
    }
}

perf::measurement ask(const question& asked) {
    perf::forked_peer peer([&](perf::channel& talk) { serve(asked, talk); });
    end_point here(asked);
    const std::string there = peer.talk().read_line();
    peer.talk().write_line(here.address());
    here.connect(there);
    (void)peer.talk().read_line();
    if (asked.test == "latency") return here.round_trips();
    return asked.test == "rate" ? here.rate() : here.first_uses();
}

}  // namespace

int main(int argc, char** argv) {
    question asked;
    if (argc > 4)
        asked = {argv[1], argv[2], argv[3], static_cast<std::size_t>(std::atoll(argv[4])),
                 argc > 5 ? std::atof(argv[5]) : 1};
    const auto is_one_of = [](const std::string& word, std::initializer_list<const char*> known) {
        return std::find(known.begin(), known.end(), word) != known.end();
    };
    if (!is_one_of(asked.test, {"latency", "rate", "first-use"}) || asked.bytes == 0 ||
        !is_one_of(asked.way, {"rpc", "cached", "always"})) {
        std::fprintf(stderr,
                     "usage: %s latency|rate|first-use rpc|cached|always URI SIZE [SECONDS]\n",
                     argv[0]);
        return 2;
    }
    try {
        perf::measurement result = ask(asked);
        result.test = "inject-" + asked.test + "-" + asked.way;
        result.uri = asked.uri;
        result.size_bytes = asked.bytes;
        std::puts(perf::to_json(result).c_str());
    } catch (const error& why) {
        std::fprintf(stderr, "%s: %s\n", argv[0], why.what());
        return 1;
    }
    return 0;
}

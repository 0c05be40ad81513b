#include "injection_pair.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include <amalgam/inject/injection_ring.hpp>
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "perf/measurement.hpp"

namespace amalgam::bench {

namespace {

constexpr double slice_seconds = 0.004;

double median(std::vector<double> all) {
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                     all.end());
    return all[all.size() / 2];
}

code_image image(const std::string& name) {
    return code_image::load(AMALGAM_BENCH_IMAGES "/" + name + ".image");
}

}  // namespace

/// One end: sends, and counts received messages.
class injection_pair::end_point {
public:
    end_point(const std::string& uri, const signing_key& key)
        : on_(uri, {.name = "bench", .spin = always_spin}), key_(key) {
        on_.define("count", [this](const_bytes) { count_message(this); },
                   {.run = handler::inline_});
        on_.define("arrived", [this] { return arrived_; }, {.run = handler::inline_});
        on_.define("forget", [this] { open(); });
        on_.define("end", [this] {
            ended_ = true;
            told_.set();
        });
        on_.define("ring", [this] { return ring_->memory(); });
        on_.define("expect", [this](way by, std::size_t bytes, bool answers) {
            send_ = answers ? sender(by, bytes) : nullptr;
            comes_by_ = by;
            answered_ = arrived_;
            told_.set();
        });
        open();
    }
    std::string address() const { return on_.address(); }
    void connect(const std::string& address) {
        there_ = on_.lookup(address);
        writer_.emplace(on_.procedure<bulk()>("ring").on(there_)());
    }
    engine& on() { return on_; }
    std::uint64_t arrived() const { return arrived_; }
    /// Waits for more than that many, or for the end.
    void wait_for_more_than(std::uint64_t count) {
        while (arrived_ <= count && !ended_) {
            if (comes_by_ == way::ring) {
                ring_->poll();
                this_task::yield();
            } else {
                told_.wait();
                told_.reset();
            }
        }
    }
    static void count_message(void* me) {
        auto& here = *static_cast<end_point*>(me);
        ++here.arrived_;
        here.told_.set();
    }
    std::function<void()> sender(way by, std::size_t bytes) {
        if (by == way::rpc) {
            return [content = std::make_shared<const std::vector<std::byte>>(bytes),
                    call = on_.procedure<void(const_bytes)>("count").on(there_)] {
                call.post_held(content, const_bytes(*content));
            };
        }
        const injection message =
            count_.create(bytes, by == way::always ? shipping::always : shipping::once);
        if (by != way::ring) return [this, message] { message.post(there_); };
        return [this, message] {
            while (!writer_->try_post(message))
                this_task::yield();
        };
    }
    /// From now on messages come this way; they are answered, or not.
    void expect(way by, std::size_t bytes, bool answers) {
        comes_by_ = by;
        on_.procedure<void(way, std::size_t, bool)>("expect").on(there_)(by, bytes, answers);
    }
    std::uint64_t arrived_there() { return on_.procedure<std::uint64_t()>("arrived").on(there_)(); }
    void serve() {
        on_.run([&] {
            while (!ended_) {
                wait_for_more_than(send_ ? answered_ : arrived_);
                for (; send_ && answered_ < arrived_; ++answered_)
                    send_();
            }
        });
    }
    void end_other() { on_.procedure<void()>("end").on(there_)(); }
    double first_use(double seconds) {
        const injection message = inject_.add(image("count_4k").signed_by(key_)).create(8);
        const auto forget = on_.procedure<void()>("forget").on(there_);
        return on_.run([&] {
            std::vector<double> all;
            for (const auto start = perf::clock_type::now();
                 perf::seconds_since(start) < seconds;) {
                forget();
                const auto begin = perf::clock_type::now();
                (void)message.call(there_);
                all.push_back(perf::seconds_since(begin));
            }
            return median(all);
        });
    }

private:
    /// Opens it for code, and drops code it has.
    void open() {
        injection_options options;
        options.allows.trusted = {key_.signer()};
        options.allows.unsigned_too = true;
        options.target_args = this;
        options.exports["count_message"] = reinterpret_cast<void*>(&count_message);
        options.run = handler::inline_;
        ring_.reset();
        target_.reset();
        target_.emplace(on_, std::move(options));
        ring_.emplace(*target_, std::size_t{8} << 20);
    }

    std::uint64_t arrived_ = 0, answered_ = 0;
    bool ended_ = false;
    event told_;
    way comes_by_ = way::rpc;
    engine on_;
    const signing_key key_;
    injector inject_{on_};
    const injected_function count_ = inject_.add(image("count"));
    std::optional<injection_target> target_;
    std::optional<injection_ring> ring_;
    std::optional<injection_ring_writer> writer_;
    peer there_;
    std::function<void()> send_;  // Sends the answer; empty: none.
};

injection_pair::injection_pair(const std::string& uri) {
    const signing_key key = signing_key::generate();
    other_ = std::make_unique<perf::forked_peer>([&](perf::channel& talk) {
        end_point mine(uri, key);
        talk.write_line(mine.address());
        mine.connect(talk.read_line());
        talk.write_line("ready");
        mine.serve();
        (void)talk.read_line();
    });
    here_ = std::make_unique<end_point>(uri, key);
    const std::string there = other_->talk().read_line();
    other_->talk().write_line(here_->address());
    here_->connect(there);
    (void)other_->talk().read_line();
}

injection_pair::~injection_pair() {
    here_->on().run([&] { here_->end_other(); });
}

/// Calls `sample(way)` for each in turn during that time; returns medians.
template <typename Sample>
std::vector<way_figures> injection_pair::in_turn(const std::vector<way>& ways, double seconds,
                                                 Sample sample) {
    return here_->on().run([&] {
        std::vector<std::vector<double>> all(ways.size());
        const auto start = perf::clock_type::now();
        do {
            for (std::size_t i = 0; i < ways.size(); ++i)
                all[i].push_back(sample(ways[i]));
        } while (perf::seconds_since(start) < seconds);
        std::vector<way_figures> medians;
        for (const std::vector<double>& each : all) {
            std::vector<double> ratios;
            for (std::size_t turn = 0; turn < each.size(); ++turn)
                ratios.push_back(each[turn] / all[0][turn]);
            medians.push_back({median(each), median(ratios)});
        }
        return medians;
    });
}

std::vector<way_figures> injection_pair::latencies(const std::vector<way>& ways, std::size_t bytes,
                                                   double seconds) {
    return in_turn(ways, seconds, [&](way by) {
        here_->expect(by, bytes, true);
        const auto send = here_->sender(by, bytes);
        const auto exchange = [&] {
            const std::uint64_t before = here_->arrived();
            send();
            here_->wait_for_more_than(before);
        };
        exchange();
        int count = 0;
        const auto begin = perf::clock_type::now();
        do {
            for (int more = bytes < 65536 ? 32 : 2; more > 0; --more, ++count)
                exchange();
        } while (perf::seconds_since(begin) < slice_seconds);
        return perf::seconds_since(begin) / count;
    });
}

std::vector<way_figures> injection_pair::rates(const std::vector<way>& ways, std::size_t bytes,
                                               double seconds) {
    std::uint64_t sent = here_->on().run([&] { return here_->arrived_there(); });
    return in_turn(ways, seconds, [&](way by) {
        here_->expect(by, bytes, false);
        const auto send = here_->sender(by, bytes);
        const auto send_many = [&](std::size_t count) {
            for (std::size_t i = 0; i < count; ++i)
                send();
            sent += count;
            while (here_->arrived_there() < sent)
                this_task::yield();
        };
        send_many(1);
        const std::size_t batch = std::clamp<std::size_t>((std::size_t{1} << 22) / bytes, 4, 1000);
        std::size_t count = 0;
        const auto begin = perf::clock_type::now();
        do {
            send_many(batch);
            count += batch;
        } while (perf::seconds_since(begin) < slice_seconds);
        return static_cast<double>(count) / perf::seconds_since(begin);
    });
}

double injection_pair::first_use(double seconds) {
    return here_->first_use(seconds);
}

}  // namespace amalgam::bench

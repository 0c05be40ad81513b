#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <fcntl.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/tasks.hpp>

#include "task_features.hpp"

namespace amalgam::bench {

namespace {

using std::chrono_literals::operator""h;

constexpr std::size_t held = 50;

/// A pool with units that a driven stream serves.
template <typename Pool>
struct filled {
    filled() {
        for (std::size_t i = 0; i < held; ++i)
            post(where, [] {});
    }
    ~filled() { stream.run_ready(); }

    Pool where;
    execution_stream stream{std::make_unique<basic_scheduler>(std::vector<pool*>{&where}),
                            {.driven = true}};
};

/// Out of a pool and back into it, or whatever `turn` does with its units, per unit.
template <typename Pool, typename Turn>
double in_pool(const length& l, Turn turn) {
    filled<Pool> some;
    return l.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; i += held)
            turn(some.where);
    });
}

template <typename Pool>
double pop_push(const length& l) {
    return in_pool<Pool>(l, [](Pool& where) {
        for (std::size_t i = 0; i < held; ++i)
            where.push(*where.pop());
    });
}

double pop_push_many(const length& l) {
    return in_pool<fifo_pool>(l, [](fifo_pool& where) {
        std::array<work_unit*, held> units{};
        where.push_many(std::span(units.data(), where.pop_many(units)));
    });
}

double pop_for_push(const length& l) {
    return in_pool<shared_fifo_pool>(l, [](shared_fifo_pool& where) {
        for (std::size_t i = 0; i < held; ++i)
            where.push(*where.pop_for(1h));
    });
}

double visit(const length& l) {
    std::size_t seen = 0;
    const double each = in_pool<shared_fifo_pool>(
        l, [&](shared_fifo_pool& where) { where.visit([&](const work_unit&) { ++seen; }); });
    return seen == 0 ? -1 : each;
}

unique_fd nowhere() {
    return unique_fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
}

double print_units(const length& l) {
    const unique_fd to = nowhere();
    return in_pool<fifo_pool>(l, [&](fifo_pool& where) { print_pool(to.get(), where); });
}

double describe_pool(const length& l) {
    filled<fifo_pool> some;
    return on_thread(l, [&] { (void)describe(some.where); });
}

double describe_scheduler(const length& l) {
    fifo_pool where;
    const basic_scheduler order(std::vector<pool*>{&where});
    return on_thread(l, [&] { (void)describe(order); });
}

double print_one_stream(const length& l) {
    const unique_fd to = nowhere();
    filled<fifo_pool> some;
    return on_thread(l, [&] { print_streams(to.get()); });
}

/// Per ULT, of 50 that are parked.
double list_each_ult(const length& l) {
    event over;
    filled<fifo_pool> some;
    for (std::size_t i = 0; i < held; ++i)
        post(some.where, [&] { over.wait(); });
    some.stream.run_ready();
    const double each = l.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; i += held)
            (void)list_ults();
    });
    over.set();
    return each;
}

/// What the loop of a scheduler of one's own adds to a turn.
class in_a_loop final : public looping_scheduler {
public:
    explicit in_a_loop(pool& from) : pools_{&from} {}

    void run(scheduler_loop& loop) override {
        while (!loop.should_stop()) {
            if (work_unit* const unit = pools_[0]->pop()) {
                loop.run(*unit);
            } else {
                loop.idle();
            }
        }
    }
    std::span<pool* const> pools() const noexcept override { return pools_; }

private:
    std::array<pool*, 1> pools_;
};

double looping_yield(const length& l) {
    fifo_pool where;
    execution_stream stream(std::make_unique<in_a_loop>(where), {.driven = true});
    const auto turn = [](ult&) { this_task::yield(); };
    return beside_on(stream, l, turn, turn, [](ult&) {});
}

double stop_revive(const length& l) {
    execution_stream stream({.driven = true});
    return on_thread(l, [&] {
        stream.stop();
        stream.revive();
    });
}

double set_rank(const length& l) {
    execution_stream stream({.driven = true});
    int rank = 1;
    return on_thread(l, [&] { stream.set_rank(rank ^= 1); });
}

/// Of a stream that sleeps. Two system calls are in it.
double set_cpus(const length& l) {
    execution_stream stream;
    const cpu_set here{0};
    return on_thread(l, [&] { stream.set_cpus(here); });
}

double read_cpu_set(const length& l) {
    return on_thread(l, [] { (void)cpu_set("0-3,8"); });
}

constexpr question questions[] = {
    {"pop-push", pop_push<fifo_pool>},
    {"pop-push-many", pop_push_many},
    {"pop-push-shared_fifo", pop_push<shared_fifo_pool>},
    {"pop-push-lifo", pop_push<lifo_pool>},
    {"pop-push-work_stealing", pop_push<work_stealing_pool>},
    {"pop-push-priority", pop_push<priority_pool>},
    {"pop_for-push", pop_for_push},
    {"visit", visit},
    {"print_pool", print_units},
    {"describe-pool", describe_pool},
    {"describe-scheduler", describe_scheduler},
    {"print_streams", print_one_stream},
    {"list_ults", list_each_ult},
    {"looping-yield", looping_yield},
    {"stop-revive", stop_revive},
    {"set_rank", set_rank},
    {"set_cpus", set_cpus},
    {"read-cpu_set", read_cpu_set},
};

}  // namespace

std::span<const question> questions_of_streams() noexcept {
    return questions;
}

}  // namespace amalgam::bench

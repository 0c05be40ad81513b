#include "fabric/transports/loop/virtual_hub.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/uri.hpp>

#include "fabric/transports/loop/broadcast.hpp"

namespace amalgam::detail {

virtual_hub::virtual_hub(const loop_options& given) : loop_hub(given), random_(given.seed) {}

// ---- ports

std::unique_ptr<amalgam::port> virtual_hub::port(std::string_view name, const port_options& how) {
    const uri where = uri::parse("loop://" + std::string(name));
    std::shared_ptr<loop_mailbox> box = open(where.name);
    if (box == nullptr)
        throw error(errc::in_use,
                    fmt::format("loop://{0}: the name \"{0}\" is in use by another port of this "
                                "network; choose another, or restart() that port; example: {0}-2",
                                where.name));
    auto next = std::make_unique<loop_station>();
    next->name = where.name;
    const auto before = by_name_.find(where.name);
    if (before != by_name_.end()) {
        next->cut = before->second->cut;
        next->processing = before->second->processing;
    }
    box->station = next.get();
    by_name_[where.name] = next.get();
    stations_.push_back(std::move(next));
    return std::make_unique<loop_port>(shared_from_this(), std::move(box), how, random_() | 1,
                                       true);
}

loop_station& virtual_hub::station_of(std::string_view name) const {
    const auto at = by_name_.find(name);
    if (at == by_name_.end())
        throw error(errc::not_found, fmt::format("this network has never had a port named \"{}\"; "
                                                 "expected a name that was passed to port()",
                                                 name));
    return *at->second;
}

void virtual_hub::attach(loop_port& port) {
    port.box().station->port = &port;
}

void virtual_hub::detach(loop_port& port) noexcept {
    port.box().station->port = nullptr;
    port.box().station->driver = nullptr;
}

void virtual_hub::drive(loop_port& port, port_driver* driver) noexcept {
    port.box().station->driver = driver;
    wake(port);
}

void virtual_hub::wake(loop_port& port) noexcept {
    mark_ready(*port.box().station);
}

void virtual_hub::deposited(loop_mailbox& box) {
    mark_ready(*box.station);
}

void virtual_hub::mark_ready(loop_station& one) {
    if (std::exchange(one.ready, true)) return;
    ready_.push_back(&one);
}

void virtual_hub::kill(std::string_view name) {
    loop_station& one = station_of(name);
    if (one.port != nullptr) one.port->kill();
}

std::size_t virtual_hub::open_operations() const noexcept {
    std::size_t open = 0;
    for (const auto& one : stations_)
        if (one->port != nullptr) open += one->port->open_operations();
    return open;
}

// ---- running

void virtual_hub::run_until_idle() {
    run_events(clock::time_point::max());
}

void virtual_hub::run_until(clock::time_point end) {
    run_events(end);
    time_.advance_to(end);
}

void virtual_hub::run_events(clock::time_point end) {
    // Drivers may have been given work from outside, unknown to their ports. So all are asked at
    // the start, and again before concluding that nothing is left.
    run_all();
    do {
        do
            run_ready();
        while (step(end));
    } while (run_all() > 0);
}

std::size_t virtual_hub::run_all() {
    std::size_t ran = 0;
    for (std::size_t i = 0; i < stations_.size(); ++i) {  // Callbacks may open ports.
        loop_station& one = *stations_[i];
        if (one.driver != nullptr || (one.port != nullptr && one.port->has_work())) ran += run(one);
    }
    return ran;
}

void virtual_hub::run_ready() {
    while (!ready_.empty()) {
        loop_station& one = *ready_.front();
        ready_.pop_front();
        one.ready = false;
        run(one);
    }
}

std::size_t virtual_hub::run(loop_station& one) {
    if (one.port == nullptr) return 0;
    const std::size_t ran =
        one.driver != nullptr ? one.driver->run_ready() : one.port->progress(64);
    // The port may be gone by now, or its budget was too small.
    if (ran > 0 && one.port != nullptr && one.port->has_work()) mark_ready(one);
    look_at_timer(one);
    return ran;
}

void virtual_hub::look_at_timer(loop_station& one) {
    const auto due = one.driver != nullptr ? one.driver->next_timer() : std::nullopt;
    if (!due) {
        one.timer = 0;
        return;
    }
    if (one.timer != 0 && one.timer_at == *due) return;
    one.timer_at = *due;
    event timer;
    timer.when = std::max(*due, time_.now());
    timer.what = event::kind::timer;
    timer.where = &one;
    one.timer = schedule(std::move(timer));
}

// ---- events

bool virtual_hub::later(const event& a, const event& b) noexcept {
    if (a.when != b.when) return a.when > b.when;
    return a.order != b.order ? a.order > b.order : a.number > b.number;
}

std::uint64_t virtual_hub::schedule(event what) {
    what.number = ++event_count_;
    what.order = reorder ? random_() : what.number;
    events_.push_back(std::move(what));
    std::push_heap(events_.begin(), events_.end(), later);
    return event_count_;
}

bool virtual_hub::step(clock::time_point end) {
    if (events_.empty() || events_.front().when > end) return false;
    std::pop_heap(events_.begin(), events_.end(), later);
    event now = std::move(events_.back());
    events_.pop_back();
    if (now.when > time_.now()) time_.advance_to(now.when);
    switch (now.what) {
        case event::kind::arrival:
            arrive(now.on, now.side);
            break;
        case event::kind::handled:
            handle(now.on, now.side);
            break;
        case event::kind::silence:
            give_up(now.on, now.side);
            break;
        case event::kind::timer:
            if (now.where->timer != now.number) break;  // It has been rescheduled.
            now.where->timer = 0;
            mark_ready(*now.where);
            break;
        case event::kind::packet:
            arrive(std::move(now));
            break;
        case event::kind::handled_packet:
            handle_packet(now);
            break;
    }
    return true;
}

void virtual_hub::catch_up() noexcept {
    while (step(time_.now())) {
    }
}

}  // namespace amalgam::detail

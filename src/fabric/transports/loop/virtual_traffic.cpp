// How items travel in virtual time, and the faults they may meet.
#include <algorithm>
#include <utility>

#include "fabric/memory/segments.hpp"
#include "fabric/transports/loop/virtual_hub.hpp"

namespace amalgam::detail {

loop_hub::fate virtual_hub::next_operation() noexcept {
    if (++operations != faulty_operation) return fate::good;
    return fault == loop_fault::full ? fate::full : fate::reset;
}

clock::duration virtual_hub::delay_of_one() {
    const clock::duration spread = most_delay - least_delay;
    if (spread.count() <= 0) return least_delay;
    return least_delay +
           clock::duration(random_.below(static_cast<std::uint64_t>(spread.count()) + 1));
}

clock::time_point virtual_hub::arrival_time(loop_side& to) {
    to.last_arrival = std::max(to.last_arrival, time_.now() + delay_of_one());
    return to.last_arrival;
}

void virtual_hub::carry(loop_item&& item) {
    if (item.what == loop_item::kind::writable || item.what == loop_item::kind::sent) {
        deposit(std::move(item));
        return;
    }
    const std::shared_ptr<loop_connection> on = std::move(item.on);
    const std::uint8_t to = item.to;
    if (on->broken) return;
    if (item.what != loop_item::kind::reset && random_.chance(drop)) {
        report(loop_event::kind::lost, *on, to, item);
        on->broken = true;
        fall_silent(on);
        return;
    }
    if (is_cut(*on)) fall_silent(on);
    event arrival;
    arrival.when = arrival_time(on->sides[to]);
    arrival.side = to;
    arrival.on = on;
    on->sides[to].coming.push_back({arrival.when, std::move(item)});
    schedule(std::move(arrival));
}

void virtual_hub::arrive(const std::shared_ptr<loop_connection>& on, std::uint8_t side) {
    loop_side& to = on->sides[side];
    if (on->broken) return;
    // Those already received came first.
    const auto next = std::partition_point(to.coming.begin(), to.coming.end(),
                                           [](const auto& each) { return each.is_there; });
    if (next == to.coming.end() || next->arrives > time_.now()) return;
    if (is_cut(*on, side)) {
        fall_silent(on);
        ++to.held;
        return;
    }
    loop_station* const host = to.box == nullptr ? nullptr : to.box->station;
    if (host == nullptr || is_idle(*host, time_.now())) return handle(on, side);
    next->is_there = true;
    event handled;
    handled.when = next->arrives = occupy(*host);
    handled.what = event::kind::handled;
    handled.side = side;
    handled.on = on;
    schedule(std::move(handled));
}

clock::time_point virtual_hub::occupy(loop_station& one) {
    one.busy_until = std::max(one.busy_until, time_.now()) + one.processing;
    return one.busy_until;
}

void virtual_hub::handle(const std::shared_ptr<loop_connection>& on, std::uint8_t side) {
    loop_side& to = on->sides[side];
    if (on->broken || to.coming.empty() || to.coming.front().arrives > time_.now()) return;
    loop_item item = std::move(to.coming.front().item);
    to.coming.pop_front();
    item.on = on;
    if (item.on_sent != nullptr) {
        copy_lent(item);
        loop_item sent;
        sent.what = loop_item::kind::sent;
        sent.to = static_cast<std::uint8_t>(1 - side);
        sent.on = on;
        sent.on_sent = std::exchange(item.on_sent, nullptr);
        deposit(std::move(sent));
    }
    switch (item.what) {
        case loop_item::kind::connect:
            on->stands = true;
            report(loop_event::kind::connect, *on, side, item);
            break;
        case loop_item::kind::reset:
            report(loop_event::kind::down, *on, side, item);
            break;
        default:
            report(loop_event::kind::frame, *on, side, item);
            break;
    }
    deposit(std::move(item));
}

void virtual_hub::copy_lent(loop_item& item) {
    item.bytes = buffers_.take(item.header.bytes);
    copy_out(std::exchange(item.lent, {}), item.bytes.data());
}

// ---- cuts and losses

bool virtual_hub::is_cut(const std::string& from, const std::string& to) const {
    return !one_way_cuts_.empty() && one_way_cuts_.contains({from, to});
}

bool virtual_hub::is_cut(const loop_connection& on, std::uint8_t to) const {
    const loop_mailbox *const there = on.sides[to].box.get(), *const here =
                                                                  on.sides[1 - to].box.get();
    if ((there != nullptr && there->station->cut) || (here != nullptr && here->station->cut))
        return true;
    return there != nullptr && here != nullptr && is_cut(here->station->name, there->station->name);
}

void virtual_hub::cut(std::string_view name) {
    loop_station& one = station_of(name);
    if (std::exchange(one.cut, true) || one.port == nullptr) return;
    for (const auto& link : one.port->links())
        if (link->own().link != nullptr) fall_silent(link->on());
}

void virtual_hub::cut(std::string_view from, std::string_view to) {
    const loop_station &one = station_of(from), &other = station_of(to);
    if (!one_way_cuts_.emplace(one.name, other.name).second || one.port == nullptr) return;
    for (const auto& link : one.port->links())
        if (link->own().link != nullptr && is_cut(*link->on())) fall_silent(link->on());
}

void virtual_hub::heal(std::string_view name) {
    station_of(name).cut = false;
    resume();
}

void virtual_hub::heal(std::string_view from, std::string_view to) {
    one_way_cuts_.erase({station_of(from).name, station_of(to).name});
    resume();
}

void virtual_hub::resume() {
    std::vector<std::shared_ptr<loop_connection>> still;
    for (std::shared_ptr<loop_connection>& on : std::exchange(silent_, {})) {
        if (on->broken) continue;
        on->silent = is_cut(*on);
        for (std::uint8_t side = 0; side < 2; ++side) {
            if (is_cut(*on, side)) continue;
            for (; on->sides[side].held > 0; --on->sides[side].held) {  // As if resent now.
                event again;
                again.when = arrival_time(on->sides[side]);
                again.side = side;
                again.on = on;
                schedule(std::move(again));
            }
        }
        if (on->silent) still.push_back(std::move(on));
    }
    silent_.insert(silent_.end(), still.begin(), still.end());
}

void virtual_hub::fall_silent(const std::shared_ptr<loop_connection>& on) {
    if (std::exchange(on->silent, true)) return;
    on->silent_since = time_.now();
    silent_.push_back(on);
    for (std::uint8_t side = 0; side < 2; ++side) {
        event limit;
        limit.when = time_.now() + on->sides[side].silence_limit;
        limit.what = event::kind::silence;
        limit.side = side;
        limit.on = on;
        schedule(std::move(limit));
    }
}

void virtual_hub::give_up(const std::shared_ptr<loop_connection>& on, std::uint8_t side) {
    loop_side& here = on->sides[side];
    // It healed meanwhile, and may be silent again, but not for that long.
    if (!on->silent || time_.now() < on->silent_since + here.silence_limit) return;
    on->broken = true;
    here.coming.clear();
    if (here.link == nullptr) return;
    loop_item reset;
    reset.what = loop_item::kind::reset;
    reset.to = side;
    reset.on = on;
    reset.why = {on->stands ? errc::disconnected : errc::unreachable};
    report(loop_event::kind::down, *on, side, reset);
    deposit(std::move(reset));
}

void virtual_hub::break_now(const std::shared_ptr<loop_connection>& on, status why) noexcept {
    on->broken = true;
    for (loop_side& side : on->sides)
        side.coming.clear();
    loop_hub::break_now(on, why);
}

// ---- canceling sends

namespace {
template <typename Coming>
auto find_lent(Coming& coming, const completion& on_sent) {
    return std::find_if(coming.begin(), coming.end(),
                        [&](const auto& one) { return one.item.on_sent == &on_sent; });
}
}  // namespace

bool virtual_hub::forget(loop_connection& on, std::uint8_t to, completion& on_sent) noexcept {
    auto& coming = on.sides[to].coming;
    const auto at = find_lent(coming, on_sent);
    if (at == coming.end()) return false;
    on.sides[1 - to].unread.fetch_sub(room_of(at->item));
    coming.erase(at);
    return true;
}

void virtual_hub::detach(loop_connection& on, std::uint8_t to, completion& on_sent) noexcept {
    auto& coming = on.sides[to].coming;
    const auto at = find_lent(coming, on_sent);
    if (at == coming.end()) return;
    copy_lent(at->item);
    at->item.on_sent = nullptr;
}

void virtual_hub::shut(loop_connection& on, std::uint8_t side) noexcept {
    on.sides[side].coming.clear();
    // Nothing may overtake a lost frame: a message never arrives without those before it.
    auto& going = on.sides[1 - side].coming;
    const auto lent = std::find_if(going.begin(), going.end(),
                                   [](const auto& one) { return one.item.on_sent != nullptr; });
    going.erase(lent, going.end());
}

void virtual_hub::report(loop_event::kind what, const loop_connection& on, std::uint8_t to,
                         const loop_item& item) const {
    if (!tell) return;
    loop_event told;
    told.what = what;
    told.when = time_.now();
    const auto name = [&](int side) -> std::string_view {
        return on.sides[side].box == nullptr ? std::string_view() : on.sides[side].box->name();
    };
    told.from = name(1 - to);
    told.to = name(to);
    told.tag = item.header.tag;
    told.bytes = item.header.bytes;
    tell(told);
}

}  // namespace amalgam::detail

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/signed_broadcast.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/membership/procedures.hpp"
#include "directory/protocol/broadcast_packet.hpp"
#include "directory/protocol/procedures.hpp"
#include "numbers.hpp"

namespace amalgam::adversary {

/// Encoded as a list of attributes, valid or not.
struct false_list {
    std::vector<std::uint64_t> words;
};

}  // namespace amalgam::adversary

namespace amalgam {

template <>
struct codec<adversary::false_list> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const adversary::false_list& x) {
        a.block(x.words.data(), x.words.size());
    }
};
namespace detail {
template <>
struct namer<adversary::false_list> {
    static std::string name() { return "attributes"; }
};
}  // namespace detail

}  // namespace amalgam

namespace amalgam::adversary {

using namespace std::literals;
using namespace detail;

/// What liars know about the others, and may claim.
struct known_world {
    std::string directory;               ///< The victim's address.
    std::vector<std::string> contexts;   ///< Addresses of good contexts.
    std::vector<std::string> addresses;  ///< All of them, and unused ones.
    std::vector<resource_id> ids;        ///< Of good contexts and their resources.
    std::vector<std::uint64_t> keys;     ///< Keys of servers that do not exist.
};

/// Values near limits, or any.
class lies {
public:
    lies(known_world known, std::uint64_t seed) : known_(std::move(known)), dice_(seed) {}

protected:
    template <typename T>
    const T& any_of(const std::vector<T>& all) {
        return all[dice_.below(all.size())];
    }
    std::uint64_t number() {
        return number_near(dice_, {0, 1, 255, 65535, 1u << 20, 0x7fffffff, 0xffffffff});
    }
    std::string text(std::size_t most) { return std::string(dice_.below(most + 1), 'l'); }
    attribute_list list() {
        static const std::vector<std::string> names{"kind", "n", "context.addresses", "x", "y"};
        static const std::vector<std::string> values{"good", "far", "lie", "", "loop://victim"};
        attribute_list made;
        for (std::uint64_t i = dice_.below(4); i > 0; --i) {
            const std::string& name = any_of(names);
            if (dice_.chance(0.3)) {
                if (!made.view().find(name)) made.ask(name);
            } else {
                made.set(name, dice_.chance(0.8) ? any_of(values) : text(20'000));
            }
        }
        return made;
    }
    false_list spoilt_list() {
        const attribute_list good = list();
        false_list made;
        made.words.resize(good.bytes().size() / 8);
        std::copy(good.bytes().begin(), good.bytes().end(),
                  std::as_writable_bytes(std::span(made.words)).begin());
        if (!made.words.empty() && dice_.chance(0.7)) {
            made.words[dice_.below(made.words.size())] ^= std::uint64_t{1} << dice_.below(64);
        } else if (dice_.chance(0.5)) {
            made.words.resize(dice_.below(made.words.size() + 3));
        }
        return made;
    }
    resource_id some_id() {
        if (dice_.chance(0.8)) return any_of(known_.ids);
        return static_cast<resource_id>(number());
    }
    found_values found() {
        return {some_id(), dice_.chance(0.5) ? some_id() : resource_id::none, list()};
    }
    resource_change::kind some_kind() {
        return resource_change::kind{
            static_cast<std::uint8_t>(dice_.chance(0.95) ? dice_.below(3) : dice_())};
    }

    known_world known_;
    seeded_random dice_;
};

/// An engine whose answers and calls are lies.
class liar : public lies {
public:
    liar(std::unique_ptr<port> at, const known_world& known, std::uint64_t seed)
        : lies(known, seed), on_(std::move(at)) {}

    engine& on() noexcept { return on_; }

protected:
    /// Calls in either form, and waits for the answer or not.
    template <typename Signature, typename... A>
    void call(const peer& there, std::string_view name, A... arguments) {
        const auto it = on_.procedure<Signature>(name).on(there);
        if (dice_.chance(0.5)) return it.post(arguments...);
        if (asked_ == most_asked || dice_.chance(0.2))
            return (void)it.within(std::chrono::milliseconds(1 + dice_.below(20)))
                .try_call(arguments...);
        ++asked_;
        it.within(1s).call_then([this](const auto&) { --asked_; }, arguments...);
    }
    void pause() {
        if (dice_.chance(0.2)) this_task::sleep_for(std::chrono::microseconds(dice_.below(3000)));
    }

    static constexpr int most_asked = 100;
    engine on_;
    int asked_ = 0;
};

/// A directory server that has joined the victim's ring.
class ring_liar : public liar {
public:
    ring_liar(std::unique_ptr<port> at, const known_world& known, std::uint64_t seed)
        : liar(std::move(at), known, seed) {
        self_.key = dice_() | 1;
        self_.version = 1;
        self_.addresses = {on_.address()};
        known_.addresses.push_back(on_.address());
        known_.keys.push_back(self_.key);
        serve();
    }

    /// To be run as a ULT of on().
    void run(std::uint64_t steps) {
        const peer victim = on_.lookup(known_.directory);
        // May also claim one of the victim's ranges.
        for (const member& each :
             on_.procedure<in_ring::members>(in_ring::members_name).on(victim)()) {
            members_.push_back(each);
            known_.keys.push_back(each.key);
        }
        on_.procedure<in_ring::join>(in_ring::join_name).on(victim)(self_);
        for (; steps > 0; --steps) {
            try {
                step(victim);
            } catch (const error&) {
                // It was told to go away.
            }
            pause();
        }
    }

private:
    std::uint32_t version() {
        // After the last possible version nobody could contradict it.
        return static_cast<std::uint32_t>(dice_.chance(0.7) ? dice_.below(50)
                                                            : 0xfffff000u - dice_.below(100'000));
    }
    std::uint64_t key() { return dice_.chance(0.95) ? any_of(known_.keys) : number() & 1; }
    std::vector<std::uint32_t> ranges() {
        std::vector<std::uint32_t> made;
        if (dice_.chance(0.5)) {
            const member& whose = any_of(members_);
            made = whose.ranges;
        }
        for (std::uint64_t i = dice_.chance(0.95) ? dice_.below(4) : 1000 + dice_.below(50); i > 0;
             --i)
            made.push_back(
                static_cast<std::uint32_t>(dice_.chance(0.9) ? dice_.below(32768) : number()));
        return made;
    }
    member some_member() {
        member made = dice_.chance(0.3) ? any_of(members_) : self_;
        made.version = dice_.chance(0.3) ? ++self_.version : version();
        if (dice_.chance(0.5)) made.key = key();
        if (dice_.chance(0.3)) {
            made.addresses.clear();
            for (std::uint64_t i = dice_.chance(0.95) ? dice_.below(4) : 30 + dice_.below(10);
                 i > 0; --i)
                made.addresses.push_back(dice_.chance(0.8) ? any_of(known_.addresses) : text(300));
        }
        if (dice_.chance(0.4)) made.ranges = ranges();
        if (dice_.chance(0.4)) made.settled = dice_.chance(0.5) ? made.ranges : ranges();
        return made;
    }
    ring_news news() {
        ring_news made;
        for (std::uint64_t i = dice_.below(4); i > 0; --i)
            made.came.push_back(some_member());
        for (std::uint64_t i = dice_.below(3); i > 0; --i)
            made.gone.push_back({key(), version()});
        return made;
    }
    ring_part part() {
        if (dice_.chance(0.3)) return {self_.key, 1, 0};
        const std::uint64_t from = dice_.chance(0.7) ? key() : number();
        return {from, dice_.chance(0.7) ? dice_.below(2) : number(),
                dice_.chance(0.5) ? dice_.below(2) : number()};
    }
    first_answer first() {
        return {key(), dice_.chance(0.5) ? 7 : number(),
                dice_.chance(0.8) ? found() : found_values{}};
    }
    first_answers answers() {
        first_answers made;
        for (std::uint64_t i = dice_.below(dice_.chance(0.95) ? 4 : 300); i > 0; --i)
            made.found.push_back(first());
        if (dice_.chance(0.1)) made.silent = static_cast<std::uint32_t>(number());
        return made;
    }
    /// Sometimes answers late, or never.
    void dawdle() {
        if (dice_.chance(0.02)) this_task::sleep_for(20s);
        if (dice_.chance(0.1)) this_task::sleep_for(std::chrono::milliseconds(dice_.below(500)));
    }
    template <typename Signature, typename Work>
    void define(std::string_view name, Work work) {
        on_.define<Signature>(library_name{name}, std::move(work));
    }
    void serve() {
        define<in_ring::members>(in_ring::members_name, [this] {
            std::vector<member> all;
            for (std::uint64_t i = dice_.below(5); i > 0; --i)
                all.push_back(some_member());
            return all;
        });
        define<in_ring::join>(in_ring::join_name, [](member) {});
        define<in_ring::meet>(in_ring::meet_name, [](std::vector<std::string>) {});
        define<in_ring::answer>(in_ring::answer_name, [](std::uint64_t, first_answer) {});
        define<in_ring::tell>(in_ring::tell_name, [this](ring_part, ring_news) { dawdle(); });
        define<in_ring::ping>(in_ring::ping_name, [this](std::uint64_t, std::uint32_t) {
            dawdle();
            const bool good = dice_.chance(0.8);
            return alive_answer{dice_.chance(0.9), good ? self_.key : key(), dice_()};
        });
        define<in_ring::ping_req>(in_ring::ping_req_name, [this](std::uint64_t, std::uint32_t) {
            return dice_.chance(0.9) ? sign{static_cast<std::uint8_t>(dice_.below(5))}
                                     : sign{static_cast<std::uint8_t>(dice_())};
        });
        define<in_ring::compare>(in_ring::compare_name, [this](ring_news) { return news(); });
        define<in_ring::find>(in_ring::find_name, [this](ring_part, attribute_view) {
            dawdle();
            return part_answer{dice_.chance(0.5) ? found() : found_values{},
                               static_cast<std::uint32_t>(dice_.below(2))};
        });
        define<at_directory::find>(at_directory::find_name,
                                   [this](resource_id, attribute_view) { return found(); });
        define<in_ring::search>(in_ring::search_name, [this](ring_part, attribute_view) {
            dawdle();
            return answers();
        });
        define<in_ring::next>(in_ring::next_name, [this](std::uint64_t) {
            dawdle();
            return next_answer{dice_.chance(0.2), dice_.chance(0.8) ? found() : found_values{},
                               static_cast<std::uint32_t>(dice_.below(2))};
        });
        define<in_ring::stop>(in_ring::stop_name, [](std::uint64_t) {});
        define<in_ring::open_watcher>(in_ring::open_watcher_name, [this] {
            return reply<resource_id>{dice_.chance(0.9) ? errc::ok : errc::denied, "no", some_id()};
        });
        define<at_directory::watch>(
            at_directory::watch_name, [this](resource_id, std::uint32_t which, attribute_view) {
                watches_.push_back(which);
                asker_ = call_context::current().from();
                return reply<bool>{dice_.chance(0.9) ? errc::ok : errc{77}, "no", true};
            });
        define<at_directory::unwatch>(at_directory::unwatch_name,
                                      [](resource_id, std::uint32_t) {});
        define<in_ring::change>(in_ring::change_name, [](std::uint64_t, std::uint32_t,
                                                         resource_change::kind, found_values) {});
    }
    void step(const peer& victim) {
        switch (dice_.below(14)) {
            case 0:
                return call<in_ring::join>(victim, in_ring::join_name, some_member());
            case 1:
                return call<in_ring::tell>(victim, in_ring::tell_name, part(), news());
            case 2:
                return call<in_ring::ping>(victim, in_ring::ping_name, key(), version());
            case 3:
                return call<in_ring::ping_req>(victim, in_ring::ping_req_name, key(), version());
            case 4:
                return call<in_ring::compare>(victim, in_ring::compare_name, news());
            case 5:
                return call<in_ring::find>(victim, in_ring::find_name, part(), list().view());
            case 6:
                return call<in_ring::search>(victim, in_ring::search_name, part(), list().view());
            case 7:
                return call<in_ring::next>(victim, in_ring::next_name, number());
            case 8:
                return call<in_ring::stop>(victim, in_ring::stop_name, number());
            case 9:
                if (dice_.chance(0.8)) return;
                return call<in_ring::meet>(
                    victim, in_ring::meet_name,
                    std::vector<std::string>(dice_.below(100), any_of(known_.addresses)));
            case 10:
                return call<in_ring::answer>(victim, in_ring::answer_name, number(), first());
            case 11:
                return watch(victim);
            case 12:
                return call<part_answer(ring_part, false_list)>(victim, in_ring::find_name, part(),
                                                                spoilt_list());
            default: {
                // A watch it was asked for, or not.
                const bool asked = !watches_.empty() && dice_.chance(0.8);
                const std::uint32_t which =
                    asked ? any_of(watches_) : static_cast<std::uint32_t>(dice_.below(10));
                // Over the path it was asked by, or any other.
                return call<in_ring::change>(
                    asker_ && dice_.chance(0.9) ? *asker_ : victim, in_ring::change_name,
                    dice_.chance(0.8) ? self_.key : key(), which, some_kind(), found());
            }
        }
    }
    void watch(const peer& victim) {
        if (guest_ == resource_id::none || dice_.chance(0.1)) {
            const auto answer = on_.procedure<in_ring::open_watcher>(in_ring::open_watcher_name)
                                    .on(victim)
                                    .within(1s)
                                    .try_call();
            if (answer) guest_ = answer->value;
            return;
        }
        const resource_id who = dice_.chance(0.9) ? guest_ : some_id();
        const auto which = static_cast<std::uint32_t>(++watched_);
        if (dice_.chance(0.9))
            return call<at_directory::watch>(victim, at_directory::watch_name, who, which,
                                             list().view());
        call<at_directory::unwatch>(victim, at_directory::unwatch_name, who, which / 2);
    }

    member self_;
    std::vector<member> members_;
    std::vector<std::uint32_t> watches_;  // Of the victim, or the neighbor, at this server.
    std::optional<peer> asker_;
    resource_id guest_ = resource_id::none;
    std::uint64_t watched_ = 0;
};

/// One or several contexts of one process, at the victim.
class guest_liar : public liar {
public:
    guest_liar(std::unique_ptr<port> at, const known_world& known, std::uint64_t seed)
        : liar(std::move(at), known, seed) {
        on_.define<at_context::change>(library_name{at_context::change_name},
                                       [](std::uint32_t, resource_change::kind, found_values) {});
        on_.define<at_context::undelivered>(library_name{at_context::undelivered_name},
                                            [](resource_id, resource_id, std::int32_t, errc) {});
    }

    void run(std::uint64_t steps) {
        const peer victim = on_.lookup(known_.directory);
        std::vector<peer> contexts;
        for (const std::string& each : known_.contexts)
            contexts.push_back(on_.lookup(each));
        for (; steps > 0; --steps) {
            try {
                if (dice_.chance(0.02)) fill(victim);
                dice_.chance(0.7) ? ask(victim) : bother(any_of(contexts));
            } catch (const error&) {
                // Refused.
            }
            pause();
        }
    }

    /// The most that one context has obtained from the victim.
    const directory_limits& got() const noexcept { return got_; }

private:
    /// A new context takes all it can get, and leaves.
    void fill(const peer& victim) {
        namespace at = at_directory;
        const auto opened =
            on_.procedure<at::open>(at::open_name).on(victim).within(1s).try_call({});
        if (!opened || opened->code != errc::ok) return;
        const resource_id me = opened->value;
        directory_limits now{0, 0, 0, 0, 0, 0};
        for (std::uint32_t i = 0; i < 50; ++i) {
            const attribute_list what{{"x", "x"}, {"y", std::string(5000, 'y')}};
            const auto is_mine = [](const auto& answer) {
                return answer && answer->code == errc::ok;
            };
            const auto call_now = [&](auto procedure) { return procedure.on(victim).within(1s); };
            const attribute_list small{{"x", "z"}};
            if (is_mine(call_now(on_.procedure<at::add>(at::add_name)).try_call(me, small)))
                ++now.resources;
            if (is_mine(call_now(on_.procedure<at::search>(at::search_name)).try_call(me, small)))
                ++now.searches;
            if (is_mine(call_now(on_.procedure<at::watch>(at::watch_name))
                            .try_call(me, 100 + i, small)))
                ++now.watches;
            if (is_mine(call_now(on_.procedure<at::add>(at::add_name)).try_call(me, what))) {
                ++now.resources;
                now.bytes += 5000;
            }
        }
        got_.resources = std::max(got_.resources, now.resources);
        got_.searches = std::max(got_.searches, now.searches);
        got_.watches = std::max(got_.watches, now.watches);
        got_.bytes = std::max(got_.bytes, now.bytes);
        if (dice_.chance(0.8)) call<at::close>(victim, at::close_name, me);
    }
    resource_id own() { return mine_.empty() || dice_.chance(0.1) ? some_id() : any_of(mine_); }
    std::uint32_t small() { return static_cast<std::uint32_t>(dice_.below(12)); }
    void open(const peer& victim) {
        auto answer = on_.procedure<at_directory::open>(at_directory::open_name)
                          .on(victim)
                          .within(1s)
                          .try_call(list());
        if (answer && answer->code == errc::ok) mine_.push_back(answer->value);
    }
    void ask(const peer& victim) {
        if (mine_.empty()) return open(victim);
        namespace at = at_directory;
        switch (dice_.below(16)) {
            case 0:
                return open(victim);
            case 1:
                return call<at::reopen>(victim, at::reopen_name, own(),
                                        dice_.chance(0.5) ? own() : some_id(), list().view());
            case 2:
                return call<at::close>(victim, at::close_name,
                                       dice_.chance(0.1) ? own() : some_id());
            case 3:
            case 4:
                return call<at::add>(victim, at::add_name, own(), list().view());
            case 5:
                return call<at::remove>(victim, at::remove_name, own(), some_id());
            case 6:
                return call<at::set>(victim, at::set_name, own(), some_id(), list().view());
            case 7:
                return call<at::find>(victim, at::find_name, some_id(), list().view());
            case 8:
                return call<at::find_long>(victim, at::find_long_name, list().view());
            case 9:
                return call<at::find_elsewhere>(victim, at::find_elsewhere_name, some_id(),
                                                list().view());
            case 10:
                return call<at::search>(victim, at::search_name, own(), list().view());
            case 11:
                return call<at::next>(victim, at::next_name, own(), small());
            case 12:
                return call<at::watch>(victim, at::watch_name, own(), small(), list().view());
            case 13:
                if (dice_.chance(0.5))
                    return call<at::unwatch>(victim, at::unwatch_name, own(), small());
                return call<at::stop>(victim, at::stop_name, own(), small());
            case 14:
                return call<at::make_way>(victim, at::make_way_name);
            default:
                return call<reply<resource_id>(resource_id, false_list)>(victim, at::add_name,
                                                                         own(), spoilt_list());
        }
    }
    void bother(const peer& context) {
        namespace at = at_context;
        const auto tag = static_cast<std::int32_t>(dice_.below(3));
        const std::string content = text(dice_.chance(0.9) ? 100 : 20'000);
        switch (dice_.below(7)) {
            case 0:
                return call<at::change>(context, at::change_name, small(), some_kind(),
                                        dice_.chance(0.5) ? found() : found_values{});
            case 1:
                return call<at::dropped>(context, at::dropped_name);
            case 2:
                return call<at::message>(context, at::message_name, some_id(), some_id(), tag,
                                         as_bytes_of(content));
            case 3:
                return call<at::message_in_turn>(context, at::message_in_turn_name, some_id(),
                                                 some_id(), tag, as_bytes_of(content),
                                                 dice_.chance(0.5));
            case 4: {
                const amalgam::bulk lent = expose_owned(on_, std::string(dice_.below(50'000), 'l'));
                return call<at::long_message>(context, at::long_message_name, some_id(), some_id(),
                                              tag, lent);
            }
            case 5:
                return call<at::room>(context, at::room_name, some_id(), number());
            default:
                return call<at::undelivered>(context, at::undelivered_name, some_id(), some_id(),
                                             tag, errc{static_cast<std::uint8_t>(dice_())});
        }
    }

    std::vector<resource_id> mine_;
    directory_limits got_{0, 0, 0, 0, 0, 0};
};

/// A sender on the broadcast medium: packets that are valid, almost valid, or neither. Those of the
/// first are signed as a member's are.
class packet_liar : public liar {
public:
    packet_liar(std::unique_ptr<port> at, std::shared_ptr<broadcast_medium> medium,
                const std::shared_ptr<const credentials>& member, const known_world& known,
                std::uint64_t seed)
        : liar(std::move(at), known, seed),
          signed_(sign_broadcasts(medium, member)),
          medium_(std::move(medium)) {}

    void run(std::uint64_t steps) {
        for (; steps > 0; --steps) {
            std::vector<std::byte> bytes = packet();
            if (!bytes.empty() && dice_.chance(0.3)) spoil(bytes);
            broadcast_medium& by = dice_.chance(0.9) ? *signed_ : *medium_;
            (void)by.send(bytes);
            if (dice_.chance(0.2)) (void)by.send(bytes);
            pause();
        }
    }

private:
    std::vector<std::byte> packet() {
        if (dice_.chance(0.1)) return std::vector<std::byte>(dice_.below(1400));
        using kind = broadcast_packet::kind;
        broadcast_packet made;
        made.what = kind{static_cast<std::uint8_t>(dice_.chance(0.95) ? dice_.below(3) : dice_())};
        made.from = dice_.chance(0.8) ? any_of(known_.keys) : dice_();
        made.number = dice_.chance(0.5) ? dice_.below(5) : number();
        if (made.what == kind::here || dice_.chance(0.1)) {
            for (std::uint64_t i = dice_.chance(0.9) ? dice_.below(4) : dice_.below(90); i > 0; --i)
                made.addresses.push_back(dice_.chance(0.9) ? any_of(known_.addresses) : text(300));
        }
        if (made.what != kind::here || dice_.chance(0.1)) made.query = list();
        return to_bytes(made);
    }
    void spoil(std::vector<std::byte>& what) {
        if (dice_.chance(0.3)) return what.resize(dice_.below(what.size() + 1));
        what[dice_.below(what.size())] ^= static_cast<std::byte>(1 + dice_.below(255));
    }

    std::shared_ptr<broadcast_medium> signed_;
    std::shared_ptr<broadcast_medium> medium_;
};

}  // namespace amalgam::adversary

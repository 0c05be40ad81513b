#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>

#include "directory/client/context_core.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/protocol/procedures.hpp"
#include "fuzz/fuzz.hpp"

// A stranger calls everything that a directory and a context serve, with any arguments. Where it
// has every role, the others continue unaffected; where it has none, nothing happens at all.
namespace amalgam::fuzz {

namespace {

using namespace std::chrono_literals;
using namespace detail;

/// The input, read as choices. Past its end, every choice is the first.
class choices {
public:
    explicit choices(const_bytes input) : left_(input) {}

    bool over() const { return left_.empty(); }
    std::size_t below(std::size_t bound) { return number<std::uint8_t>() % bound; }
    template <typename T>
    T number() {
        T value{};
        const std::size_t bytes = std::min(sizeof value, left_.size());
        if (bytes != 0) std::memcpy(&value, left_.data(), bytes);
        left_ = left_.subspan(bytes);
        return value;
    }
    template <typename T>
    T one_of(const std::vector<T>& those) {
        return those[below(those.size())];
    }

private:
    const_bytes left_;
};

/// A directory, a context with a resource and a watch, and a stranger.
class world {
public:
    explicit world(bool has_roles) : home_(net_.port("home"), options_of_home(has_roles)) {
        net_.delay(50us, 150us);
        directory_options options{.ring = {.seed = 3}};
        if (has_roles) {
            for (const char* each : {"host", "home"})
                net_.identify(each, {.kind = identity_kind::certificate, .name = each});
            net_.identify("stranger", {.kind = identity_kind::certificate, .name = "stranger"});
            options.roles.readers = allow_list{.names = {"home"}};
        }
        stranger_.define<at_context::change>(
            library_name{at_context::change_name},
            [](std::uint32_t, resource_change::kind, const found_values&) {});
        stranger_.define<in_ring::change>(
            library_name{in_ring::change_name},
            [](std::uint64_t, std::uint32_t, resource_change::kind, const found_values&) {});
        directory_.emplace(host_, options);
        honestly([&] {
            here_.emplace(home_, context_options{.directory = host_.address()});
            box_ = here_->add(what_box_is);
            watch_ = here_->watch({{"type", "box"}}, [this](const resource_change& change) {
                using kind = resource_change::kind;
                require(change.what != kind::ended, "a stranger ends no watch");
                require(change.what != kind::gone || change.which.id != box_.id(),
                        "what is there is not told to be gone");
                saw_box_ = saw_box_ || change.which.id == box_.id();
            });
        });
        ids_ = {resource_id::none, box_.id(), here_->id()};
        contexts_ = directory_->contexts();
        resources_ = directory_->resources();
        net_.run_for(10ms);
        require(saw_box_, "a watch tells of what is there");
    }
    ~world() {
        honestly([&] {
            watch_.end();
            box_ = {};
            here_.reset();
        });
    }

    void make_calls(choices from) {
        for (int most = 50; most > 0 && !from.over(); --most)
            make_call(from);
    }
    /// Another server joins, among all the members that the stranger has made up.
    void let_another_come() {
        another_.emplace(other_host_,
                         directory_options{.ring = {.others = {host_.address()}, .seed = 4}});
        net_.run_for(1s);
        require(another_->servers() > 1, "who comes is let in");
    }
    void check_that_nothing_happened() {
        require(directory_->contexts() == contexts_ && directory_->servers() == 1 &&
                    directory_->resources() == resources_,
                "who has no role changes nothing");
        const auto denied = [](engine& at) {
            for (const counter_value& each : at.counters().snapshot())
                if (each.name == "rpc.denied") return each.value;
            return std::uint64_t{0};
        };
        require(denied(host_) >= calls_of_directory_ && denied(home_) >= calls_of_context_,
                "each call that is refused is counted");
    }
    void check_that_all_is_well() {
        honestly([&] {
            attribute_list query{{"type", "box"}};
            query.ask("n");
            check_box(here_->find(query));
            check_box(here_->find(box_.id(), query));
            resource brief = here_->add({{"type", "brief"}});
            require(here_->find(brief.id()).has_value(), "what is added is found");
            const resource_id gone = std::exchange(brief, {}).id();
            require(!here_->find(gone), "what is removed is not");
            std::set<resource_id> seen;
            for (const found_resource& each : here_->search(query))
                require(seen.insert(each.id).second, "a search finds nothing twice");
            require(seen.contains(box_.id()), "and all there is");
        });
    }
    /// The stranger leaves, and its resources with it.
    void check_without_stranger() {
        net_.kill("stranger");
        net_.run_for(10ms);
        require(directory_->contexts() == contexts_ && directory_->resources() == resources_,
                "nothing is left of who is gone");
        check_that_all_is_well();
    }

private:
    static engine_options options_of_home(bool has_roles) {
        if (!has_roles) return {};
        return {.allow = allow_list{.names = {"host"}}};
    }
    template <typename Work>
    void honestly(Work work) {
        auto done = home_.spawn(std::move(work));
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net_.run_for(10ms);
        require(done.ready(), "calls end");
        const auto how = done.wait();
        require(how.ok(), "what was possible before is possible still");
    }
    void check_box(const std::optional<found_resource>& found) {
        require(found && found->id == box_.id() && found->context == here_->id() &&
                    found->what.text("n") == "1",
                "who was there is found as he is");
    }

    // ---- arguments

    resource_id id(choices& from) {
        if (from.below(4) == 0) return from.number<resource_id>();
        return from.one_of(ids_);
    }
    std::uint32_t small(choices& from) {
        return from.one_of<std::uint32_t>({0, 1, 2, 3, 65535, 65536, ~0u, from.below(2) == 0});
    }
    std::uint64_t key(choices& from) {
        if (from.below(4) == 0) return from.number<std::uint64_t>();
        return from.one_of(keys_);
    }
    static resource_change::kind kind(choices& from) {
        return static_cast<resource_change::kind>(from.below(6));
    }
    attribute_list list(choices& from) {
        attribute_list made;
        const std::vector<std::string> names{"type", "n", "context.addresses", "x"};
        const std::vector<std::string> values{"box", "1", "loop://stranger\n", "",
                                              std::string(3000, 'x')};
        for (std::size_t left = from.below(4), at = from.below(4); left > 0; --left, ++at) {
            if (from.below(3) == 0) {
                made.ask(names[at % names.size()]);
            } else {
                made.add(names[at % names.size()], from.one_of(values));
            }
        }
        return made;
    }
    found_values found(choices& from) { return {id(from), id(from), list(from)}; }
    std::vector<std::uint32_t> ranges(choices& from) {
        std::vector<std::uint32_t> made;
        const auto of_box = static_cast<std::uint32_t>(box_.id()) >> 16;
        for (std::size_t left = from.below(4); left > 0; --left) {
            const std::size_t how = from.below(5);
            if (how == 0) made.push_back(from.number<std::uint32_t>());
            if (how == 1) made.insert(made.end(), 1 + from.below(40), of_box);
            if (how == 2) made.push_back(of_box);
            for (std::uint32_t i = 0; how == 3 && i < 1u << (7 + from.below(10)); ++i)
                made.push_back(i);
            if (how == 4) made.push_back(of_box ^ 1u << from.below(15));
        }
        return made;
    }
    member some_member(choices& from) {
        member made{key(from), small(from), {}, ranges(from), {}};
        made.settled = from.below(2) == 0 ? made.ranges : ranges(from);
        for (std::size_t left = from.below(4); left > 0; --left)
            made.addresses.push_back(from.one_of<std::string>(
                {"loop://host", "loop://stranger", "loop://home", "loop://nobody", "loop:", "",
                 "what?", "loop://" + std::string(300, 'a')}));
        keys_.push_back(made.key);
        return made;
    }
    ring_news news(choices& from) {
        ring_news made;
        for (std::size_t left = from.below(6); left > 0; --left)
            made.came.push_back(some_member(from));
        for (std::size_t left = from.below(3); left > 0; --left)
            made.gone.push_back({key(from), small(from)});
        return made;
    }
    ring_part part(choices& from) {
        switch (from.below(4)) {
            case 0:
                return {from.number<std::uint64_t>(), from.number<std::uint64_t>(),
                        from.number<std::uint64_t>()};
            case 1:
                return {key(from), from.below(2), from.below(3)};
            case 2:
                return {key(from), 1, ~std::uint64_t{0}};
            default:
                return {key(from), 0, 0};
        }
    }

    // ---- calls

    template <typename Signature, typename... A>
    auto call_as(choices& from, engine& whom, std::string_view name, const A&... arguments) {
        (&whom == &home_ ? calls_of_context_ : calls_of_directory_) += 1;
        auto answer = stranger_.procedure<Signature>(name)
                          .on(stranger_.lookup(whom.address()))
                          .within(1s)
                          .start(arguments...);
        net_.run_for(from.one_of<clock::duration>({1ms, 1ms, 10ms, 1s}));
        return answer;  // If not ready by now, it is canceled.
    }
    template <typename Signature, typename... A>
    void call(choices& from, std::string_view name, const A&... arguments) {
        (void)call_as<Signature>(from, host_, name, arguments...);
    }
    /// The same for an id.
    template <typename Signature, typename... A>
    void call_for_id(choices& from, std::string_view name, const A&... arguments) {
        auto answer = call_as<Signature>(from, host_, name, arguments...);
        if (answer.ready() && answer.wait().ok()) ids_.push_back(answer.get().value);
    }
    void make_call(choices& from) {
        namespace d = at_directory;
        namespace r = in_ring;
        switch (from.below(34)) {
            case 0:
                return call_for_id<d::open>(from, d::open_name, list(from));
            case 1:
                return call<d::close>(from, d::close_name, id(from));
            case 2:
                return call_for_id<d::add>(from, d::add_name, id(from), list(from));
            case 3:
                return call<d::remove>(from, d::remove_name, id(from), id(from));
            case 4:
                return call<d::find>(from, d::find_name, id(from), list(from));
            case 5:
                return call<d::find_elsewhere>(from, d::find_elsewhere_name, id(from), list(from));
            case 6:
                return call<d::search>(from, d::search_name, id(from), list(from));
            case 7:
                return call<d::next>(from, d::next_name, id(from), small(from));
            case 8:
                return call<d::stop>(from, d::stop_name, id(from), small(from));
            case 9:
                return call<d::watch>(from, d::watch_name, id(from), small(from), list(from));
            case 10:
                return call<d::unwatch>(from, d::unwatch_name, id(from), small(from));
            case 11:
                return call<r::members>(from, r::members_name);
            case 12:
                return call<r::join>(from, r::join_name, some_member(from));
            case 13:
                return call<r::tell>(from, r::tell_name, part(from), news(from));
            case 14:
                return call<r::ping>(from, r::ping_name, key(from), small(from));
            case 15:
                return learn_keys(from);
            case 16:
                return call<r::find>(from, r::find_name, part(from), list(from));
            case 17:
                return search_in_ring(from);
            case 18:
                return call<r::next>(from, r::next_name, key(from));
            case 19:
                return call<r::stop>(from, r::stop_name, key(from));
            case 20:
                return call_for_id<r::open_watcher>(from, r::open_watcher_name);
            case 21:
                return call<r::change>(from, r::change_name, key(from), small(from), kind(from),
                                       found(from));
            case 23:
                return call<d::set>(from, d::set_name, id(from), id(from), list(from));
            case 24:
                return call<d::find_long>(from, d::find_long_name, list(from));
            case 22:
                return call<d::reopen>(from, d::reopen_name, id(from), id(from), list(from));
            case 25:
                return call<r::ping_req>(from, r::ping_req_name, key(from), small(from));
            case 26:
                --calls_of_directory_;  // Anybody may ask.
                return call<d::make_way>(from, d::make_way_name);
            default:
                return call_context(from);
        }
    }
    void learn_keys(choices& from) {
        auto answer = call_as<in_ring::compare>(from, host_, in_ring::compare_name, news(from));
        if (!answer.ready() || !answer.wait().ok()) return;
        for (const member& each : answer.get().came)
            keys_.push_back(each.key);
    }
    void search_in_ring(choices& from) {
        auto answer =
            call_as<in_ring::search>(from, host_, in_ring::search_name, part(from), list(from));
        if (!answer.ready() || !answer.wait().ok()) return;
        for (const first_answer& each : answer.get().found)
            keys_.push_back(each.search);
    }
    void call_context(choices& from) {
        namespace c = at_context;
        const auto tag = static_cast<std::int32_t>(small(from));
        const std::string text(from.below(40), 'm');
        switch (from.below(5)) {
            case 0:
                (void)call_as<c::change>(from, home_, c::change_name, small(from), kind(from),
                                         found(from));
                break;
            case 1:
                (void)call_as<c::message>(from, home_, c::message_name, id(from), id(from), tag,
                                          as_bytes_of(text));
                break;
            case 2:
                (void)call_as<c::room>(from, home_, c::room_name, id(from), key(from));
                break;
            case 3:
                (void)call_as<c::undelivered>(from, home_, c::undelivered_name, id(from), id(from),
                                              tag, from.number<errc>());
                break;
            case 4:
                (void)call_as<c::dropped>(from, home_, c::dropped_name);
                break;
        }
    }

    const attribute_list what_box_is{{"type", "box"}, {"n", "1"}};
    loop_network net_{{.seed = 3}};
    engine host_{net_.port("host")}, home_, stranger_{net_.port("stranger")};
    engine other_host_{net_.port("other")};
    std::optional<directory_server> directory_, another_;
    std::optional<context> here_;
    resource box_;
    bool saw_box_ = false;
    resource_watch watch_;
    std::size_t contexts_ = 0, resources_ = 0;
    std::vector<resource_id> ids_;  // Known to the stranger.
    std::vector<std::uint64_t> keys_{0, 1, ~std::uint64_t{0}};
    std::uint64_t calls_of_directory_ = 0, calls_of_context_ = 0;
};

}  // namespace

void run_one(const_bytes input) {
    {
        world open(false);
        open.make_calls(choices(input));
        open.let_another_come();
        open.check_that_all_is_well();
        open.check_without_stranger();
    }
    world closed(true);
    closed.make_calls(choices(input));
    closed.check_that_nothing_happened();
    closed.check_that_all_is_well();
}

std::span<const std::string_view> seeds() {
    static const std::vector<std::string> texts = [] {
        std::vector<std::string> made;
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
            seeded_random random(seed);
            std::string text(50 + random.below(400), ' ');
            for (char& each : text)
                each = static_cast<char>(random());
            made.push_back(std::move(text));
        }
        return made;
    }();
    static const std::vector<std::string_view> views(texts.begin(), texts.end());
    return views;
}

}  // namespace amalgam::fuzz

// Who sends as a resource that the receiver has not heard of, while the directory is asked about
// it.
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/event.hpp>

#include "directory/client/context_core.hpp"
#include "directory/limits.hpp"
#include "directory/protocol/procedures.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace detail;

/// Between a receiver and its directory: holds questions back, and counts what the receiver serves.
class slow_questions final : public interceptor {
public:
    bool sees_library_procedures() const noexcept override { return true; }
    void calling(outgoing_call& call) override {
        if (call.procedure() != "amalgam.directory.find") return;
        ++asked;
        if (holds) answer.wait();
        if (refused_as != errc::ok) throw error(refused_as, "a test says so");
    }
    void serving(call_context& call) override {
        if (call.procedure() == "amalgam.directory.room") ++rooms;
    }

    std::atomic<bool> holds{true};
    std::atomic<errc> refused_as{errc::ok};
    std::atomic<std::size_t> asked{0}, rooms{0};
    event answer;
};

class unknown_senders : public testing::Test {
protected:
    engine_options named(const char* name) const {
        return {.ports = {.trust = lab.trust_of(lab.authority.issue({.name = name}))}};
    }
    engine_options slow(const char* name) const {
        engine_options all = named(name);
        all.interceptors = {questions};
        return all;
    }
    /// One attempt to send, as its owner does.
    errc try_send(engine& by, const resource& from, const resource& to) const {
        return by.procedure<at_context::message>(at_context::message_name)
            .on(by.lookup(receiver))(from.id(), to.id(), 1, {});
    }

    test_lab lab;
    const std::shared_ptr<slow_questions> questions = std::make_shared<slow_questions>();
    engine host{"tcp+tls://127.0.0.1:0", named("host")};
    engine in_r{"tcp+tls://127.0.0.1:0", slow("r")};
    const std::string receiver = in_r.address();
};

TEST_F(unknown_senders, one_who_is_many_does_not_keep_out_others) {
    const directory_server directory(host);
    const test_certificate his = lab.authority.issue({.name = "many"});
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")};
    engine in_many{"tcp+tls://127.0.0.1:0", {.ports = {.trust = lab.trust_of(his)}}};
    engine again{"tcp+tls://", {.ports = {.trust = lab.trust_of(his)}}};
    context r{in_r, {.directory = host.address()}}, a{in_a, {.directory = host.address()}};
    context many{in_many, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}}), other = a.add({{"type", "other"}});
    std::vector<resource> all;
    std::size_t hidden = 0;
    for (std::size_t i = 0; i < limits::max_senders_looked_up; ++i) {
        all.push_back(many.add({{"type", "one"}}));
        hidden += try_send(i % 2 == 0 ? in_many : again, all.back(), box) == errc::ok;
    }
    EXPECT_EQ(hidden, limits::max_senders_of_one) << "over all his connections";
    EXPECT_EQ(try_send(in_a, other, box), errc::ok);
    EXPECT_FALSE(box.try_receive());
    questions->answer.set();
    EXPECT_EQ(box.receive({.from = other.id()}).tag, 1);
    for (std::size_t i = 0; i < hidden; ++i)
        (void)box.receive();
}

TEST_F(unknown_senders, all_together_are_bounded_too) {
    const directory_server directory(host);
    context r{in_r, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}});
    constexpr std::size_t full = limits::max_senders_looked_up / limits::max_senders_of_one;
    std::vector<std::unique_ptr<engine>> engines;
    std::vector<std::unique_ptr<context>> contexts;
    std::vector<resource> all;
    for (std::size_t i = 0; i <= full; ++i) {
        const std::string name = "m" + std::to_string(i);
        engines.push_back(std::make_unique<engine>("tcp+tls://127.0.0.1:0", named(name.c_str())));
        contexts.push_back(std::make_unique<context>(*engines.back(),
                                                     context_options{.directory = host.address()}));
        for (std::size_t n = 0; n < (i < full ? limits::max_senders_of_one : 1); ++n) {
            all.push_back(contexts.back()->add({{"type", "one"}}));
            EXPECT_EQ(try_send(*engines.back(), all.back(), box),
                      i < full ? errc::ok : errc::overloaded);
        }
    }
    questions->answer.set();
    for (std::size_t n = 0; n < limits::max_senders_looked_up; ++n)
        (void)box.receive();
}

TEST_F(unknown_senders, the_directory_is_asked_once_about_one_however_much_he_sends) {
    const directory_server directory(host);
    for (const char* where : {"tcp+tls://127.0.0.1:0", "tcp+tls://"}) {
        questions->answer.reset();
        engine in_a{where, named("a")};
        context r{in_r, {.directory = host.address()}}, a{in_a, {.directory = host.address()}};
        const resource box = r.add({{"type", "box"}}), one = a.add({{"type", "one"}});
        const std::size_t before = questions->asked;
        for (std::int32_t i = 0; i < 3; ++i) {
            one.post(box.id(), i, std::string(100'000, 'x'));
            one.post(box.id(), i, "short");
        }
        while (questions->asked == before)
            this_task::yield();
        EXPECT_EQ(try_send(in_a, one, box), errc::ok);
        questions->answer.set();
        for (int i = 0; i < 7; ++i)
            (void)box.receive();
        EXPECT_EQ(try_send(in_a, one, box), errc::ok);
        EXPECT_EQ(questions->asked, before + 1) << where;
    }
}

TEST_F(unknown_senders, who_forges_meanwhile_has_nothing_delivered_and_all_of_it_counted) {
    const directory_server directory(host);
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")}, in_forger{"tcp+tls://", named("forger")};
    context r{in_r, {.directory = host.address()}}, a{in_a, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}}), one = a.add({{"type", "one"}});
    EXPECT_EQ(try_send(in_forger, box, box), errc::denied) << "an id of the receiver's own";
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(try_send(in_forger, one, box), errc::ok);
    std::vector<int> large(100'000, 1);
    const exposed lent = expose(in_forger, large, access::read);
    auto late = in_forger.procedure<at_context::long_message>(at_context::long_message_name)
                    .on(in_forger.lookup(receiver))
                    .start(one.id(), box.id(), 2, lent.descriptor());
    questions->answer.set();
    EXPECT_EQ(late.get(), errc::denied);
    EXPECT_EQ(try_send(in_forger, one, box), errc::denied);
    EXPECT_FALSE(box.try_receive());
    EXPECT_GE(counters_of(in_r)["context.forged"], 4u);
}

TEST_F(unknown_senders, who_forges_is_found_where_there_is_no_room_to_remember_the_owner) {
    questions->holds = false;
    const directory_server directory(host);
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")}, in_forger{"tcp+tls://", named("forger")};
    context r{in_r, {.directory = host.address()}}, a{in_a, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}}), one = a.add({{"type", "one"}});
    // All that it remembers was looked up for itself.
    locations& all = r.core().known_places();
    constexpr resource_id somewhere{1u << 30};
    all.learn_context(somewhere, ways_there(in_r.lookup(host.address())));
    std::uint32_t known = 1u << 30;
    for (std::size_t before = ~std::size_t{}; all.resources() != before;) {
        before = all.resources();
        all.learn(resource_id{++known}, somewhere, true);
        if (all.resources() != before) all.learn(resource_id{known}, somewhere);
    }
    while (counters_of(in_r)["context.forged"] < 3) {
        (void)try_send(in_forger, one, box);
        ASSERT_FALSE(box.try_receive());
    }
    EXPECT_TRUE(all.knows(resource_id{(1u << 30) + 1})) << "nothing had to make room";
    one.send(box.id(), 7, "mine");
    EXPECT_EQ(box.receive().tag, 7);
}

TEST_F(unknown_senders,
       one_too_many_waits_until_another_is_settled_and_does_not_try_again_and_again) {
    const directory_server directory(host);
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")};
    context r{in_r, {.directory = host.address()}}, a{in_a, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}});
    std::vector<resource> all;
    std::vector<future<void>> sent;
    for (std::size_t i = 0; i <= limits::max_senders_of_one; ++i) {
        all.push_back(a.add({{"type", "one"}}));
        sent.push_back(all.back().start_send(box.id(), 1, a.take_buffer(4)));
    }
    while (questions->rooms == 0)
        this_task::yield();
    for (int i = 0; i < 200; ++i)
        in_a.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping").on(in_a.lookup(receiver))(0);
    EXPECT_EQ(questions->rooms, 1u);
    EXPECT_FALSE(box.try_receive());
    questions->answer.set();
    for (const resource& each : all)
        EXPECT_EQ(box.receive({.from = each.id()}).tag, 1);
    for (future<void>& each : sent)
        each.get();
}

TEST_F(unknown_senders, who_is_hidden_when_the_directory_dies_is_taken_at_his_word) {
    for (const errc how : {errc::disconnected, errc::timed_out, errc::closed, errc::not_found}) {
        engine dying{"tcp+tls://127.0.0.1:0", named("host")};
        auto directory = std::make_unique<directory_server>(dying);
        engine in_a{"tcp+tls://127.0.0.1:0", named("a")};
        context r{in_r, {.directory = dying.address(), .reopen_within = {}}};
        context a{in_a, {.directory = dying.address(), .reopen_within = {}}};
        const resource box = r.add({{"type", "box"}}), one = a.add({{"type", "one"}});
        questions->refused_as = how;
        questions->answer.reset();
        one.send(box.id(), 7, "hidden");
        EXPECT_FALSE(box.try_receive());
        directory.reset();
        questions->answer.set();
        EXPECT_EQ(box.receive().tag, 7) << name(how);
        one.send(box.id(), 8, std::string(100'000, 'x'));
        EXPECT_EQ(box.receive().tag, 8) << name(how);
    }
}

TEST_F(unknown_senders, who_sends_as_an_id_that_nobody_has_gets_nothing_of_who_gets_it_later) {
    questions->holds = false;
    const directory_server directory(host);
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")};
    engine in_early{"tcp+tls://127.0.0.1:0", named("early")};
    context r{in_r, {.directory = host.address()}}, a{in_a, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}});
    const resource_id next{static_cast<std::uint32_t>(a.add({{"type", "one"}}).id()) + 1};
    const auto early = in_early.procedure<at_context::message>(at_context::message_name)
                           .on(in_early.lookup(receiver));
    EXPECT_EQ(early(next, box.id(), 5, {}), errc::ok);
    EXPECT_EQ(box.receive().tag, 5) << "he is taken at his word";
    const resource later = a.add({{"type", "later"}});
    ASSERT_EQ(later.id(), next) << "ids can be guessed";
    EXPECT_EQ(r.lookup(later.id()).who().name, "a");
    box.post(later.id(), 6, "for a");
    EXPECT_EQ(later.receive().tag, 6);
}

TEST_F(unknown_senders, whatever_many_send_arrives_once_in_order_and_nothing_that_is_forged) {
    questions->holds = false;
    const directory_server directory(host);
    context r{in_r, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}});
    struct sending {
        std::unique_ptr<engine> on;
        std::unique_ptr<context> as;
        std::vector<resource> all;
    };
    std::vector<sending> senders;
    for (const char* each : {"a", "b", "c"}) {
        sending one{std::make_unique<engine>("tcp+tls://127.0.0.1:0", named(each)), {}, {}};
        one.as = std::make_unique<context>(*one.on, context_options{.directory = host.address()});
        senders.push_back(std::move(one));
    }
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(seed);
        seeded_random random(seed);
        std::map<resource_id, std::deque<std::int32_t>> expected;
        std::vector<future<void>> sent;
        std::size_t count = 0;
        for (std::int32_t step = 0; step < 400; ++step) {
            sending& by = senders[random.below(senders.size())];
            if (by.all.empty() || random.chance(0.2))
                by.all.push_back(by.as->add({{"type", "one"}}));
            const resource& from = by.all[random.below(by.all.size())];
            sending& other = senders[random.below(senders.size())];
            if (&other != &by) (void)try_send(*other.on, from, box);
            const std::size_t bytes = random.chance(0.1) ? 50'000 : random.below(100);
            expected[from.id()].push_back(step + 2);
            ++count;
            if (random.chance(0.5))
                sent.push_back(from.start_send(box.id(), step + 2, by.as->take_buffer(bytes)));
            else
                from.send(box.id(), step + 2, std::string(bytes, 'x'));
        }
        for (; count > 0; --count) {
            const resource_message got = box.receive();
            std::deque<std::int32_t>& next = expected[got.from];
            ASSERT_FALSE(next.empty());
            EXPECT_EQ(got.tag, next.front());
            next.pop_front();
        }
        for (future<void>& each : sent)
            each.get();
        EXPECT_FALSE(box.try_receive());
        for (sending& each : senders)
            each.all.clear();
    }
}

TEST(senders_with_pre_shared_keys, are_not_compared_as_the_far_end_has_the_name_of_our_key) {
    const auto keyed = [](char own) {
        std::string lines;
        for (const char each : std::string{own} + "abcd")  // The first is the own key.
            if (lines.empty() || each != own)
                lines += std::string("node_") + each + ':' + std::string(64, each) + '\n';
        return engine_options{.ports = {.trust = credentials::from_text({.shared_keys = lines})}};
    };
    engine host{"tcp+tls://127.0.0.1:0", keyed('d')}, in_r{"tcp+tls://127.0.0.1:0", keyed('b')};
    engine in_a{"tcp+tls://127.0.0.1:0", keyed('a')};
    const directory_server directory(host);
    context r{in_r, {.directory = host.address()}}, a{in_a, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}}), one = a.add({{"type", "one"}});
    const auto arrives = [](const resource& at, engine& in) {
        for (;;) {
            if (at.try_receive()) return true;
            if (counters_of(in)["context.forged"] != 0) return false;
            this_task::yield();
        }
    };
    box.post(one.id(), 1, "the receiver connects to the owner");
    EXPECT_TRUE(arrives(one, in_a)) << "taken for forged";
    for (const char who : {'a', 'c'}) {  // The owner on a connection of its own, and another.
        engine by{"tcp+tls://", keyed(who)};
        EXPECT_EQ(by.procedure<at_context::message>(at_context::message_name)
                      .on(by.lookup(in_r.address()))(one.id(), box.id(), 2, {}),
                  errc::ok);
        EXPECT_TRUE(arrives(box, in_r)) << "taken for forged";
    }
}

}  // namespace
}  // namespace amalgam

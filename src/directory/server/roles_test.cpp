// Who may do what at a directory, in virtual time: identities are as if proved.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/signed_broadcast.hpp>

#include "directory/limits.hpp"
#include "directory/membership/hosts.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/protocol/broadcast_packet.hpp"
#include "directory/protocol/role_policy.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using namespace detail;

identity certified(const std::string& name) {
    return {.kind = identity_kind::certificate, .name = name};
}

TEST(directory_roles,
     a_role_without_a_list_goes_to_who_has_the_next_below_and_each_has_those_below) {
    using role = directory_role;
    engine on{"loop://roles-of-this-test"};
    const auto may = [&](const directory_roles& roles) {
        const role_policy all(on, "directory", roles);
        std::string who;
        for (const role each : {role::reader, role::context, role::member}) {
            const auto& list = all.list_of(each);
            for (const char* name : {"m", "c", "r", "x"})
                if (!list || list->allows(certified(name))) who += name;
            who += ' ';
        }
        return who;
    };
    const allow_list m{.names = {"m"}}, c{.names = {"c"}}, r{.names = {"r"}};
    EXPECT_EQ(may({}), "mcrx mcrx mcrx ");
    EXPECT_EQ(may({.members = m, .contexts = c, .readers = r}), "mcr mc m ");
    EXPECT_EQ(may({.members = m}), "mcrx mcrx m ");
    EXPECT_EQ(may({.contexts = c}), "mcrx c c ") << "not evaded as a member";
    EXPECT_EQ(may({.readers = r}), "r r r ");
    EXPECT_EQ(may({.members = m, .readers = r}), "mr mr m ");
    EXPECT_EQ(may({.members = allow_list{}}), "mcrx mcrx  ");
    // By whatever a list names them.
    const role_policy others(on, "directory",
                             {.members = allow_list{.groups = {"g"}, .uids = {7}}, .readers = r});
    identity grouped = certified("x");
    grouped.groups = {"g"};
    for (const identity& each : {grouped, identity{.kind = identity_kind::process, .uid = 7}})
        for (const role one : {role::reader, role::context, role::member})
            EXPECT_TRUE(others.list_of(one)->allows(each)) << to_text(each);
}

/// Hosts with roles, and a process of that name without, or with a role of its own.
class with_roles : public testing::Test {
protected:
    explicit with_roles(std::size_t count = 2) : all(count, {.with_roles = true}) {
        all.net.run_for(3s);
    }
    std::unique_ptr<engine> process(const std::string& name, const std::string& group) {
        auto made = std::make_unique<engine>(all.net.port(name));
        all.identify(name, group);
        return made;
    }
    template <typename Work>
    auto in(engine& where, Work work) {
        auto done = where.spawn(std::move(work));
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            all.net.run_for(10ms);
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    template <typename Signature, typename... A>
    errc asks(engine& by, std::string_view name, A... arguments) {
        return in(by, [&] {
            return by.procedure<Signature>(name)
                .on(by.lookup("loop://host0"))
                .within(1s)
                .try_call(arguments...)
                .code()
                .code;
        });
    }
    std::uint64_t denied() { return all.counted(0, "rpc.denied"); }

    hosts all;
};

TEST_F(with_roles, a_ring_and_its_contexts_work_as_ever) {
    EXPECT_EQ(all.known_by(0), 2u);
    const resource_id far = all.add_resource(1, {{"type", "box"}});
    const auto found = all.find(0, {{"type", "box"}});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, far);
    all.in(0, [&](context& here) {
        here.self().send(far, 1, "hello");
        return true;
    });
    all.net.kill("host1");
    all.net.run_for(5s);
    EXPECT_EQ(all.known_by(0), 1u);
    EXPECT_EQ(denied(), 0u);
}

TEST_F(with_roles, a_process_that_may_register_is_no_member) {
    const auto user = process("user", "users");
    EXPECT_EQ(asks<in_ring::members>(*user, in_ring::members_name), errc::denied);
    EXPECT_EQ(asks<in_ring::join>(*user, in_ring::join_name, member{7, 1, {"loop://user"}, {}, {}}),
              errc::denied);
    EXPECT_EQ(
        asks<in_ring::meet>(*user, in_ring::meet_name, std::vector<std::string>{"loop://user"}),
        errc::denied);
    EXPECT_EQ(asks<in_ring::answer>(*user, in_ring::answer_name, std::uint64_t{1}, first_answer{}),
              errc::denied);
    EXPECT_EQ(asks<in_ring::tell>(*user, in_ring::tell_name, ring_part{}, ring_news{}),
              errc::denied);
    EXPECT_EQ(asks<in_ring::ping>(*user, in_ring::ping_name, std::uint64_t{7}, 1u), errc::denied);
    EXPECT_EQ(asks<in_ring::ping_req>(*user, in_ring::ping_req_name, std::uint64_t{7}, 1u),
              errc::denied);
    EXPECT_EQ(asks<in_ring::compare>(*user, in_ring::compare_name, ring_news{}), errc::denied);
    EXPECT_EQ(asks<in_ring::find>(*user, in_ring::find_name, ring_part{}, attribute_view{}),
              errc::denied);
    EXPECT_EQ(asks<in_ring::search>(*user, in_ring::search_name, ring_part{}, attribute_view{}),
              errc::denied);
    EXPECT_EQ(asks<in_ring::next>(*user, in_ring::next_name, std::uint64_t{1}), errc::denied);
    EXPECT_EQ(asks<in_ring::stop>(*user, in_ring::stop_name, std::uint64_t{1}), errc::denied);
    EXPECT_EQ(asks<in_ring::open_watcher>(*user, in_ring::open_watcher_name), errc::denied);
    EXPECT_EQ(asks<in_ring::change>(*user, in_ring::change_name, std::uint64_t{1}, 1u,
                                    resource_change::kind::gone, found_values{}),
              errc::denied);
    EXPECT_EQ(denied(), 14u);
    EXPECT_EQ(all.known_by(0), 2u);
    EXPECT_EQ(in(*user,
                 [&] {
                     context here(*user, {.directory = "loop://host0"});
                     return here.add({{"type", "box"}}).release() != resource_id::none;
                 }),
              true);
}

TEST_F(with_roles, who_has_none_is_denied_everything_but_what_readers_may) {
    // Readers have no list here, so everybody may search, and nobody but users may register.
    all.add_resource(0, {{"type", "box"}});
    const auto reader = process("reader", "nobody's");
    in(*reader, [&] {
        context here(*reader, {.directory = "loop://host0", .what = {{"type", "box"}}});
        EXPECT_TRUE(here.find({{"type", "box"}}));
        int found = 0;
        for (const auto& each : here.search({{"type", "box"}})) {
            EXPECT_NE(each.id, here.id()) << "a reader is not found by what it says of itself";
            ++found;
        }
        EXPECT_EQ(found, 1);
        const error why = error_of([&] { (void)here.add({{"type", "box"}}); });
        EXPECT_EQ(why.code(), errc::denied);
        EXPECT_NE(std::string(why.what()).find("does not allow this call to reader"),
                  std::string::npos)
            << why.what();
        EXPECT_EQ(code_of([&] { here.self().set({{"type", "box"}}); }), errc::denied);
        return true;
    });
    const auto reopen = [&] {
        return in(*reader, [&] {
            const auto there = reader->lookup("loop://host0");
            const resource_id self = reader->procedure<at_directory::open>(at_directory::open_name)
                                         .on(there)(attribute_list{{"type", "box"}})
                                         .take();
            const resource_id wanted{static_cast<std::uint32_t>(self) + 1};
            return reader->procedure<at_directory::reopen>(at_directory::reopen_name)
                .on(there)(self, wanted, attribute_list{{"type", "box"}})
                .code;
        });
    };
    EXPECT_EQ(reopen(), errc::denied) << "nor by the way of one that returns";
    EXPECT_EQ(denied(), 2u);
}

TEST_F(with_roles, readers_that_come_back_use_up_nobody_elses_ranges_of_ids) {
    // Each says that it had an id of another range before the directory was started again.
    engine on(all.net.port("restarted"));
    all.identify("restarted", "hosts");
    const directory_server server(on, {.roles = {.contexts = allow_list{.groups = {"users"}}}});
    all.net.run_for(1s);
    const auto returns = [&](engine& by, std::uint32_t range) {
        return in(by, [&] {
            const resource_id own{range * limits::ids_per_range + 7};
            return by.procedure<at_directory::reopen>(at_directory::reopen_name)
                .on(by.lookup("loop://restarted"))(own, own, attribute_list())
                .code;
        });
    };
    const auto reader = process("reader", "nobody's"), user = process("user", "users");
    std::size_t taken = 0;
    for (std::uint32_t range = 1000; range < 1000 + 2 * limits::max_reclaimed_ranges; ++range)
        taken += returns(*reader, range) == errc::ok ? 1 : 0;
    EXPECT_EQ(taken, limits::max_reclaimed_for_readers);
    for (std::uint32_t range = 3000; range < 3010; ++range)
        EXPECT_EQ(returns(*user, range), errc::ok);
    EXPECT_NE(returns(*reader, 3000), errc::ok) << "that id is taken";
}

TEST_F(with_roles, one_process_has_so_many_contexts_and_leaves_room_for_others) {
    engine on(all.net.port("small"));
    all.identify("small", "hosts");
    const directory_server server(on, {.limits = {.contexts = limits::max_contexts_of_one + 2}});
    all.net.run_for(1s);
    const auto reader = process("reader", "nobody's"), user = process("user", "users");
    const auto open = [](engine& by) {
        return by.procedure<at_directory::open>(at_directory::open_name)
            .on(by.lookup("loop://small"))(attribute_list());
    };
    in(*reader, [&] {
        resource_id first = resource_id::none;
        for (std::size_t i = 0; i < limits::max_contexts_of_one; ++i)
            first = open(*reader).take();
        const auto refused = open(*reader);
        EXPECT_EQ(refused.code, errc::overloaded);
        EXPECT_NE(refused.sentence.find("expected one at a time"), std::string::npos);
        reader->procedure<at_directory::close>(at_directory::close_name)
            .on(reader->lookup("loop://small"))(first);
        EXPECT_EQ(open(*reader).code, errc::ok);
        return true;
    });
    EXPECT_EQ(in(*user, [&] { return open(*user).code; }), errc::ok);
    all.net.kill("reader");
    all.net.run_for(1s);
    EXPECT_EQ(server.contexts(), 1u);
}

/// A directory where not everybody has everything.
class with_owners : public with_roles {
protected:
    with_owners() : with_roles(1) {
        all.identify("owned", "hosts");
        const allow_list databases{.groups = {"databases"}};
        server = std::make_unique<directory_server>(
            on, directory_options{
                    .roles = {.contexts = allow_list{.groups = {"workers", "databases"}},
                              .readers = allow_list{.groups = {"readers"}},
                              .owners_of = {
                                  {.name = "type", .value = "database", .who = databases},
                                  {.name = "rack", .who = databases},
                                  {.name = "rack", .value = "7", .who = {.names = {"on7"}}},
                                  {.name = "nobody's"},
                              }}});
        all.net.run_for(1s);
    }
    /// Of a context with attributes.
    errc opens(engine& by, const attribute_list& what) {
        return in(by, [&] {
            return code_of(
                [&] { const context here(by, {.directory = "loop://owned", .what = what}); });
        });
    }
    /// Of a resource.
    errc adds(engine& by, const attribute_list& what) {
        return in(by, [&] {
            context here(by, {.directory = "loop://owned"});
            return code_of([&] { (void)here.add(what); });
        });
    }
    /// Of what it says it had before the directory was started again: a resource, or its context.
    errc reopens(engine& by, const attribute_list& what, std::uint32_t range,
                 bool as_context = false) {
        return in(by, [&] {
            const auto there = by.lookup("loop://owned");
            const auto reopen = by.procedure<at_directory::reopen>(at_directory::reopen_name);
            const resource_id wanted{range * limits::ids_per_range + 7};
            if (as_context) return reopen.on(there)(wanted, wanted, what).code;
            const resource_id self = by.procedure<at_directory::open>(at_directory::open_name)
                                         .on(there)(attribute_list())
                                         .take();
            const errc how = reopen.on(there)(self, wanted, what).code;
            by.procedure<at_directory::close>(at_directory::close_name).on(there)(self);
            return how;
        });
    }

    engine on{all.net.port("owned")};
    std::unique_ptr<directory_server> server;
};

TEST_F(with_owners, nobody_else_gives_a_resource_their_attribute_whichever_way) {
    const auto worker = process("worker", "workers"), database = process("database", "databases");
    const attribute_list taken{{"rank", "1"}, {"type", "database"}};
    in(*worker, [&] {
        context here(*worker, {.directory = "loop://owned"});
        const resource box = here.add({{"type", "box"}});
        const error why = error_of([&] { (void)here.add(taken); });
        EXPECT_EQ(why.code(), errc::denied);
        EXPECT_EQ(std::string(why.what()),
                  "only group:databases may give {type: \"database\"} to resources of this "
                  "directory, not worker (groups: workers); its operator can add a name, a group "
                  "or a uid to directory_roles::owners_of");
        EXPECT_EQ(code_of([&] { box.set(taken); }), errc::denied);
        EXPECT_EQ(code_of([&] { here.self().set(taken); }), errc::denied);
        EXPECT_EQ(code_of([&] { box.set({{"load", "7"}}); }), errc::ok);
        EXPECT_TRUE(here.find({{"type", "box"}, {"load", "7"}}));
        EXPECT_FALSE(here.find({{"type", "database"}}));
        EXPECT_FALSE(here.find({{"rank", "1"}})) << "not a part of the change either";
        return true;
    });
    EXPECT_EQ(opens(*worker, taken), errc::denied);
    EXPECT_EQ(reopens(*worker, taken, 1000), errc::denied);
    EXPECT_EQ(reopens(*worker, taken, 1000, true), errc::denied);
    EXPECT_EQ(server->contexts(), 0u);
    EXPECT_EQ(hosts::counted(on, "directory.refused"), 6u);
    in(*database, [&] {
        context here(*database, {.directory = "loop://owned", .what = taken});
        const resource one = here.add(taken), box = here.add({{"type", "box"}});
        box.set(taken);
        here.self().set(taken);
        EXPECT_TRUE(here.find(taken));
        return true;
    });
    EXPECT_EQ(reopens(*database, taken, 1000), errc::ok);
    EXPECT_EQ(reopens(*database, taken, 1001, true), errc::ok);
    EXPECT_EQ(hosts::counted(on, "directory.refused"), 6u);
}

TEST_F(with_owners, all_that_an_attribute_has_must_allow_who_gives_it) {
    const auto database = process("database", "databases"), on7 = process("on7", "databases");
    const auto worker = process("worker", "workers");
    EXPECT_EQ(adds(*worker, {{"rack", "1"}}), errc::denied) << "whatever its value";
    EXPECT_EQ(adds(*database, {{"rack", "1"}}), errc::ok);
    EXPECT_EQ(adds(*database, {{"rack", "7"}}), errc::denied);
    EXPECT_EQ(adds(*on7, {{"rack", "7"}}), errc::ok);
    EXPECT_EQ(adds(*on7, {{"rack", "7"}, {"nobody's", ""}}), errc::denied);
    EXPECT_EQ(adds(*worker, {{"type", "databases"}, {"racks", "7"}}), errc::ok);
    // But for the directory's own engine.
    EXPECT_EQ(adds(on, {{"type", "database"}, {"rack", "7"}, {"nobody's", ""}}), errc::ok);
}

TEST_F(with_owners, who_only_searches_opens_a_context_without_what_he_says_of_it) {
    const auto reader = process("reader", "readers");
    EXPECT_EQ(opens(*reader, {{"type", "database"}}), errc::ok);
    EXPECT_EQ(reopens(*reader, {{"type", "database"}}, 1000, true), errc::ok);
    EXPECT_EQ(hosts::counted(on, "directory.refused"), 0u);
}

TEST_F(with_owners, who_is_refused_what_he_says_he_had_uses_up_no_ranges_of_ids) {
    const auto worker = process("worker", "workers");
    for (std::uint32_t range = 1000; range < 1000 + limits::max_reclaimed_ranges; ++range)
        EXPECT_EQ(reopens(*worker, {{"type", "database"}}, range), errc::denied);
    EXPECT_EQ(reopens(*worker, {{"type", "box"}}, 3000), errc::ok);
}

TEST_F(with_owners, an_attribute_that_cannot_be_is_refused_when_the_directory_is_made) {
    engine other(all.net.port("other"));
    for (const std::string& name : {std::string(), std::string(256, 'x')}) {
        const error why = error_of([&] {
            const directory_server unsafe(other, {.roles = {.owners_of = {{.name = name}}}});
        });
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_NE(std::string(why.what()).find("bytes, expected 1 to 255; example: {.name = "),
                  std::string::npos)
            << why.what();
    }
}

class closed_to_strangers : public with_roles {
protected:
    closed_to_strangers() : with_roles(1) {
        one.roles = {.members = allow_list{.groups = {"hosts"}},
                     .readers = allow_list{.groups = {"readers"}}};
    }
    directory_options one;
};

TEST_F(closed_to_strangers, a_directory_with_readers_lets_nobody_else_open_a_context) {
    engine on(all.net.port("closed"));
    all.identify("closed", "hosts");
    const directory_server server(on, one);
    const auto stranger = process("stranger", "strangers"), reader = process("reader", "readers");
    const auto opens = [&](engine& by) {
        return in(by, [&] {
            return code_of([&] { const context here(by, {.directory = "loop://closed"}); });
        });
    };
    EXPECT_EQ(opens(*stranger), errc::denied);
    EXPECT_EQ(opens(*reader), errc::ok);
    EXPECT_EQ(hosts::counted(on, "rpc.denied"), 1u);
}

TEST_F(closed_to_strangers, a_server_that_is_no_member_is_neither_joined_nor_believed) {
    // It has no roles itself, so it would take everybody in.
    engine impostor(all.net.port("impostor"));
    all.identify("impostor", "users");
    const directory_server lies(impostor, {.ring = {.others = {"loop://host0"}, .seed = 99}});
    all.net.run_for(5s);
    EXPECT_EQ(all.known_by(0), 1u);
    EXPECT_EQ(lies.servers(), 1u) << "it is told of nobody";
    EXPECT_GE(denied(), 1u);
    engine victim(all.net.port("victim"));
    all.identify("victim", "hosts");
    one.ring.others = {"loop://impostor"};
    one.ring.seed = 98;
    const directory_server joins(victim, one);
    all.net.run_for(5s);
    EXPECT_EQ(joins.servers(), 1u);
    EXPECT_EQ(lies.servers(), 1u) << "the victim has not introduced itself";
    EXPECT_GE(victim.counters().get("directory.refused").value(), 1u);
}

TEST_F(closed_to_strangers,
       an_address_that_a_member_tells_of_is_not_asked_unless_a_member_is_there) {
    engine impostor(all.net.port("impostor"));
    all.identify("impostor", "users");
    int asked = 0;
    impostor.define<in_ring::find>(library_name{in_ring::find_name},
                                   [&](ring_part, attribute_view) {
                                       ++asked;
                                       return part_answer{{resource_id{77}, {}, {}}, 0};
                                   });
    impostor.define<in_ring::ping>(library_name{in_ring::ping_name},
                                   [](std::uint64_t, std::uint32_t) {
                                       return alive_answer{true, 77, 0};
                                   });
    const auto teller = process("teller", "hosts");
    EXPECT_EQ(asks<in_ring::join>(*teller, in_ring::join_name,
                                  member{77, 1, {"loop://impostor"}, {}, {}}),
              errc::ok);
    EXPECT_EQ(all.known_by(0), 2u);
    EXPECT_FALSE(all.find(0, {{"type", "box"}}));
    EXPECT_EQ(asked, 0);
    EXPECT_GE(all.counted(0, "directory.refused"), 1u);
}

// ---- broadcasts

class signed_hosts : public testing::Test {
protected:
    std::shared_ptr<const credentials> named(const std::string& name) const {
        return lab.trust_of(lab.authority.issue({.name = name}));
    }
    test_lab lab;
    hosts all{
        3, {.by_medium = true, .trust = [this](const std::string& name) { return named(name); }}};
};

TEST_F(signed_hosts, meet_and_ask_each_other_by_signed_packets) {
    all.net.run_for(3s);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(all.known_by(i), 3u);
    all.add_resource(2, {{"type", "box"}});
    const auto took = all.in(0, [&](context& here) {
        (void)here.find({{"type", "box"}});
        const auto start = here.where().now();
        EXPECT_TRUE(here.find({{"type", "box"}}));
        return here.where().now() - start;
    });
    EXPECT_LT(took, 1ms) << "not by a tree, which waits 5 ms for the broadcast first";
    EXPECT_EQ(all.counted(1, "directory.packets_refused"), 0u);
    EXPECT_EQ(all.counted(1, "directory.packets_old"), 0u);
}

TEST_F(signed_hosts, take_no_packet_that_is_replayed_or_of_who_is_not_certified) {
    const auto at = all.net.port("attacker");
    const auto medium = all.net.broadcast("attacker");
    std::vector<std::vector<std::byte>> heard;
    medium->listen([&](const_bytes packet) { heard.emplace_back(packet.begin(), packet.end()); });
    all.net.run_for(3s);
    ASSERT_GE(heard.size(), 3u);
    medium->listen({});
    for (const auto& each : heard)
        EXPECT_TRUE(medium->send(each));
    all.net.run_for(1ms);
    // A host drops its own, and has heard the others' before.
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_GE(all.counted(i, "directory.packets_old"), heard.size() / 2) << i;
    const test_lab other;
    const auto forged = sign_broadcasts(medium, other.trust);
    const std::vector<std::byte> announcement =
        to_bytes(broadcast_packet{.from = 77, .addresses = {"loop://attacker"}});
    const std::uint64_t before = all.counted(0, "directory.packets_refused");
    EXPECT_TRUE(forged->send(announcement));
    EXPECT_TRUE(medium->send(announcement)) << "not signed at all";
    const std::uint64_t operations = all.net.operations();
    all.net.run_for(1ms);
    EXPECT_EQ(all.counted(0, "directory.packets_refused"), before + 2);
    EXPECT_LE(all.net.operations(), operations + 6) << "and nobody connects to the attacker";
}

TEST_F(signed_hosts, where_roles_name_members_take_packets_of_these_only) {
    engine on(all.net.port("picky"));
    const auto medium = all.net.broadcast("picky");
    const directory_server picky(on, {.ring = {.medium = medium, .trust = named("picky")},
                                      .roles = {.members = allow_list{.names = {"host7"}}}});
    all.net.run_for(3s);
    EXPECT_GE(on.counters().get("directory.packets_refused").value(), 6u);
    EXPECT_EQ(picky.servers(), 1u);
}

}  // namespace
}  // namespace amalgam

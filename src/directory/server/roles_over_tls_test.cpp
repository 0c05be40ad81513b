// Who may do what at a directory, over tcp+tls: identities are proved, or not, by real outsiders.
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/fabric/signed_broadcast.hpp>
#include <amalgam/tasks/channel.hpp>

#include "conformance/slow_build.hpp"
#include "directory/limits.hpp"
#include "directory/protocol/broadcast_packet.hpp"
#include "directory/protocol/procedures.hpp"
#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "rpc/loop_pair.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

using namespace detail;

/// Listens on this host, and hands what it hears to another address, or back to who sent it.
class middleman {
public:
    middleman() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in any{};
        any.sin_family = AF_INET;
        any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof any;
        EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), bytes), 0);
        EXPECT_EQ(::listen(listener_.get(), 8), 0);
        EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &bytes), 0);
        port_ = ntohs(any.sin_port);
    }
    ~middleman() {
        ends_ = true;
        if (thread_.joinable()) thread_.join();
    }
    std::string address() const { return "tcp+tls://127.0.0.1:" + std::to_string(port_); }
    /// Empty: back to the sender.
    void hand_to(const std::string& whom) {
        thread_ = std::thread([this, whom] { run(whom); });
    }
    int connections() const { return connections_; }

private:
    struct pair {
        std::unique_ptr<tcp_raw_peer> from, to;  // `to` null: the same.
    };
    static bool pass_on(tcp_raw_peer& from, tcp_raw_peer& to) {
        if (!from.has_something()) return true;
        const std::string heard = from.receive();
        return !heard.empty() && to.send(heard);
    }
    void run(const std::string& whom) {
        std::vector<pair> all;
        while (!ends_) {
            std::vector<pollfd> waits{{listener_.get(), POLLIN, 0}};
            for (const pair& each : all) {
                waits.push_back({each.from->fd(), POLLIN, 0});
                if (each.to) waits.push_back({each.to->fd(), POLLIN, 0});
            }
            (void)::poll(waits.data(), waits.size(), 10);
            if (waits[0].revents != 0) {
                unique_fd accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
                pair fresh{std::make_unique<tcp_raw_peer>(std::move(accepted)), nullptr};
                if (!whom.empty()) fresh.to = std::make_unique<tcp_raw_peer>(whom);
                all.push_back(std::move(fresh));
                ++connections_;
            }
            std::erase_if(all, [](const pair& each) {
                if (!each.to) return !pass_on(*each.from, *each.from);
                return !pass_on(*each.from, *each.to) || !pass_on(*each.to, *each.from);
            });
        }
    }

    unique_fd listener_;
    unsigned port_ = 0;
    std::atomic<bool> ends_{false};
    std::atomic<int> connections_{0};
    std::thread thread_;
};

class over_tls : public testing::Test {
protected:
    engine_options named(const char* name) const {
        return {.ports = {.trust = lab.trust_of(lab.authority.issue({.name = name}))}};
    }
    static std::uint64_t counted(engine& on, const char* name) { return counters_of(on)[name]; }

    test_lab lab;
    engine host{"tcp+tls://127.0.0.1:0", named("host")};
};

const ring_options quick{.period = std::chrono::milliseconds(20),
                         .claim_time = std::chrono::milliseconds(1)};
/// Begins as soon, and takes nobody for dead who on a busy machine is slow to answer.
const ring_options patient{.claim_time = quick.claim_time};

TEST_F(over_tls, a_stranger_who_hands_back_what_it_hears_is_not_let_in) {
    // What passed the shared secret: to listen where the victim joins, and to answer it with its
    // own words.
    for (const bool by_itself : {false, true}) {
        middleman stranger;
        engine victim{"tcp+tls://127.0.0.1:0", named("victim")};
        ring_options ring = quick;
        ring.others = {stranger.address()};
        const directory_server joins(victim, {.ring = ring});
        // Back on the same connection, or to the victim's own port, where its certificate is right.
        stranger.hand_to(by_itself ? std::string() : victim.address());
        // It has failed, and tries again; or it has joined itself, which makes no member.
        while (by_itself ? stranger.connections() < 2 : counted(victim, "rpc.served") < 2)
            std::this_thread::yield();
        EXPECT_EQ(joins.servers(), 1u);
        EXPECT_EQ(joins.contexts(), 0u);
        // Others are let in meanwhile.
        engine user{"tcp+tls://", named("user")};
        const context here{user, {.directory = victim.address()}};
        EXPECT_EQ(joins.contexts(), 1u);
    }
}

TEST_F(over_tls, a_stranger_in_the_middle_of_two_members_sees_no_more_than_their_connection) {
    ring_options ring = patient;
    const directory_server first(host, {.ring = ring});
    middleman stranger;
    stranger.hand_to(host.address());
    engine other{"tcp+tls://127.0.0.1:0", named("other")};
    ring.others = {stranger.address()};
    const directory_server second(other, {.ring = ring});
    while (first.servers() < 2 || second.servers() < 2)
        std::this_thread::yield();
    // It carries the bytes of the two, and is nobody itself.
    EXPECT_EQ(counted(host, "rpc.denied"), 0u);
    tcp_raw_peer own(host.address());
    EXPECT_FALSE(own.shake_hands());
    EXPECT_EQ(first.servers(), 2u);
}

TEST_F(over_tls, who_is_certified_to_read_cannot_register) {
    const directory_server directory(host, {.roles = {.contexts = allow_list{.names = {"worker"}},
                                                      .readers = allow_list{.names = {"reader"}}}});
    engine works{"tcp+tls://127.0.0.1:0", named("worker")}, reads{"tcp+tls://", named("reader")};
    engine other{"tcp+tls://", named("other")};
    context worker{works, {.directory = host.address()}};
    context reader{reads, {.directory = host.address()}};
    const resource box = worker.add({{"type", "box"}});
    EXPECT_TRUE(reader.find({{"type", "box"}}));
    const error why = error_of([&] { (void)reader.add({{"type", "box"}}); });
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_NE(std::string(why.what()).find("does not allow this call to reader"), std::string::npos)
        << why.what();
    EXPECT_EQ(directory.resources(), 3u);
    EXPECT_EQ(counted(host, "rpc.denied"), 1u);
    const error none = error_of([&] { context{other, {.directory = host.address()}}; });
    EXPECT_EQ(none.code(), errc::denied);
    EXPECT_NE(std::string(none.what()).find("does not allow this call to other"), std::string::npos)
        << none.what();
    // Nor who is certified by nobody that this lab trusts.
    const test_lab elsewhere;
    engine stranger{"tcp+tls://", {.ports = {.trust = elsewhere.trust}}};
    EXPECT_EQ(code_of([&] { context{stranger, {.directory = host.address()}}; }), errc::denied);
    EXPECT_EQ(directory.contexts(), 2u);
}

TEST_F(over_tls, who_is_certified_as_a_worker_registers_and_becomes_no_database) {
    const attribute_list wanted{{"type", "database"}};
    const directory_server directory(
        host,
        {.roles = {.owners_of = {
                       {.name = "type", .value = "database", .who = {.names = {"database"}}}}}});
    engine works{"tcp+tls://127.0.0.1:0", named("worker")};
    engine in_database{"tcp+tls://127.0.0.1:0", named("database")};
    context worker{works, {.directory = host.address()}};
    channel<resource_id> seen(10);
    const resource_watch watch = worker.watch(
        wanted, [&](const resource_change& change) { seen.try_push(change.which.id); });
    const resource box = worker.add({{"type", "box"}});
    const error why = error_of([&] { (void)worker.add(wanted); });
    EXPECT_EQ(why.code(), errc::denied);
    EXPECT_EQ(std::string(why.what())
                  .find("only database may give {type: \"database\"} to resources of this "
                        "directory, not worker;"),
              0u)
        << why.what();
    EXPECT_EQ(code_of([&] { box.set(wanted); }), errc::denied);
    EXPECT_EQ(code_of([&] { worker.self().set(wanted); }), errc::denied);
    const auto reopen = works.procedure<at_directory::reopen>(at_directory::reopen_name)
                            .on(works.lookup(host.address()));
    const resource_id another{number(box.id()) + 1};
    EXPECT_EQ(reopen(worker.id(), another, wanted).code, errc::denied);
    engine second{"tcp+tls://", named("worker")};
    EXPECT_EQ(code_of([&] {
                  const context here{second, {.directory = host.address(), .what = wanted}};
              }),
              errc::denied);
    EXPECT_EQ(counted(host, "directory.refused"), 5u);
    EXPECT_FALSE(worker.find(wanted));
    // The database is let in, and seen by the worker, before all others.
    context owner{in_database, {.directory = host.address()}};
    const resource database = owner.add(wanted);
    EXPECT_EQ(*seen.pop(), database.id());
    const auto found = worker.find(wanted);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, database.id());
    const resource later = owner.add({{"type", "box"}});
    later.set(wanted);
    EXPECT_EQ(*seen.pop(), later.id());
    EXPECT_EQ(counted(host, "directory.refused"), 5u);
}

TEST_F(over_tls, who_is_not_certified_as_a_member_does_not_join_and_is_not_joined) {
    const directory_roles roles{.members = allow_list{.names = {"host", "second"}}};
    const directory_server first(host, {.ring = patient, .roles = roles});
    engine worker{"tcp+tls://127.0.0.1:0", named("worker")};
    ring_options ring = patient;
    ring.others = {host.address()};
    const directory_server impostor(worker, {.ring = ring});
    while (counted(host, "rpc.denied") == 0)
        std::this_thread::yield();
    EXPECT_EQ(first.servers(), 1u);
    EXPECT_EQ(impostor.servers(), 1u);
    engine on{"tcp+tls://127.0.0.1:0", named("second")};
    ring.others = {worker.address(), host.address()};
    const directory_server second(on, {.ring = ring, .roles = roles});
    while (first.servers() < 2 || counted(on, "directory.refused") == 0)
        std::this_thread::yield();
    EXPECT_EQ(second.servers(), 2u);
    EXPECT_EQ(impostor.servers(), 1u) << "whoever joined it would be known to it";
}

TEST_F(over_tls, nobody_sends_as_a_resource_of_another_certified_process) {
    using send_as = errc(resource_id, resource_id, std::int32_t, const_bytes);
    const directory_server directory(host);
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")}, in_r{"tcp+tls://127.0.0.1:0", named("r")};
    engine forger{"tcp+tls://127.0.0.1:0", named("forger")};
    context a{in_a, {.directory = host.address()}}, r{in_r, {.directory = host.address()}};
    const resource known = a.add({{"type", "known"}}), unknown = a.add({{"type", "unknown"}});
    const resource box = r.add({{"type", "box"}});
    const auto forge = [&](const resource& from) {
        return forger.procedure<send_as>("amalgam.directory.message")
            .on(forger.lookup(in_r.address()))(from.id(), box.id(), 1, {});
    };
    box.send(known.id(), 0, "so that it knows where that is");
    EXPECT_EQ(forge(known), errc::denied);
    EXPECT_FALSE(box.try_receive());
    // Of one that it has never heard of it keeps what comes until the directory has answered.
    const errc first = forge(unknown);
    EXPECT_TRUE(first == errc::ok || first == errc::overloaded) << name(first);
    while (forge(unknown) != errc::denied)
        EXPECT_FALSE(box.try_receive());
    EXPECT_FALSE(box.try_receive());
    EXPECT_GE(counted(in_r, "context.forged"), 3u);
    // The owner can, by calls, mail and long messages.
    for (const resource* each : {&known, &unknown}) {
        each->send(box.id(), 2, "mine");
        EXPECT_EQ(box.receive({.from = each->id()}).content.text(), "mine");
        each->post(box.id(), 3, "mine");
        EXPECT_EQ(box.receive({.from = each->id()}).tag, 3);
        each->send(box.id(), 4, std::string(100000, 'x'));
        EXPECT_EQ(box.receive({.from = each->id()}).tag, 4);
    }
}

TEST_F(over_tls, nobody_sends_as_a_resource_whose_owner_cannot_be_reached) {
    using send_as = errc(resource_id, resource_id, std::int32_t, const_bytes);
    const directory_server directory(host);
    // Its certificate names no host, so that nobody who connects to it believes it.
    const auto connects_only = lab.authority.issue({.name = "a", .hosts = ""});
    engine in_a{"tcp+tls://127.0.0.1:0", {.ports = {.trust = lab.trust_of(connects_only)}}};
    engine in_r{"tcp+tls://127.0.0.1:0", named("r")}, silent{"tcp+tls://", named("s")};
    engine forger{"tcp+tls://127.0.0.1:0", named("forger")};
    context a{in_a, {.directory = host.address()}}, r{in_r, {.directory = host.address()}};
    context s{silent, {.directory = host.address()}};
    const resource owned = a.add({{"type", "owned"}}), box = r.add({{"type", "box"}});
    const auto send = [&] {
        return forger.procedure<send_as>("amalgam.directory.message")
            .on(forger.lookup(in_r.address()))(owned.id(), box.id(), 1, {});
    };
    (void)send();  // Kept, and hidden, until the owner was not reached.
    while (counted(in_r, "context.forged") == 0)
        EXPECT_FALSE(box.try_receive());
    EXPECT_FALSE(box.try_receive());
    EXPECT_THROW(box.send(owned.id(), 0, "nor is he who gets the answers"), error);
    // Who listens nowhere is still heard.
    const resource heard = s.add({{"type", "heard"}});
    heard.send(box.id(), 2, "mine");
    EXPECT_EQ(box.receive({.from = heard.id()}).content.text(), "mine");
}

/// Who owns a resource, who receives, and another, who would send as the owner.
struct one_who_renews {
    engine& owner;
    engine& receiver;
    engine& other;
    const std::shared_ptr<const credentials> of_owner;
};

/// The owner sends while `renew` replaces his key and a connection to him stands; the other cannot.
template <typename Renew>
void expect_he_alone_sends_on(const std::string& directory, const one_who_renews& all,
                              Renew renew) {
    using send_as = errc(resource_id, resource_id, std::int32_t, const_bytes);
    context a{all.owner, {.directory = directory}}, r{all.receiver, {.directory = directory}};
    const resource known = a.add({{"type", "known"}}), box = r.add({{"type", "box"}});
    // The receiver knows the owner by the first key, and the owner has no connection to it.
    (void)all.receiver.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping")
        .on(r.lookup(known.id()))(0);
    const auto forged = [&] { return counters_of(all.receiver)["context.forged"]; };
    const auto expect_refused = [&] {
        const std::uint64_t before = forged();
        // Kept, and hidden, until the owner has said that it is not his.
        (void)all.other.procedure<send_as>("amalgam.directory.message")
            .on(all.other.lookup(all.receiver.address()))(known.id(), box.id(), 1, {});
        while (forged() == before)
            EXPECT_FALSE(box.try_receive());
        EXPECT_FALSE(box.try_receive());
    };
    const auto expect_arrives = [&](std::int32_t tag) {
        const std::uint64_t before = forged();
        for (;;) {
            if (const auto got = box.try_receive({.from = known.id()})) {
                EXPECT_EQ(got->tag, tag);
                return;
            }
            ASSERT_EQ(forged(), before) << "taken for forged";
            this_task::yield();
        }
    };
    expect_refused();
    renew();
    ASSERT_TRUE(all.of_owner->reload());
    ASSERT_NE(all.receiver.lookup(all.owner.address()).who().key, all.of_owner->self().key)
        << "a connection stands";
    for (std::int32_t i = 2; i < 10; ++i) {
        known.post(box.id(), i, "mine");
        ASSERT_NO_FATAL_FAILURE(expect_arrives(i));
    }
    known.send(box.id(), 10, std::string(100000, 'x'));
    EXPECT_EQ(box.receive({.from = known.id()}).tag, 10);
    box.send(known.id(), 11, "and gets the answer");
    EXPECT_EQ(known.receive({.tag = 11}).content.text(), "and gets the answer");
    expect_refused();
}

TEST_F(over_tls, who_replaces_his_key_still_sends_and_nobody_else_of_his_name_does) {
    const directory_server directory(host);
    const temp_folder files;
    const std::string folder = files.with("a");
    lab.authority.write_folder(folder, lab.authority.issue({.name = "a"}));
    const auto of_a = credentials::from_folder(folder);
    engine in_a{"tcp+tls://127.0.0.1:0", {.ports = {.trust = of_a}}};
    engine in_r{"tcp+tls://127.0.0.1:0", named("r")}, namesake{"tcp+tls://", named("a")};
    expect_he_alone_sends_on(host.address(), {in_a, in_r, namesake, of_a}, [&] {
        lab.authority.write_folder(folder, lab.authority.issue({.name = "a"}));
    });
}

TEST(over_tls_by_trusted_keys, who_replaces_his_key_still_sends_and_no_other_that_is_trusted_does) {
    const temp_folder files;
    const auto folder = [&](const std::string& name) { return files.with(name); };
    const std::string all[] = {"host", "a", "r", "other", "new"};
    for (const std::string& each : all)
        make_key(folder(each), {.name = each, .self_signed = true});
    for (const std::string& each : all)
        for (const std::string& whom : all)
            (void)trust_authority(folder(each), folder(whom));
    const auto trusting = [&](const std::string& name) {
        return engine_options{.ports = {.trust = credentials::from_folder(folder(name))}};
    };
    const auto of_a = credentials::from_folder(folder("a"));
    engine host{"tcp+tls://127.0.0.1:0", trusting("host")};
    engine in_a{"tcp+tls://127.0.0.1:0", {.ports = {.trust = of_a}}};
    engine in_r{"tcp+tls://127.0.0.1:0", trusting("r")}, other{"tcp+tls://", trusting("other")};
    const directory_server directory(host);
    expect_he_alone_sends_on(host.address(), {in_a, in_r, other, of_a}, [&] {
        for (const char* each : {"/key.pem", "/certificate.pem"})
            std::filesystem::rename(folder("new") + each, folder("a") + each);
    });
}

TEST_F(over_tls, what_a_sender_says_before_he_is_known_arrives_in_order_once_he_is) {
    const directory_server directory(host);
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")}, in_r{"tcp+tls://127.0.0.1:0", named("r")};
    context a{in_a, {.directory = host.address()}}, r{in_r, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}});
    constexpr std::int32_t count = 200;
    for (int round = 0; round < 20; ++round) {
        const resource mail = a.add({{"type", "mail"}}), calls = a.add({{"type", "calls"}}),
                       lane = a.add({{"type", "lane"}}), large = a.add({{"type", "large"}});
        std::vector<future<void>> sent;
        for (std::int32_t i = 0; i < count; ++i) {
            mail.post(box.id(), i, "text");
            if (i % 20 == 0) calls.send(box.id(), i, "text");
            sent.push_back(lane.start_send(box.id(), i, a.take_buffer(4)));
        }
        large.send(box.id(), 1, std::string(100000, 'x'));
        EXPECT_EQ(box.receive({.from = large.id()}).content.size(), 100000u);
        for (std::int32_t i = 0; i < count; ++i) {
            EXPECT_EQ(box.receive({.from = mail.id()}).tag, i);
            if (i % 20 == 0) {
                EXPECT_EQ(box.receive({.from = calls.id()}).tag, i);
            }
            EXPECT_EQ(box.receive({.from = lane.id()}).tag, i);
        }
        for (auto& each : sent)
            each.get();
    }
    EXPECT_EQ(counted(in_r, "context.forged"), 0u);
}

TEST_F(over_tls, more_senders_than_are_asked_about_at_once_arrive_all_the_same) {
    const directory_server directory(host);
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")}, in_r{"tcp+tls://127.0.0.1:0", named("r")};
    context a{in_a, {.directory = host.address()}}, r{in_r, {.directory = host.address()}};
    const resource box = r.add({{"type", "box"}});
    // Connected first: a handshake has to end in time, and under ThreadSanitizer, which clears
    // memory for each new ULT, 256 lanes at once leave it none.
    a.add({{"type", "first"}}).send(box.id(), 0, "");
    std::vector<resource> all;
    std::vector<future<void>> sent;
    const std::size_t count = limits::max_senders_looked_up * (conformance::slow_build ? 2 : 4);
    for (std::size_t i = 0; i < count; ++i)
        all.push_back(a.add({{"type", "one"}}));
    for (const resource& each : all)
        for (std::int32_t i = 0; i < 3; ++i)
            sent.push_back(each.start_send(box.id(), i, a.take_buffer(4)));
    for (auto& each : sent)  // Throws for one that will not arrive, which receive() would wait for.
        each.get();
    for (const resource& each : all)
        for (std::int32_t i = 0; i < 3; ++i)
            EXPECT_EQ(box.receive({.from = each.id()}).tag, i);
}

TEST_F(over_tls, nobody_but_the_receiver_says_that_a_message_did_not_arrive) {
    using undelivered = void(resource_id, resource_id, std::int32_t, errc);
    const directory_server directory(host);
    engine in_a{"tcp+tls://127.0.0.1:0", named("a")}, in_r{"tcp+tls://127.0.0.1:0", named("r")};
    engine liar{"tcp+tls://", named("liar")};
    channel<std::int32_t> told(10);
    context a{in_a, {.directory = host.address(), .on_undelivered = [&](const auto& which) {
                         told.try_push(std::int32_t(which.tag));
                     }}};
    context r{in_r, {.directory = host.address()}};
    const resource from = a.add({{"type", "from"}}), to = r.add({{"type", "to"}});
    from.send(to.id(), 1, "so that it knows where that is");
    const auto tells = [&](engine& by, std::int32_t tag) {
        by.procedure<undelivered>("amalgam.directory.undelivered")
            .on(by.lookup(in_a.address()))(from.id(), to.id(), tag, errc::not_found);
    };
    tells(liar, 7);
    tells(in_r, 8);
    EXPECT_EQ(*told.pop(), 8);
    EXPECT_EQ(counted(in_a, "context.forged"), 1u);
}

/// A network on which each hears all others, and what they send themselves.
class hub : public std::enable_shared_from_this<hub> {
public:
    std::shared_ptr<broadcast_medium> station() {
        return std::make_shared<end>(shared_from_this());
    }

private:
    struct end final : broadcast_medium {
        explicit end(std::shared_ptr<hub> of) : on(std::move(of)) {}
        ~end() override { listen({}); }
        void listen(receiver function) override {
            const std::lock_guard one(on->lock_);
            if (function)
                on->hear_[this] = std::move(function);
            else
                on->hear_.erase(this);
        }
        bool send(const_bytes packet) noexcept override {
            const std::lock_guard one(on->lock_);
            const std::vector<std::byte> copy(packet.begin(), packet.end());
            for (const auto& [whose, hears] : on->hear_)
                hears(copy);
            return true;
        }
        std::size_t max_bytes() const noexcept override { return 1400; }
        const std::shared_ptr<hub> on;
    };

    std::mutex lock_;
    std::map<const end*, broadcast_medium::receiver> hear_;
};

TEST_F(over_tls, a_member_cannot_have_others_met_by_announcing_them) {
    const auto network = std::make_shared<hub>();
    const auto on_network = [&](const engine_options& as) {
        ring_options ring = quick;
        ring.medium = network->station();
        ring.trust = as.ports.trust;
        return directory_options{.ring = ring};
    };
    const engine_options one = named("one"), two = named("two");
    engine in_one{"tcp+tls://127.0.0.1:0", one}, in_two{"tcp+tls://127.0.0.1:0", two};
    engine in_other{"tcp+tls://127.0.0.1:0", named("other")};
    const directory_server asked(in_one, on_network(one)), other(in_other, {.ring = quick});

    const auto liar = sign_broadcasts(network->station(), named("liar").ports.trust);
    broadcast_packet lie;
    lie.from = 12345;
    lie.addresses = {in_other.address()};
    while (counted(in_one, "directory.refused") == 0 && asked.servers() == 1) {
        (void)liar->send(to_bytes(lie));
        std::this_thread::yield();
    }
    EXPECT_GE(counted(in_one, "directory.refused"), 1u);
    EXPECT_EQ(asked.servers(), 1u);
    // Who announces himself is met meanwhile.
    const directory_server honest(in_two, on_network(two));
    while (asked.servers() < 2 || honest.servers() < 2)
        std::this_thread::yield();
    EXPECT_EQ(other.servers(), 1u);
}

TEST_F(over_tls, a_member_cannot_ask_by_broadcast_under_the_key_of_another) {
    const auto network = std::make_shared<hub>();
    const engine_options one = named("one"), two = named("two");
    engine in_one{"tcp+tls://127.0.0.1:0", one}, in_two{"tcp+tls://127.0.0.1:0", two};
    const auto on_network = [&](const engine_options& as) {
        ring_options ring = quick;
        ring.medium = network->station();
        ring.trust = as.ports.trust;
        return directory_options{.ring = ring};
    };
    // Its announcements tell everybody its key in the ring.
    const auto liar = sign_broadcasts(network->station(), named("liar").ports.trust);
    std::atomic<std::uint64_t> key_of_two{0};
    listen_to_signed(*liar, [&](const_bytes bytes, const identity& by) {
        const auto packet = parse_packet(bytes);
        if (packet && by.name == "two") key_of_two = packet->from;
    });
    const directory_server first(in_one, on_network(one)), second(in_two, on_network(two));
    while (key_of_two == 0 || first.servers() < 2 || second.servers() < 2)
        std::this_thread::yield();
    liar->listen({});

    EXPECT_EQ(counted(in_one, "directory.refused"), 0u) << "of those who are what they say";
    broadcast_packet lie;
    lie.what = broadcast_packet::kind::find;
    lie.from = key_of_two;
    lie.query = {{"type", "anything"}};
    // Else the watchdog ends this.
    while (counted(in_one, "directory.refused") == 0) {
        (void)liar->send(to_bytes(lie));
        std::this_thread::yield();
    }
    EXPECT_EQ(counted(in_two, "directory.refused"), 0u) << "took its own key for another's";
}

TEST_F(over_tls, a_medium_whose_packets_would_not_be_signed_is_refused) {
    loop_network net;
    const auto station = net.port("station");
    const auto medium = net.broadcast("station");
    for (const char* at :
         {"tcp+tls://127.0.0.1:0", "ofi+tcp+tls://127.0.0.1:0", "ucx+tcp+tls://127.0.0.1:0"}) {
        std::optional<engine> on;
        try {
            on.emplace(at, named("node"));
        } catch (const error& why) {
            EXPECT_NE(why.code(), errc::invalid) << why.what();
            continue;  // The library is not installed.
        }
        const error why =
            error_of([&] { const directory_server unsafe(*on, {.ring = {.medium = medium}}); });
        EXPECT_EQ(why.code(), errc::invalid) << at;
        EXPECT_NE(std::string(why.what())
                      .find("its broadcasts would not be signed; expected ring_options::trust"),
                  std::string::npos)
            << at << why.what();
    }
}

}  // namespace
}  // namespace amalgam

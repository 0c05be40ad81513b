// Ports of two users: processes of this one, and children that become another. Only root can do
// that.
#include "fabric/transports/shm/users.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <amalgam/fabric/identity.hpp>

#include "conformance/child_process.hpp"
#include "fabric/limits.hpp"
#include "fabric/transports/shm/listener.hpp"
#include "fabric/transports/shm/memory/layout.hpp"
#include "fabric/transports/shm/port.hpp"
#include "fabric/transports/shm/raw_peer.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

using conformance::channel;
using conformance::child_process;
using testing_support::pattern;

constexpr uid_t other = 4321;

/// A child that is another user before it does anything.
child_process as_other(const std::function<int(channel&)>& body) {
    return child_process([body](channel& parent) {
        if (::setresgid(other, other, other) != 0 || ::setresuid(other, other, other) != 0)
            return 77;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Lost with the user.
        return body(parent);
    });
}

class shm_users_test : public testing::Test {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "only root can start processes of another user";
        if (as_other([](channel&) { return 0; }).join() != 0)
            GTEST_SKIP() << "this namespace has no other user";
    }
    /// Makes progress until the child has said something.
    static std::string hear(child_process& from, shm_test_port& port) {
        std::optional<std::string> text;
        move_until({&port}, [&] { return (text = from.line().overhear()).has_value(); });
        return *text;
    }
};

TEST(shm_users, are_numbers_with_commas_or_any) {
    EXPECT_TRUE(parse_shm_users("any")->have(7));
    const shm_users some = parse_shm_users("0,1000,4294967294").value();
    EXPECT_TRUE(some.have(0) && some.have(1000) && some.have(4294967294));
    EXPECT_FALSE(some.have(1));
    EXPECT_EQ(some.text(), "0,1000,4294967294");
    for (const char* wrong : {"", ",", "1,", ",1", "-1", "1 ", "alice", "4294967295", "any,1"})
        EXPECT_FALSE(parse_shm_users(wrong)) << wrong;
    EXPECT_TRUE(shm_users{}.are_none());
}

TEST(shm_users, wrong_options_are_refused_in_one_sentence) {
    const auto opened = transport_registry::native().open("shm://?users=alice");
    EXPECT_EQ(opened.sentence(),
              "uri \"shm://?users=alice\": users is \"alice\", but must be any, or users' numbers "
              "with commas; example: shm://server?users=1000,1001");
    shm_test_port port("shm://");
    const std::string other_user = "shm://x?uid=" + std::to_string(::geteuid() + 1);
    const auto found = port.end().lookup(other_user);
    EXPECT_EQ(found.code(), errc::denied);
    EXPECT_EQ(found.sentence(), "\"" + other_user +
                                    "\": this port connects with processes of its own user only; "
                                    "open it with the option users; example: shm://?users=" +
                                    std::to_string(::geteuid() + 1));
    EXPECT_EQ(port.end().lookup("shm://x?uid=me").code(), errc::invalid);
}

TEST(shm_users, own_number_in_an_address_is_no_other_user) {
    shm_test_port here("shm://"), there("shm://?users=" + std::to_string(::geteuid() + 1));
    EXPECT_TRUE(there.end().address().ends_with("?uid=" + std::to_string(::geteuid())));
    EXPECT_NE(there.end().explain().find("only processes of this user and of users " +
                                         std::to_string(::geteuid() + 1) + " connect."),
              std::string::npos)
        << there.end().explain();
    const peer_id to = here.reach(there);
    const std::vector<std::byte> some = pattern(100);
    here.send(to, 1, some);
    move_until({&here, &there}, [&] { return !there.tags.empty(); });
    EXPECT_EQ(there.last, some);
    const std::string address = there.end().address();
    EXPECT_EQ(here.end().lookup(address.substr(0, address.find('?'))).value(), to);
}

TEST_F(shm_users_test, exchange_everything_once_both_allow_it) {
    constexpr std::size_t size = 300'000;
    child_process client = as_other([](channel& parent) {
        const std::string address = parent.hear();
        const std::string hex = parent.hear();
        shm_test_port here("shm://?users=0");
        const peer_id there = here.end().lookup(address).value();
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{30'000}, size}) {
            const std::vector<std::byte> some = pattern(bytes);
            here.tags.clear();
            here.send(there, bytes, some);
            move_until({&here}, [&] { return !here.tags.empty() || !here.losses.empty(); });
            EXPECT_EQ(here.last, some);
        }
        EXPECT_EQ(here.end().who(there).uid, 0u);
        EXPECT_EQ(here.end().who(there).pid, ::getppid());
        std::array<std::byte, remote_key::wire_bytes> wire;
        for (std::size_t i = 0; i < wire.size(); ++i)
            wire[i] = static_cast<std::byte>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
        const remote_key key = remote_key::decode(wire);
        std::vector<std::byte> put = pattern(size, 3), got(size);
        const const_bytes from = put;
        const mutable_bytes into = got;
        recorded first, second, third;
        std::uint64_t old = 1;
        const auto end = [&](posted how, recorded& op) {
            if (how == posted::pending) move_until({&here}, [&] { return op.runs > 0; });
            EXPECT_TRUE(op.what.ok()) << to_string(op.what);
        };
        end(here.end().post_put(there, {&from, 1}, key, 8, first), first);
        end(here.end().post_get(there, {&into, 1}, key, 8, second), second);
        EXPECT_EQ(got, put);
        end(here.end().post_fetch_add(there, key, 0, 5, &old, third), third);
        EXPECT_EQ(old, 0u);
        parent.say(here.end().explain());
        return 0;
    });
    shm_test_port here("shm://?users=1,4321");
    here.echo = true;
    shared_block block = here.end().allocate(size + 8).value();
    std::fill(block.bytes().begin(), block.bytes().end(), std::byte{0});
    const region target = here.end().open_region(block.bytes(), access::read_write).value();
    std::string hex;
    for (const std::byte one : target.key().encode())
        hex += fmt::format("{:02x}", static_cast<unsigned>(one));
    client.line().say(here.end().address());
    client.line().say(hex);
    const std::string told = hear(client, here);
    EXPECT_EQ(client.join(), 0);
    EXPECT_NE(told.find("With processes of other users they go through the ring, always."),
              std::string::npos)
        << told;
    EXPECT_EQ(block.bytes()[0], std::byte{5});
    const std::vector<std::byte> put = pattern(size, 3);
    EXPECT_TRUE(std::equal(put.begin(), put.end(), block.bytes().begin() + 8));
}

TEST_F(shm_users_test, are_known_by_the_word_of_the_kernel) {
    child_process client = as_other([](channel& parent) {
        shm_test_port here("shm://?users=0");
        const std::vector<std::byte> some = pattern(8);
        here.send(here.end().lookup(parent.hear()).value(), 1, some);
        move_until({&here}, [&] { return parent.overhear().has_value(); });
        return 0;
    });
    shm_test_port here("shm://?users=any");
    client.line().say(here.end().address());
    move_until({&here}, [&] { return !here.tags.empty(); });
    const identity who = here.end().who(here.from);
    EXPECT_EQ(who.kind, identity_kind::process);
    EXPECT_EQ(who.uid, other);
    EXPECT_EQ(who.gid, other);
    EXPECT_EQ(who.pid, client.pid());
    EXPECT_TRUE(here.end().peer_address(here.from).ends_with("?uid=4321"));
    client.line().say("done");
    EXPECT_EQ(client.join(), 0);
}

TEST_F(shm_users_test, are_denied_unless_the_port_lets_them_in) {
    for (const char* where : {"shm://", "shm://?users=4322"}) {
        SCOPED_TRACE(where);
        child_process client = as_other([](channel& parent) {
            shm_test_port here("shm://?users=0");
            const std::vector<std::byte> some = pattern(8);
            const peer_id there = here.end().lookup(parent.hear()).value();
            here.send(there, 1, some);
            move_until({&here}, [&] { return !here.losses.empty(); });
            parent.say(name(here.losses.front().code));
            return 0;
        });
        shm_test_port here(where);
        const std::string address = here.end().address();
        client.line().say(address.find('?') == std::string::npos ? address + "?uid=0" : address);
        EXPECT_EQ(hear(client, here), "denied");
        EXPECT_EQ(client.join(), 0);
        EXPECT_TRUE(here.tags.empty());
        EXPECT_NE(here.end().explain().find("Refused 1 connections of users who are not let in."),
                  std::string::npos)
            << here.end().explain();
    }
}

TEST_F(shm_users_test, who_took_a_name_with_a_number_that_is_not_his_is_nobody) {
    child_process liar = as_other([](channel& parent) {
        // As listen_at() of user 0 would.
        sockaddr_un at{};
        at.sun_family = AF_UNIX;
        const std::string name = "amalgam-shm/0/taken-" + std::to_string(::getpid());
        std::memcpy(at.sun_path + 1, name.data(), name.size());
        const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
        const auto bytes =
            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&at), bytes), 0);
        EXPECT_EQ(::listen(socket, 5), 0);
        parent.say("shm://" + name.substr(name.rfind('/') + 1));
        parent.hear();
        return 0;
    });
    const std::string address = liar.line().hear();
    shm_test_port here("shm://?users=any");
    const std::vector<std::byte> some = pattern(8);
    here.send(here.end().lookup(address).value(), 1, some);
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(here.losses.front().code, errc::unreachable);
    liar.line().say("done");
    EXPECT_EQ(liar.join(), 0);
}

TEST_F(shm_users_test, see_nothing_of_the_memory_of_a_port_and_cannot_write_to_what_they_see) {
    child_process outsider = as_other([](channel& parent) {
        shm_raw_peer peer(parent.hear());
        peer.say(peer.proper(), peer.pair_memory(), peer.registrations_memory());
        shm_received_hello answer;
        while (receive_hello(peer.socket(), false, answer) == shm_hearing::nothing_yet) {
        }
        const int fd = answer.registrations.get();
        const shm_mapping seen =
            shm_mapping::of(fd, 0, shm_registrations_layout::bytes, /*writable=*/false);
        EXPECT_TRUE(std::all_of(seen.data() + shm_page_bytes, seen.data() + seen.bytes(),
                                [](std::byte one) { return one == std::byte{0}; }));
        EXPECT_FALSE(shm_mapping::of(fd, 0, shm_registrations_layout::bytes, /*writable=*/true));
        const std::string path = "/proc/self/fd/" + std::to_string(fd);
        EXPECT_LT(::open(path.c_str(), O_RDWR | O_CLOEXEC), 0);
        EXPECT_EQ(errno, EACCES);
        parent.say("seen");
        return 0;
    });
    shm_test_port here("shm://?users=4321");
    std::vector<std::byte> bytes(100);
    const region target = here.end().open_region(bytes, access::read_write).value();
    outsider.line().say(here.end().address());
    EXPECT_EQ(hear(outsider, here), "seen");
    EXPECT_EQ(outsider.join(), 0);
}

/// A receiver that keeps what it was handed, and looks again once the sender has changed the ring.
struct twice final : message_sink {
    explicit twice(channel& to) : sender(to) {}
    void on_message(message& one) noexcept override {
        const const_bytes now = one.bytes();
        first.assign(now.begin(), now.end());
        sender.say("change it");
        sender.hear();
        second.assign(now.begin(), now.end());
        seen = true;
    }
    void on_peer_down(peer_id, status) noexcept override {}
    channel& sender;
    std::vector<std::byte> first, second;
    bool seen = false;
};

TEST_F(shm_users_test, cannot_change_what_was_delivered) {
    for (const std::size_t bytes : {std::size_t{20}, std::size_t{5000}}) {
        SCOPED_TRACE(bytes);
        child_process outsider = as_other([bytes](channel& parent) {
            shm_raw_peer peer(parent.hear());
            peer.greet();
            const shm_mapping all =
                shm_mapping::of(peer.pair_memory(), 0, shm_pair_layout::bytes, /*writable=*/true);
            peer.write(frame_kind::unexpected, static_cast<std::uint32_t>(bytes), pattern(bytes));
            peer.ring();
            parent.hear();
            std::memset(all.data() + shm_pair_layout::ring_to_acceptor, 0xee,
                        limits::shm_ring_bytes);
            parent.say("changed");
            parent.hear();
            return 0;
        });
        shm_test_port here("shm://?users=4321");
        twice sink(outsider.line());
        here.end().set_sink(&sink);
        outsider.line().say(here.end().address());
        move_until({&here}, [&] { return sink.seen; });
        here.end().set_sink(nullptr);
        EXPECT_EQ(sink.first, pattern(bytes));
        EXPECT_EQ(sink.second, sink.first);
        outsider.line().say("done");
        EXPECT_EQ(outsider.join(), 0);
    }
}

TEST_F(shm_users_test, cannot_hold_up_a_region_by_saying_that_they_copy) {
    child_process outsider = as_other([](channel& parent) {
        shm_raw_peer peer(parent.hear());
        peer.greet();
        peer.words().touched.store(shm_touched::region(std::stoull(parent.hear()), true));
        peer.words().touching.store(1);
        parent.say("copying");
        parent.hear();
        peer.write(frame_kind::unexpected, 8, pattern(8));
        peer.ring();
        parent.hear();
        return 0;
    });
    port_options patient;
    patient.silence_limit = std::chrono::hours(1);
    shm_test_port here("shm://?users=4321", patient);
    std::vector<std::byte> bytes(100);
    region target = here.end().open_region(bytes, access::read_write).value();
    outsider.line().say(here.end().address());
    outsider.line().say(std::to_string(target.key().region));
    EXPECT_EQ(hear(outsider, here), "copying");
    target = {};  // Would take the limit.
    outsider.line().say("go on");
    move_until({&here}, [&] { return !here.tags.empty(); });
    outsider.line().say("done");
    EXPECT_EQ(outsider.join(), 0);
}

TEST_F(shm_users_test, who_connect_and_say_nothing_leave_room_for_this_users_processes) {
    child_process crowd = as_other([](channel& parent) {
        const std::string name = uri::parse(parent.hear()).name;
        std::vector<unique_fd> all;
        for (std::size_t i = 0; i < 2 * limits::shm_max_pending; ++i)
            all.push_back(connect_to(name, 0));
        parent.say("here");
        parent.hear();
        return 0;
    });
    port_options patient;
    patient.silence_limit = std::chrono::hours(1);
    shm_test_port here("shm://?users=4321", patient), mine("shm://");
    crowd.line().say(here.end().address());
    EXPECT_EQ(hear(crowd, here), "here");
    const std::vector<std::byte> some = pattern(8);
    mine.send(mine.reach(here), 1, some);
    move_until({&here, &mine}, [&] { return !here.tags.empty(); });
    crowd.line().say("done");
    EXPECT_EQ(crowd.join(), 0);
}

TEST_F(shm_users_test, who_connect_again_and_again_are_taken_some_at_a_time) {
    constexpr int many = 3 * limits::shm_accepts_at_once;
    shm_listener all = shm_listener::open("", {}).value();
    child_process crowd = as_other([](channel& parent) {
        const std::string name = parent.hear();
        std::vector<unique_fd> held;
        for (int i = 0; i < many; ++i)
            held.push_back(connect_to(name, 0));
        parent.say("here");
        parent.hear();
        return 0;
    });
    crowd.line().say(all.name());
    EXPECT_EQ(crowd.line().hear(), "here");
    int most = limits::shm_accepts_at_once;
    EXPECT_EQ(all.accept({}, most), nullptr);
    EXPECT_EQ(most, 0);
    EXPECT_EQ(all.refused(), std::size_t{limits::shm_accepts_at_once})
        << "and then the port looks after its connections";
    most = many;
    EXPECT_EQ(all.accept({}, most), nullptr);
    EXPECT_EQ(all.refused(), std::size_t{many});
    crowd.line().say("done");
    EXPECT_EQ(crowd.join(), 0);
}

TEST_F(shm_users_test, have_so_many_connections_and_no_more_until_one_ends) {
    child_process crowd = as_other([](channel& parent) {
        const std::string address = parent.hear();
        const auto became = [&](shm_raw_peer& peer) {
            peer.say(peer.proper(), peer.pair_memory(), peer.registrations_memory());
            shm_received_hello answer;
            while (receive_hello(peer.socket(), false, answer) == shm_hearing::nothing_yet) {
            }
            return static_cast<errc>(answer.said.refused);
        };
        std::vector<std::unique_ptr<shm_raw_peer>> all;
        for (int i = 0; i < 3; ++i) {
            all.push_back(std::make_unique<shm_raw_peer>(address));
            EXPECT_EQ(became(*all.back()), errc::ok);
        }
        shm_raw_peer more(address);
        EXPECT_EQ(became(more), errc::overloaded);
        all.pop_back();
        for (errc how = errc::overloaded; how != errc::ok;) {  // Until the port has seen that.
            shm_raw_peer again(address);
            how = became(again);
            EXPECT_TRUE(how == errc::ok || how == errc::overloaded);
        }
        parent.say("done");
        return 0;
    });
    shm_port_settings settings;
    settings.users = parse_shm_users("any").value();
    settings.most_of_one_user = 3;
    shm_test_port here(shm_port::open("", settings, {}).value()), mine("shm://");
    crowd.line().say(here.end().address());
    EXPECT_EQ(hear(crowd, here), "done");
    EXPECT_EQ(crowd.join(), 0);
    const std::vector<std::byte> some = pattern(8);
    mine.send(mine.reach(here), 1, some);
    move_until({&here, &mine}, [&] { return !here.tags.empty(); });
}

TEST(shm_bells, of_one_who_rings_all_the_time_are_taken_some_at_a_time) {
    shm_test_port here("shm://");
    shm_raw_peer peer(here.end().address());
    greet(peer, here);
    int rung = 0;
    while (::send(peer.socket(), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
        ++rung;
    ASSERT_GT(rung, 128);
    const auto left = [&] {
        int bytes = 0;
        ::ioctl(peer.socket(), SIOCOUTQ, &bytes);
        return bytes;
    };
    const int before = left();
    move_until({&here}, [&] { return left() < before; });
    EXPECT_GT(left(), 0);
    move_until({&here}, [&] { return left() == 0; });
}

}  // namespace
}  // namespace amalgam::detail

#include "fabric/transports/shm/port.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/log.hpp>

#include "contains.hpp"
#include "emulated.hpp"
#include "fabric/limits.hpp"
#include "fabric/transports/shm/raw_peer.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

failure refusal(const std::string& where) {
    auto opened = transport_registry::native().open(where);
    EXPECT_FALSE(opened) << where;
    return opened.why();
}

TEST(shm_port, option_that_means_nothing_is_refused_with_those_that_do) {
    for (const char* where : {"shm://?rma=fast", "shm://?speed=1", "shm://a?listen=maybe"}) {
        const failure why = refusal(where);
        EXPECT_EQ(why.what, errc::invalid);
        EXPECT_TRUE(contains(why.sentence, "rma=ring")) << why.sentence;
        EXPECT_TRUE(contains(why.sentence, "example: ")) << why.sentence;
    }
    EXPECT_TRUE(contains(refusal("shm://a?listen=no").sentence, "must not have a name"));
}

TEST(shm_port, name_in_use_is_refused_and_says_by_whom) {
    shm_test_port first("shm://");
    const failure why = refusal(first.end().address());
    EXPECT_EQ(why.what, errc::in_use);
    EXPECT_TRUE(contains(why.sentence, "process " + std::to_string(::getpid()))) << why.sentence;
}

TEST(shm_port, ports_without_a_name_have_different_ones) {
    shm_test_port a("shm://"), b("shm://");
    EXPECT_NE(a.end().address(), b.end().address());
}

TEST(shm_port, caller_that_does_not_listen_gets_its_answers) {
    shm_test_port server("shm://"), caller("shm://?listen=no");
    EXPECT_TRUE(caller.end().address().empty());
    EXPECT_FALSE(caller.end().can().listens);
    server.echo = true;
    const std::vector<std::byte> bytes(20, std::byte{3});
    caller.send(caller.reach(server), 9, bytes);
    move_until({&server, &caller}, [&] { return !caller.tags.empty(); });
    EXPECT_EQ(caller.last, bytes);
}

TEST(shm_port, explains_what_was_chosen_and_why) {
    shm_test_port ring("shm://?rma=ring");
    EXPECT_TRUE(contains(ring.end().explain(), "the URI says rma=ring")) << ring.end().explain();
    EXPECT_EQ(ring.end().can().rma, rma_mode::emulated);
    shm_test_port named("shm://");
    EXPECT_TRUE(contains(named.end().explain(), named.end().address().substr(6)));
}

/// Until it has none, as right after a connection came up.
void run_dry(shm_test_port& port, port_work& work) {
    while (work.has_work())
        port.progress();
}

TEST(shm_port, has_work_once_a_message_or_a_loss_is_there_and_none_when_it_was_taken) {
    shm_test_port here("shm://");
    auto there = std::make_optional<shm_test_port>("shm://");
    auto& work = dynamic_cast<port_work&>(here.end());
    const std::vector<std::byte> bytes(20);
    there->send(there->reach(here), 1, bytes);
    move_until({&here, &*there}, [&] { return !here.tags.empty(); });
    run_dry(here, work);
    const std::size_t taken = here.tags.size();
    for (int i = 0; i < 100; ++i) {
        there->send(there->reach(here), 2, bytes);
        EXPECT_TRUE(work.has_work());
        here.progress();
        EXPECT_EQ(here.tags.size(), taken + static_cast<std::size_t>(i) + 1);
    }
    there.reset();
    while (here.losses.empty())
        run_dry(here, work);
}

TEST(shm_port, has_no_work_while_its_only_link_is_paused_and_some_once_there_is_room) {
    port_options little;
    little.max_queued_bytes = 4096;
    shm_test_port here("shm://", little);
    shm_test_port there("shm://");
    auto& work = dynamic_cast<port_work&>(here.end());
    const std::vector<std::byte> bytes(1000);
    const const_bytes piece(bytes);
    const peer_id to = there.reach(here);
    there.send(to, 1, bytes);
    move_until({&here, &there}, [&] { return !here.tags.empty(); });
    std::array<recorded, 20> sent;
    for (recorded& each : sent)
        (void)there.end().post_send_expected(to, 2, gather(&piece, 1), each);
    while (here.end().usage().queued_bytes <= little.max_queued_bytes)
        here.progress();
    run_dry(here, work);
    EXPECT_LT(here.end().usage().queued_bytes, sent.size() * bytes.size()) << "it is not paused";
    std::vector<std::byte> into(bytes.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
        recorded received;
        (void)here.end().post_receive(here.from, 2, into, received);
        while (received.runs == 0) {
            if (work.has_work()) here.progress();
            there.progress();
        }
        EXPECT_EQ(received.bytes, bytes.size());
    }
}

TEST(shm_port, says_that_it_is_time_to_look_until_it_has_looked) {
    shm_test_port here("shm://");
    shm_test_port there("shm://");
    auto& work = dynamic_cast<port_work&>(here.end());
    const std::vector<std::byte> bytes(20);
    there.send(there.reach(here), 1, bytes);
    move_until({&here, &there}, [&] { return !here.tags.empty(); });
    for (int round = 0; round < 20; ++round) {
        run_dry(here, work);
        while (!work.has_work()) {
        }
        // Some loops ask twice in a turn.
        EXPECT_TRUE(work.has_work());
        EXPECT_TRUE(work.has_work());
    }
}

// With more links than are looked at in every turn, those that brought nothing for long take turns.
TEST(shm_port, has_work_when_one_of_many_links_brings_something_after_long_silence) {
    shm_test_port here("shm://");
    auto& work = dynamic_cast<port_work&>(here.end());
    std::vector<std::unique_ptr<shm_test_port>> callers;
    std::vector<peer_id> ids;
    const std::vector<std::byte> bytes(20);
    for (int i = 0; i < 20; ++i) {
        shm_test_port& one = *callers.emplace_back(std::make_unique<shm_test_port>("shm://"));
        ids.push_back(one.reach(here));
        one.send(ids.back(), 1, bytes);
        move_until({&here, &one}, [&] { return here.tags.size() == callers.size(); });
    }
    for (int i = 0; i < 5000; ++i)
        here.progress();
    for (std::size_t i = 0; i < callers.size(); ++i) {
        callers[i]->send(ids[i], 2, bytes);
        while (!work.has_work())
            continue;
        run_dry(here, work);
        EXPECT_EQ(here.tags.size(), callers.size() + i + 1);
    }
}

TEST(shm_port, peer_that_claims_to_have_read_what_was_never_written_is_dropped) {
    shm_test_port here("shm://");
    shm_raw_peer peer(here.end().address());
    greet(peer, here);
    const std::vector<std::byte> bytes(8);
    peer.write(frame_kind::unexpected, 8, bytes, 1);
    move_until({&here}, [&] { return !here.tags.empty(); });
    peer.words().consumed.store(~std::uint64_t{0} / 3);
    recorded done;
    const const_bytes out(bytes);
    while (here.losses.empty()) {
        (void)here.end().post_send(here.from, 1, gather(&out, 1), done);
        here.progress();
    }
    EXPECT_EQ(here.losses[0], errc::disconnected);
    peer.wait_until_dropped();
}

TEST(shm_port, one_that_sleeps_after_every_few_frames_leaves_the_barriers_to_its_senders) {
    shm_test_port here("shm://");
    shm_raw_peer peer(here.end().address());
    greet(peer, here);
    const auto sleeping = [&] {
        return peer.registrations().sleeping().load() % shm_registrations_layout::a_sleep;
    };
    const std::vector<std::byte> bytes(8);
    std::size_t sent = 0;
    const auto send = [&](int frames) {
        for (int i = 0; i < frames; ++i) {
            peer.write(frame_kind::unexpected, 8, bytes, 1);
            ++sent;
            move_until({&here}, [&] { return here.tags.size() == sent; });
        }
    };
    const auto fall_asleep = [&] {
        while (!here.end().prepare_to_sleep())
            here.progress();
    };
    constexpr auto asleep = shm_registrations_layout::asleep;
    constexpr auto fences = shm_registrations_layout::fences;
    EXPECT_EQ(sleeping(), fences) << "a new port has slept after every few frames, too";
    send(1);
    fall_asleep();
    EXPECT_EQ(sleeping(), asleep | fences);
    send(1);
    EXPECT_EQ(sleeping(), fences);
    send(2000);
    EXPECT_EQ(sleeping(), 0u);
    fall_asleep();
    EXPECT_EQ(sleeping(), asleep);
    for (int i = 0; i < 20; ++i) {
        send(1);
        fall_asleep();
    }
    EXPECT_EQ(sleeping(), asleep | fences);
}

TEST(shm_port, peer_of_an_older_version_is_told_so_and_sent_away) {
    shm_test_port here("shm://");
    shm_raw_peer peer(here.end().address());
    shm_hello older = peer.proper();
    older.version = shm_version - 1;
    peer.say(older, peer.pair_memory(), peer.registrations_memory());
    shm_received_hello answer;
    move_until({&here}, [&] {
        return receive_hello(peer.socket(), /*with_pair=*/false, answer) == shm_hearing::heard;
    });
    EXPECT_EQ(answer.said.refused, static_cast<std::uint32_t>(errc::mismatch));
    EXPECT_EQ(answer.said.version, shm_version);
    peer.wait_until_dropped();
}

TEST(shm_port, server_of_an_older_version_is_unreachable_and_the_log_says_why) {
    shm_test_port here("shm://");
    const std::string name = "older-" + std::to_string(random_u64());
    const unique_fd older = listen_at(name);
    ASSERT_TRUE(older);
    int lines = 0;
    default_logger().set_sink([&](auto& line) {
        lines += line.message.find("the peer refused the connection") != line.message.npos;
    });
    const std::vector<std::byte> bytes(8);
    const const_bytes out(bytes);
    recorded op;
    const peer_id to = here.end().lookup("shm://" + name).value();
    ASSERT_EQ(here.end().post_send(to, 1, gather(&out, 1), op), posted::pending);
    unique_fd socket;
    move_until({&here}, [&] {
        socket = unique_fd(::accept4(older.get(), nullptr, nullptr, SOCK_CLOEXEC));
        return static_cast<bool>(socket);
    });
    shm_hello answer;
    answer.version = shm_version - 1;
    answer.refused = static_cast<std::uint32_t>(errc::mismatch);
    ASSERT_TRUE(send_hello(socket.get(), answer, -1, -1));
    move_until({&here}, [&] { return op.runs > 0; });
    default_logger().set_sink({});
    EXPECT_TRUE(op.ended_with(errc::unreachable));
    EXPECT_EQ(op.what.native, EPROTO);
    EXPECT_EQ(lines, 1);
}

TEST(shm_port, who_connects_and_says_nothing_is_sent_away_in_time) {
    port_options impatient;
    impatient.silence_limit = 50ms;
    shm_test_port here("shm://", impatient);
    shm_raw_peer silent(here.end().address());
    std::thread moving([&] { silent.wait_until_dropped(); });
    shm_test_port other("shm://");
    other.send(other.reach(here), 1, {});
    move_until({&here, &other},
               [&] { return here.tags.size() == 1 && !still_there(silent.socket()); });
    moving.join();
    EXPECT_TRUE(here.losses.empty());
}

TEST(shm_port, crowd_in_the_door_keeps_no_honest_caller_out_for_ever) {
    port_options impatient;
    impatient.silence_limit = 100ms;
    shm_test_port here("shm://", impatient);
    std::vector<unique_fd> crowd;
    const std::string name = here.end().address().substr(6);
    for (std::size_t i = 0; i < limits::shm_max_pending + 50; ++i) {
        crowd.push_back(connect_to(name));
        here.progress();
    }
    shm_test_port caller("shm://");
    caller.send(caller.reach(here), 5, {});
    move_until({&here, &caller}, [&] { return !here.tags.empty(); });
    EXPECT_EQ(here.tags[0], 5u);
}

TEST(shm_port, peer_that_tries_its_memory_late_writes_where_nobody_else_does) {
    std::optional<shm_test_port> port(std::in_place, "shm://");
    shm_raw_peer peer(port->end().address());
    greet(peer, *port);
    const shm_hello said = peer.answer();
    if (is_refusal_of_kernel(try_cross_memory(::getpid(), said.probe, said.incarnation))) {
        GTEST_SKIP() << "the kernel refuses cross-memory attach here";
    }
    EXPECT_TRUE(try_cross_memory(::getpid(), said.probe, said.incarnation).ok());
    port.reset();
    EXPECT_EQ(try_cross_memory(::getpid(), said.probe, said.incarnation), errc::mismatch);
    // A peer that checked before the port ended, and writes now.
    reinterpret_cast<shm_probe*>(said.probe)->scratch = said.incarnation;
    const shm_own_probe next(1);
    EXPECT_EQ(next.address(), said.probe) << "what was written to is not kept for that";
}

TEST(shm_port, region_of_more_segments_than_the_table_shows_is_served_by_frames) {
    shm_test_port owner("shm://"), caller("shm://");
    std::vector<std::byte> memory(1000);
    std::vector<mutable_bytes> segments;
    for (std::size_t at = 0; at < memory.size(); at += 100)
        segments.push_back(mutable_bytes(memory).subspan(at, 100));
    const region target = owner.end().open_region(segments, access::read_write).value();
    const peer_id to = caller.reach(owner);
    const std::vector<std::byte> bytes(950, std::byte{5});
    const const_bytes from(bytes);
    recorded done;
    posted how = posted::full;
    while ((how = caller.end().post_put(to, gather(&from, 1), target.key(), 25, done)) ==
           posted::full)
        caller.progress();
    EXPECT_EQ(how, posted::pending);
    move_until({&owner, &caller}, [&] { return done.runs == 1; });
    EXPECT_TRUE(done.what.ok());
    EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{5}), 950);
    EXPECT_EQ(memory[24], std::byte{0});
    EXPECT_EQ(memory[975], std::byte{0});
}

TEST(shm_port, region_is_not_given_back_while_a_peer_copies) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    shm_test_port here("shm://");
    shm_raw_peer peer(here.end().address());
    greet(peer, here);
    std::vector<std::byte> memory(64);
    region target = here.end().open_region(memory, access::read_write).value();
    const remote_key key = target.key();
    ASSERT_EQ(peer.registrations().find(key, 0, 64, access::write).what,
              shm_found_region::kind::open);
    peer.words().touched.store(shm_touched::region(key.region, true));
    peer.words().touching.fetch_add(1);
    std::atomic<bool> copied{false};
    std::thread copier([&] {
        // Only after the owner has begun to close it.
        while (peer.registrations().find(key, 0, 64, access::write).what ==
               shm_found_region::kind::open)
            std::this_thread::yield();
        copied = true;
        peer.words().touching.fetch_add(1);
    });
    target = region();
    EXPECT_TRUE(copied);
    copier.join();
}

TEST(shm_port, get_by_frames_survives_that_its_region_closes_while_they_are_sent) {
    // Eight segments: too many for the registrations, so the get is answered with frames, whose
    // pieces are read from the region's own memory.
    constexpr std::size_t bytes = std::size_t{8} << 20;
    for (int after = 0; after < 12; ++after) {
        shm_test_port owner("shm://"), caller("shm://");
        std::vector<std::byte> memory(bytes, std::byte{7});
        std::vector<mutable_bytes> segments;
        for (std::size_t at = 0; at < bytes; at += bytes / 8)
            segments.push_back(mutable_bytes(memory).subspan(at, bytes / 8));
        region source = owner.end().open_region(segments, access::read).value();
        const peer_id to = caller.reach(owner);
        std::vector<std::byte> got(bytes);
        const mutable_bytes into(got);
        recorded done;
        while (caller.end().post_get(to, scatter(&into, 1), source.key(), 0, done) == posted::full)
            caller.progress();
        for (int i = 0; i < after; ++i) {
            caller.progress();
            owner.progress();
        }
        source = region();
        std::fill(memory.begin(), memory.end(), std::byte{1});  // Its owner may reuse it.
        move_until({&owner, &caller}, [&] { return done.runs == 1; });
        if (done.what.ok()) {
            EXPECT_EQ(std::count(got.begin(), got.end(), std::byte{7}), static_cast<long>(bytes));
        } else {
            EXPECT_EQ(done.what, errc::denied);
        }
        EXPECT_TRUE(caller.losses.empty());
    }
}

}  // namespace
}  // namespace amalgam::detail

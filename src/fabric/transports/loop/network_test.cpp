#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/fabric/loop.hpp>

#include "fabric/port/port_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

class loop_network_test : public testing::Test {
protected:
    void SetUp() override {
        client_->set_sink(&at_client_);
        server_->set_sink(&at_server_);
        server_at_client_ = client_->lookup("loop://server").value();
    }
    clock::duration since_start() const { return net_.now() - start_; }

    recorded_messages at_client_, at_server_;
    recorded op_, other_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
    loop_network net_;
    clock::time_point start_ = net_.now();
    std::unique_ptr<port> client_ = net_.port("client");
    std::unique_ptr<port> server_ = net_.port("server");
    peer_id server_at_client_;
};

TEST_F(loop_network_test, a_message_arrives_when_the_network_runs_and_not_before) {
    EXPECT_EQ(send(*client_, server_at_client_, 7, "hello", op_), posted::done);
    EXPECT_TRUE(at_server_.all.empty());
    net_.run_until_idle();
    ASSERT_EQ(at_server_.all.size(), 1u);
    EXPECT_EQ(at_server_.all[0].text, "hello");
    EXPECT_EQ(server_->peer_address(at_server_.all[0].from), "loop://client");
    EXPECT_EQ(since_start(), 0ns);
}

TEST_F(loop_network_test, a_port_is_who_it_is_said_to_be_else_this_process) {
    net_.identify("client", {.kind = identity_kind::certificate, .name = "node7"});
    (void)send(*client_, server_at_client_, 7, "hello", op_);
    net_.run_until_idle();
    ASSERT_EQ(at_server_.all.size(), 1u);
    EXPECT_EQ(to_text(server_->who(at_server_.all[0].from)), "node7");
    EXPECT_EQ(client_->who(server_at_client_), own_process());
    EXPECT_EQ(to_text(client_->self()), "node7");
    EXPECT_EQ(server_->self().kind, identity_kind::none);
}

TEST_F(loop_network_test, delay_moves_virtual_time_only) {
    net_.delay(3h);
    (void)send(*client_, server_at_client_, 7, "hello", op_);
    net_.run_for(2h);
    EXPECT_TRUE(at_server_.all.empty());
    EXPECT_EQ(since_start(), 2h);
    net_.run_until_idle();
    EXPECT_EQ(at_server_.all.size(), 1u);
    EXPECT_EQ(since_start(), 3h);
    EXPECT_EQ(client_->time().now(), net_.now());
}

TEST_F(loop_network_test, a_long_send_is_lent_until_it_arrives) {
    net_.delay(1ms);
    const std::vector<std::byte> text = pattern(50000);
    const const_bytes piece(text);
    EXPECT_EQ(client_->post_send(server_at_client_, 1, {&piece, 1}, op_), posted::pending);
    net_.run_for(900us);
    EXPECT_EQ(op_.runs, 0);
    net_.run_until_idle();
    EXPECT_TRUE(op_.ended_with(errc::ok));
    ASSERT_EQ(at_server_.all.size(), 1u);
    EXPECT_EQ(std::memcmp(at_server_.all[0].text.data(), text.data(), text.size()), 0);
}

TEST_F(loop_network_test, a_long_send_is_canceled_while_on_its_way) {
    net_.delay(1ms);
    const const_bytes piece = const_bytes(memory_).first(50000);
    EXPECT_EQ(client_->post_send(server_at_client_, 1, {&piece, 1}, op_), posted::pending);
    (void)send(*client_, server_at_client_, 2, "behind", other_);
    client_->cancel(op_);
    EXPECT_TRUE(op_.ended_with(errc::canceled));
    net_.run_until_idle();
    ASSERT_EQ(at_server_.all.size(), 1u);
    EXPECT_EQ(at_server_.all[0].text, "behind");
}

TEST_F(loop_network_test, order_holds_within_a_connection_whatever_the_delays) {
    net_.delay(0ms, 10ms);
    net_.reorder(true);
    for (std::uint64_t tag = 0; tag < 200; ++tag)
        ASSERT_EQ(send(*client_, server_at_client_, tag, "x", op_), posted::done);
    net_.run_until_idle();
    ASSERT_EQ(at_server_.all.size(), 200u);
    for (std::uint64_t tag = 0; tag < 200; ++tag)
        EXPECT_EQ(at_server_.all[tag].tag, tag);
}

TEST_F(loop_network_test, reorder_mixes_what_different_ports_send_at_one_time) {
    net_.reorder(true);
    std::vector<std::unique_ptr<port>> others;
    for (std::uint64_t i = 0; i < 20; ++i) {
        others.push_back(net_.port("other" + std::to_string(i)));
        (void)send(*others.back(), others.back()->lookup("loop://server").value(), i, "x", op_);
    }
    net_.run_until_idle();
    ASSERT_EQ(at_server_.all.size(), 20u);
    bool in_order = true;
    for (std::uint64_t i = 0; i < 20; ++i)
        in_order = in_order && at_server_.all[i].tag == i;
    EXPECT_FALSE(in_order);
}

TEST_F(loop_network_test, a_host_handles_what_arrives_one_after_the_other) {
    const std::unique_ptr<port> other = net_.port("other");
    std::vector<clock::duration> times;
    at_server_.on_each = [&](message&) { times.push_back(since_start()); };
    const auto send_from = [&](port& from, const char* to) {
        const peer_id there = from.lookup(to).value();
        ASSERT_EQ(send(from, there, 1, "x", op_), posted::done);
    };
    send_from(*client_, "loop://server");
    send_from(*other, "loop://server");
    net_.run_until_idle();  // They are connected.
    times.clear();
    start_ = net_.now();
    net_.delay(1ms);
    net_.processing("server", 10ms);
    for (int i = 0; i < 2; ++i) {
        send_from(*client_, "loop://server");
        send_from(*other, "loop://server");
    }
    net_.run_for(5ms);
    net_.cut("client");  // Frames already received are not delayed.
    net_.run_until_idle();
    EXPECT_EQ(times, (std::vector<clock::duration>{11ms, 21ms, 31ms, 41ms}));
    start_ = net_.now();
    times.clear();
    send_from(*other, "loop://server");
    net_.run_for(5ms);
    net_.processing("server", 0ms);
    send_from(*other, "loop://server");  // Does not overtake.
    net_.run_for(15ms);
    send_from(*other, "loop://server");
    net_.run_for(15ms);
    EXPECT_EQ(times, (std::vector<clock::duration>{11ms, 11ms, 21ms}));
}

TEST_F(loop_network_test, a_name_nobody_has_is_unreachable) {
    const peer_id nobody = client_->lookup("loop://nobody").value();
    EXPECT_EQ(send(*client_, nobody, 1, "x", op_), posted::pending);
    EXPECT_EQ(client_->post_receive(nobody, 1, memory_, other_), posted::pending);
    net_.run_until_idle();
    EXPECT_TRUE(op_.ended_with(errc::unreachable));
    EXPECT_TRUE(other_.ended_with(errc::unreachable));
    ASSERT_EQ(at_client_.down.size(), 1u);
    EXPECT_EQ(at_client_.down[0].second.code, errc::unreachable);
}

TEST_F(loop_network_test, an_address_of_another_transport_is_refused_with_a_sentence) {
    const auto looked_up = client_->lookup("tcp://127.0.0.1:7");
    EXPECT_EQ(looked_up.code().code, errc::unsupported);
    EXPECT_NE(looked_up.sentence().find("example: loop://"), std::string::npos);
    EXPECT_EQ(client_->lookup("loop://").code().code, errc::invalid);
}

TEST_F(loop_network_test, a_cut_completes_everything_once_at_the_silence_limit) {
    net_.run_until_idle();
    recorded put, get;
    const mutable_bytes whole(memory_);
    region target = server_->open_region(whole, access::read_write).value();
    std::vector<std::byte> local(memory_.size());
    const const_bytes from(local);
    const mutable_bytes into(local);

    net_.cut("server");
    EXPECT_EQ(client_->post_receive(server_at_client_, 1, memory_, op_), posted::pending);
    EXPECT_EQ(client_->post_put(server_at_client_, {&from, 1}, target.key(), 0, put),
              posted::pending);
    EXPECT_EQ(client_->post_get(server_at_client_, {&into, 1}, target.key(), 0, get),
              posted::pending);
    EXPECT_EQ(client_->post_send(server_at_client_, 1, {&from, 1}, other_), posted::full);
    EXPECT_EQ(net_.open_operations(), 3u);
    net_.run_for(4999ms);
    EXPECT_EQ(op_.runs, 0);
    net_.run_until_idle();

    for (recorded* one : {&op_, &put, &get})
        EXPECT_TRUE(one->ended_with(errc::disconnected));
    EXPECT_EQ(since_start(), 5000ms);
    EXPECT_EQ(net_.open_operations(), 0u);
    ASSERT_EQ(at_client_.down.size(), 1u);
    EXPECT_EQ(at_server_.down.size(), 1u);
}

TEST_F(loop_network_test, a_cut_that_heals_in_time_only_delays) {
    (void)send(*client_, server_at_client_, 1, "before", op_);
    net_.run_until_idle();
    net_.cut("client");
    (void)send(*client_, server_at_client_, 2, "meanwhile", op_);
    (void)send(*client_, server_at_client_, 3, "more", op_);
    net_.run_for(4s);
    EXPECT_EQ(at_server_.all.size(), 1u);
    net_.heal("client");
    net_.run_until_idle();
    ASSERT_EQ(at_server_.all.size(), 3u);
    EXPECT_EQ(at_server_.all[1].text, "meanwhile");
    EXPECT_EQ(at_server_.all[2].text, "more");
    EXPECT_TRUE(at_client_.down.empty());
    // The limit of a second cut starts anew.
    net_.cut("client");
    net_.run_for(4s);
    net_.heal("client");
    net_.run_until_idle();
    EXPECT_TRUE(at_client_.down.empty());
}

TEST_F(loop_network_test, a_one_way_cut_holds_one_direction_and_ends_the_connection_at_the_limit) {
    (void)send(*client_, server_at_client_, 1, "before", op_);
    net_.run_until_idle();
    ASSERT_EQ(at_server_.all.size(), 1u);
    const peer_id client_at_server = at_server_.all[0].from;
    net_.cut("client", "server");
    (void)send(*client_, server_at_client_, 2, "held", op_);
    (void)send(*server_, client_at_server, 3, "passes", other_);
    net_.run_for(4s);
    EXPECT_EQ(at_server_.all.size(), 1u);
    ASSERT_EQ(at_client_.all.size(), 1u);
    EXPECT_EQ(at_client_.all[0].text, "passes");
    net_.heal("client", "server");
    net_.run_until_idle();
    ASSERT_EQ(at_server_.all.size(), 2u);
    EXPECT_EQ(at_server_.all[1].text, "held");
    EXPECT_TRUE(at_client_.down.empty());

    net_.cut("client", "server");
    net_.run_for(5s);
    EXPECT_EQ(at_client_.down.size(), 1u);
    EXPECT_EQ(at_server_.down.size(), 1u);
}

TEST_F(loop_network_test, a_connection_opened_across_a_cut_is_unreachable_at_the_limit) {
    net_.cut("server");
    (void)client_->post_receive(server_at_client_, 1, memory_, op_);
    net_.run_until_idle();
    EXPECT_TRUE(op_.ended_with(errc::unreachable));
    EXPECT_EQ(since_start(), 5s);
}

TEST_F(loop_network_test, each_end_has_its_own_silence_limit) {
    auto hasty = net_.port("hasty", {.silence_limit = 100ms});
    const peer_id server = hasty->lookup("loop://server").value();
    net_.run_until_idle();
    net_.cut("hasty");
    (void)hasty->post_receive(server, 1, memory_, op_);
    net_.run_for(100ms);
    EXPECT_TRUE(op_.ended_with(errc::disconnected));
    EXPECT_TRUE(at_server_.down.empty());
    net_.run_until_idle();
    EXPECT_EQ(at_server_.down.size(), 1u);
}

TEST_F(loop_network_test, a_dropped_frame_ends_its_connection_at_the_limit_and_loses_the_rest) {
    net_.run_until_idle();
    net_.drop(1);
    (void)send(*client_, server_at_client_, 1, "lost", op_);
    net_.drop(0);
    (void)send(*client_, server_at_client_, 2, "behind it", op_);
    (void)client_->post_receive(server_at_client_, 3, memory_, other_);
    net_.run_until_idle();
    EXPECT_TRUE(at_server_.all.empty());
    EXPECT_TRUE(other_.ended_with(errc::disconnected));
    EXPECT_EQ(since_start(), 5s);
    // The next connection works normally.
    (void)send(*client_, client_->lookup("loop://server").value(), 4, "again", op_);
    net_.run_until_idle();
    EXPECT_EQ(at_server_.all.size(), 1u);
}

TEST_F(loop_network_test, a_killed_port_is_told_at_once_after_what_it_had_sent) {
    net_.delay(1ms);
    (void)send(*client_, server_at_client_, 1, "last words", op_);
    net_.kill("client");
    net_.run_until_idle();
    EXPECT_EQ(since_start(), 1ms);
    EXPECT_EQ(at_server_.all.size(), 1u);
    ASSERT_EQ(at_server_.down.size(), 1u);
    EXPECT_EQ(at_server_.down[0].second.code, errc::disconnected);
    ASSERT_EQ(at_client_.down.size(), 1u);
    (void)client_->post_receive(client_->lookup("loop://server").value(), 1, memory_, other_);
    net_.run_until_idle();
    EXPECT_TRUE(other_.ended_with(errc::unreachable));
}

TEST_F(loop_network_test, a_restarted_port_is_a_new_incarnation_that_old_keys_do_not_open) {
    const mutable_bytes whole(memory_);
    region old = server_->open_region(whole, access::read_write).value();
    auto again = net_.restart("server");
    EXPECT_NE(again->incarnation(), server_->incarnation());
    EXPECT_EQ(again->address(), server_->address());
    net_.run_until_idle();
    EXPECT_EQ(at_client_.down.size(), 1u);

    const peer_id server = client_->lookup("loop://server").value();
    std::byte one{1};
    const const_bytes from(&one, 1);
    (void)client_->post_put(server, {&from, 1}, old.key(), 0, op_);
    net_.run_until_idle();
    EXPECT_TRUE(op_.ended_with(errc::denied));
    EXPECT_EQ(memory_[0], std::byte{0});
}

TEST_F(loop_network_test, closing_tells_the_other_end_at_once) {
    (void)send(*client_, server_at_client_, 1, "hi", op_);
    net_.run_until_idle();
    server_->close(at_server_.all[0].from);
    net_.run_until_idle();
    ASSERT_EQ(at_client_.down.size(), 1u);
    EXPECT_EQ(at_client_.down[0].second.code, errc::disconnected);
    ASSERT_EQ(at_server_.down.size(), 1u);
    EXPECT_EQ(at_server_.down[0].second.code, errc::closed);
    EXPECT_EQ(since_start(), 0ns);
}

TEST_F(loop_network_test, a_full_link_has_room_again_when_the_other_end_has_read) {
    const std::vector<std::byte> text(4000);
    const const_bytes piece(text);
    int taken = 0;
    while (client_->post_send(server_at_client_, 1, {&piece, 1}, op_) == posted::done)
        ASSERT_LT(++taken, 1000);
    EXPECT_GT(taken, 100);
    net_.run_until_idle();
    EXPECT_EQ(client_->post_send(server_at_client_, 1, {&piece, 1}, op_), posted::done);
    net_.run_until_idle();
    EXPECT_EQ(at_server_.all.size(), static_cast<std::size_t>(taken) + 1);
}

TEST_F(loop_network_test, ports_may_outlive_their_network) {
    auto net = std::make_unique<loop_network>();
    auto a = net->port("a");
    auto b = net->port("b");
    const peer_id at_a = a->lookup("loop://b").value();
    (void)a->post_receive(at_a, 1, memory_, op_);
    net.reset();
    a.reset();
    EXPECT_TRUE(op_.ended_with(errc::closed));
}

TEST_F(loop_network_test, a_taken_or_impossible_name_is_refused_with_a_sentence) {
    EXPECT_THROW((void)net_.port("server"), error);
    EXPECT_THROW((void)net_.port(""), error);
    EXPECT_THROW(net_.cut("nobody"), error);
    server_.reset();
    EXPECT_NO_THROW(server_ = net_.port("server"));
}

// ---- drivers

struct timer_driver final : port_driver {
    timer_driver(port& its, const clock& goes_by) : at(its), time(goes_by) {}

    std::size_t run_ready() noexcept override {
        std::size_t ran = at.progress(64);
        while (!timers.empty() && timers.front() <= time.now()) {
            fired.push_back(time.now());
            timers.erase(timers.begin());
            ++ran;
        }
        return ran;
    }
    std::optional<clock::time_point> next_timer() const noexcept override {
        if (timers.empty()) return {};
        return timers.front();
    }

    port& at;
    const clock& time;
    std::vector<clock::time_point> timers;
    std::vector<clock::time_point> fired;
};

TEST_F(loop_network_test, a_name_that_no_port_ever_had_is_not_found) {
    const auto code_of = [](auto call) {
        try {
            call();
        } catch (const error& why) {
            EXPECT_NE(std::string(why.what()).find("\"nobody\""), std::string::npos) << why.what();
            return why.code().code;
        }
        return errc::ok;
    };
    EXPECT_EQ(code_of([&] { net_.kill("nobody"); }), errc::not_found);
    EXPECT_EQ(code_of([&] { (void)net_.restart("nobody"); }), errc::not_found);
    EXPECT_EQ(code_of([&] { (void)net_.broadcast("nobody"); }), errc::not_found);
    EXPECT_EQ(code_of([&] { net_.cut("nobody"); }), errc::not_found);
    EXPECT_EQ(code_of([&] { net_.heal("nobody"); }), errc::not_found);
    net_.kill("server");
    EXPECT_EQ(code_of([&] { net_.heal("server"); }), errc::ok) << "it had that name";
}

TEST_F(loop_network_test, run_for_takes_exactly_that_long_whatever_happens_meanwhile) {
    net_.delay(3ms);
    for (const clock::duration each : std::initializer_list<clock::duration>{1ns, 1ms, 2ms, 10s}) {
        (void)send(*client_, server_at_client_, 1, "x", op_);
        const auto before = net_.now();
        net_.run_for(each);
        EXPECT_EQ(net_.now() - before, each);
    }
    EXPECT_EQ(at_server_.all.size(), 4u);
}

TEST_F(loop_network_test, an_empty_function_ends_the_telling_of_events) {
    std::vector<std::uint64_t> tags;
    net_.on_event([&](const loop_event& event) {
        if (event.what == loop_event::kind::frame && event.bytes != 0) tags.push_back(event.tag);
    });
    for (std::uint64_t tag = 1; tag <= 3; ++tag)
        (void)send(*client_, server_at_client_, tag, "x", op_);
    net_.run_until_idle();
    EXPECT_EQ(tags, (std::vector<std::uint64_t>{1, 2, 3}));
    net_.on_event({});
    (void)send(*client_, server_at_client_, 4, "x", op_);
    net_.run_until_idle();
    EXPECT_EQ(tags.size(), 3u);
    EXPECT_EQ(at_server_.all.size(), 4u);
}

TEST_F(loop_network_test, a_driver_runs_when_its_port_has_work_and_when_its_timer_is_due) {
    timer_driver driver(*server_, net_.time());
    driver.timers = {start_ + 1h, start_ + 2h};
    server_->attach_driver(&driver);
    net_.delay(90min);
    (void)send(*client_, server_at_client_, 1, "x", op_);
    net_.run_for(100min);
    EXPECT_EQ(driver.fired, (std::vector<clock::time_point>{start_ + 1h}));
    EXPECT_EQ(at_server_.all.size(), 1u);
    net_.run_until_idle();
    EXPECT_EQ(driver.fired, (std::vector<clock::time_point>{start_ + 1h, start_ + 2h}));
    EXPECT_EQ(net_.now(), start_ + 2h);
    server_->attach_driver(nullptr);
}

TEST_F(loop_network_test, a_timer_that_was_taken_back_does_not_move_time) {
    timer_driver driver(*server_, net_.time());
    driver.timers = {start_ + 1h};
    server_->attach_driver(&driver);
    net_.run_for(1min);
    driver.timers.clear();
    net_.run_until_idle();
    EXPECT_TRUE(driver.fired.empty());
    server_->attach_driver(nullptr);
}

TEST_F(loop_network_test, driver_ready_runs_a_driver_that_another_one_gave_work) {
    timer_driver idle(*server_, net_.time());
    server_->attach_driver(&idle);
    bool told = false;
    at_client_.on_each = [&](message&) {
        idle.timers.push_back(net_.now());
        server_->driver_ready();
        told = true;
    };
    (void)server_->post_receive(server_->lookup("loop://client").value(), 1, memory_, op_);
    (void)send(*server_, server_->lookup("loop://client").value(), 1, "x", other_);
    net_.delay(1ms);
    net_.run_until_idle();
    EXPECT_TRUE(told);
    EXPECT_EQ(idle.fired.size(), 1u);
    server_->attach_driver(nullptr);
}

}  // namespace
}  // namespace amalgam

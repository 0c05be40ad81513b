#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/client_stream.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"
#include "rpc/streaming/client_streams_testing.hpp"

// How a stream of values from a caller ends: by either end, a failure, a deadline, a cancel.
namespace amalgam {
namespace {

TEST(client_stream, peer_loss_deadline_and_cancel_end_both_ends_once) {
    for (const std::string how : {"kill server", "kill client", "deadline", "cancel", "leave"}) {
        loop_pair two;
        reading handler(two.server);
        auto slow = two.client.procedure<int(streaming<int>)>("slow").on(two.there());
        if (how == "deadline") slow = slow.within(25ms);
        std::optional<client_stream<int, int>> up;
        int sent = 0;
        errc ended = errc::ok;
        auto sender = two.client.spawn([&] {
            up = slow.open();
            while (up->send(1))
                ++sent;
            try {
                up->get();
            } catch (const error& why) {
                ended = why.code().code;
            }
        });
        two.net.run_for(22ms);
        EXPECT_GE(sent, 64) << how;
        EXPECT_FALSE(sender.ready()) << how;
        if (how == "kill server") two.net.kill("server");
        if (how == "kill client") two.net.kill("client");
        if (how == "cancel" || how == "leave") up->cancel();
        two.net.run_until_idle();
        EXPECT_TRUE(sender.ready()) << how;
        EXPECT_EQ(ended, how == "deadline"                   ? errc::timed_out
                         : how == "cancel" || how == "leave" ? errc::canceled
                                                             : errc::disconnected)
            << how;
        if (how != "kill server") {
            EXPECT_NE(handler.seen, errc::ok) << how;
        }
        EXPECT_EQ(two.server.core().server().running(), 0u) << how;
        EXPECT_EQ(two.client.core().server().running(), 0u) << how;
        EXPECT_EQ(two.client.core().value_streams().open(), 0u) << how;
        EXPECT_EQ(two.server.core().value_streams().reserved(), 0u) << how;
    }
}

TEST(client_stream, cancel_needs_no_result_so_another_thread_may_call_it_during_get) {
    loop_pair two;
    reading handler(two.server);
    two.in_client([&] {
        auto up = two.client.procedure<int(streaming<int>)>("slow").on(two.there()).open();
        EXPECT_TRUE(up.send(1));
        future<int> taken = std::move(up.result());  // As get() does.
        up.cancel();
        EXPECT_TRUE(taken.wait_for(1h));
        up.cancel();
        taken.cancel();
        EXPECT_EQ(error_of([&] { taken.get(); }).code(), errc::canceled);
        up.cancel();
    });
    EXPECT_EQ(handler.seen, errc::canceled);
    expect_quiet(two.server, two.client);
}

TEST(client_stream, cancel_from_another_thread_while_get_ends) {
    engine server{"shm://"}, client{"shm://"};
    server.define("sum", add_up);
    const auto sum = client.procedure<sum_of>("sum").on(server.address());
    for (int round = 0; round < 300; ++round) {
        auto up = sum.open(0);
        (void)up.send(1);
        std::atomic<bool> over = false;
        std::thread canceler([&] {
            do
                up.cancel();
            while (!over);
        });
        try {
            EXPECT_EQ(up.get(), 1);
        } catch (const error& why) {
            EXPECT_EQ(why.code(), errc::canceled);
        }
        over = true;
        canceler.join();
    }
}

TEST(client_stream, leaving_it_unfinished_cancels_the_handler) {
    loop_pair two;
    reading handler(two.server);
    two.in_client([&] {
        auto up = two.client.procedure<int(streaming<int>)>("slow").on(two.there()).open();
        EXPECT_TRUE(up.send(1));
    });
    EXPECT_EQ(handler.seen, errc::canceled);
    expect_quiet(two.server, two.client);
}

TEST(client_stream, a_stream_left_with_its_result_kept_tells_the_reader) {
    loop_pair two;
    reading handler(two.server);
    two.in_client([&] {
        future<int> kept;
        {
            auto up = two.client.procedure<int(streaming<int>)>("slow").on(two.there()).open();
            EXPECT_TRUE(up.send(1));
            kept = std::move(up.result());
        }
        const error why = error_of([&] { kept.get(); });
        EXPECT_EQ(why.code().handler_code(), errc::canceled);
        EXPECT_NE(std::string(why.what()).find("without finish()"), std::string::npos)
            << why.what();
    });
    EXPECT_EQ(handler.seen, errc::canceled);
    expect_quiet(two.server, two.client);
}

TEST(client_stream, an_exception_of_the_handler_is_the_outcome) {
    loop_pair two;
    two.server.define("third", [](stream_reader<int>& in, int) -> int {
        for (int i = 0; i < 3; ++i)
            in.next();
        throw std::runtime_error("three are enough");
    });
    two.in_client([&] {
        auto up = two.client.procedure<sum_of>("third").on(two.there()).open(0);
        while (up.send(1)) {
        }
        const error why = error_of([&] { up.get(); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_NE(std::string(why.what()).find("three are enough"), std::string::npos);
    });
    expect_quiet(two.server, two.client);
}

/// Cannot be written or read at 13.
struct unlucky {
    int number = 0;
    template <typename Archive>
    void serialize(Archive& archive) {
        if (number == 13) throw std::runtime_error("cannot write 13");
        archive(number);
        if (std::is_same_v<Archive, archive_reader> && number == 14) {
            throw error(errc::denied, "cannot read 14");
        }
    }
};

TEST(client_stream, an_exception_of_writing_a_value_surfaces_and_another_may_be_sent) {
    loop_pair two;
    two.server.define("count", [](stream_reader<unlucky>& in) {
        int count = 0;
        while (in.next())
            ++count;
        return count;
    });
    two.in_client([&] {
        auto up = two.client.procedure<int(streaming<unlucky>)>("count").on(two.there()).open();
        for (int i = 0; i < 200; ++i)
            EXPECT_THROW(up.send({13}), std::runtime_error);  // No credit is lost.
        EXPECT_TRUE(up.send({1}));
        EXPECT_EQ(up.get(), 1);
    });
    expect_quiet(two.server, two.client);
}

TEST(client_stream, an_exception_of_reading_a_value_ends_the_reader) {
    loop_pair two;
    errc seen = errc::ok;
    two.server.define("count", [&](stream_reader<unlucky>& in) {
        try {
            while (in.next()) {
            }
        } catch (const error& why) {
            seen = why.code().code;
            throw;
        }
    });
    two.in_client([&] {
        auto up = two.client.procedure<void(streaming<unlucky>)>("count").on(two.there()).open();
        EXPECT_TRUE(up.send({1}));
        EXPECT_TRUE(up.send({14}));
        EXPECT_EQ(error_of([&] { up.get(); }).code().handler_code(), errc::denied);
    });
    EXPECT_EQ(seen, errc::denied);
    expect_quiet(two.server, two.client);
}

/// Cannot be read.
struct odd {
    void serialize(archive_writer& to) { to(1); }
    void serialize(archive_reader&) { throw std::runtime_error("cannot read this"); }
};

TEST(client_stream, another_exception_of_reading_a_value_is_a_mismatch_with_its_text) {
    loop_pair two;
    std::string seen;
    two.server.define("count", [&](stream_reader<odd>& in) {
        const error why = error_of([&] { (void)in.next(); });
        EXPECT_EQ(why.code(), errc::mismatch);
        seen = why.what();
    });
    two.in_client([&] {
        auto up = two.client.procedure<void(streaming<odd>)>("count").on(two.there()).open();
        EXPECT_TRUE(up.send({}));
        up.get();
    });
    EXPECT_NE(seen.find("cannot read this"), std::string::npos) << seen;
}

TEST(client_stream, a_large_value_that_the_handler_has_counts_as_sent_though_it_returns) {
    for (const std::size_t bytes : {10u, 100'000u, 1'000'000u}) {
        loop_pair two;
        two.server.define("one", [](stream_reader<std::string>& in) { return in.next()->size(); });
        two.client.define("one", [](stream_reader<std::string>& in) { return in.next()->size(); });
        two.in_client([&] {
            for (const std::string& where : {two.server.address(), two.client.address()}) {
                auto up = two.client.procedure<std::size_t(streaming<std::string>)>("one")
                              .on(where)
                              .open();
                EXPECT_TRUE(up.send(std::string(bytes, 'x'))) << bytes;
                EXPECT_EQ(up.get(), bytes);
            }
        });
        expect_quiet(two.server, two.client);
    }
}

TEST(client_stream, a_large_value_that_the_handler_never_fetches_does_not_count_as_sent) {
    for (const bool too_large : {false, true}) {
        loop_network net;
        engine server{net.port("server"), {.max_values_bytes = too_large ? 200'000u : 1'000'000u}};
        engine client{net.port("client")};
        event go_on;
        server.define("none", [&](stream_reader<std::string>& in) {
            EXPECT_TRUE(in.next());
            go_on.wait();
        });
        auto sender = client.spawn([&] {
            auto up =
                client.procedure<void(streaming<std::string>)>("none").on(server.address()).open();
            EXPECT_TRUE(up.send("small"));
            EXPECT_TRUE(up.send("read ahead"));
            EXPECT_FALSE(up.send(std::string(300'000, 'x')));
            up.get();
        });
        net.run_until_idle();
        EXPECT_FALSE(sender.ready());
        go_on.set();
        net.run_until_idle();
        sender.get();
        expect_quiet(server, client);
    }
}

TEST(client_stream, past_its_deadline_a_call_is_answered_as_timed_out) {
    struct : interceptor {
        void served(call_context&, status how, clock::duration) override { answer = how.code; }
        errc answer = errc::ok;
    } watch;
    for (const bool both_ways : {false, true}) {
        loop_network net;
        engine server{net.port("server"),
                      {.interceptors = {std::shared_ptr<interceptor>(&watch, [](auto*) {})}}};
        engine client{net.port("client")};
        server.define("sum", add_up);
        server.define("echo", echo_all);
        auto done = client.spawn([&] {
            if (both_ways) {
                auto call = client.procedure<echo>("echo").on(server.address()).within(20ms);
                auto both = call.open();
                (void)both.next();
            } else {
                auto up = client.procedure<sum_of>("sum").on(server.address()).within(20ms).open(0);
                (void)up.result().wait();
                up.get();
            }
        });
        net.run_for(15ms);
        net.cut("client", "server");  // Its cancel comes after the deadline of the reader.
        net.run_for(10ms);
        net.heal("client", "server");
        net.run_until_idle();
        EXPECT_EQ(error_of([&] { done.get(); }).code(), errc::timed_out);
        EXPECT_EQ(watch.answer, errc::timed_out);
        watch.answer = errc::ok;
        expect_quiet(server, client);
    }
}

TEST(client_stream, assigning_another_ends_the_call_that_it_had) {
    loop_pair two;
    reading handler(two.server);
    two.server.define("sum", add_up);
    two.server.define("echo", echo_all);
    two.in_client([&] {
        auto slow = two.client.procedure<int(streaming<int>)>("slow").on(two.there());
        auto up = slow.open();
        auto other = slow.open();
        EXPECT_TRUE(up.send(1));
        EXPECT_TRUE(other.send(1));
        up = std::move(other);
        EXPECT_EQ(error_of([&] { other.send(1); }).code(), errc::invalid);
        EXPECT_EQ(error_of([&] { other.get(); }).code(), errc::invalid);
        EXPECT_TRUE(up.send(2));
        up.get();
        auto both = two.client.procedure<echo>("echo").on(two.there()).open();
        auto second = two.client.procedure<echo>("echo").on(two.there()).open();
        both = std::move(second);
        EXPECT_EQ(error_of([&] { second.send("x"); }).code(), errc::invalid);
        EXPECT_TRUE(both.send("x"));
        EXPECT_EQ(both.next(), "x");
    });
    EXPECT_EQ(handler.seen, errc::canceled);
    expect_quiet(two.server, two.client);
}

TEST(client_stream, a_send_that_is_canceled_halfway_says_so_to_the_reader) {
    loop_pair two;
    std::string seen;
    event go_on;
    two.server.define("slow", [&](stream_reader<std::string>& in) {
        in.next();
        go_on.wait();
        seen = error_of([&] {
                   while (in.next()) {
                   }
               }).what();
    });
    std::optional<client_stream<std::string, void>> up;
    two.in_client([&] {
        up = two.client.procedure<void(streaming<std::string>)>("slow").on(two.there()).open();
        EXPECT_TRUE(up->send("first"));
        EXPECT_TRUE(up->send("unread, so that the next is not fetched"));
    });
    ult sender = spawn(two.client.pool(), [&] {
        EXPECT_EQ(error_of([&] { up->send(std::string(300'000, 'x')); }).code(), errc::canceled);
    });
    two.net.run_until_idle();
    sender.cancel();
    two.net.run_until_idle();
    go_on.set();
    two.net.run_until_idle();
    EXPECT_NE(seen.find("a send() of the caller ended"), std::string::npos) << seen;
}

TEST(client_stream, a_handler_that_exits_is_said_to) {
    loop_pair two;
    two.server.define("leave", [](stream_reader<int>& in) {
        in.next();
        this_task::exit();
    });
    two.in_client([&] {
        auto up = two.client.procedure<void(streaming<int>)>("leave").on(two.there()).open();
        EXPECT_TRUE(up.send(1));
        const error why = error_of([&] { up.get(); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_NE(std::string(why.what()).find("this_task::exit()"), std::string::npos)
            << why.what();
    });
    expect_quiet(two.server, two.client);
}

TEST(client_stream, ends_with_either_engine) {
    for (const bool server_ends : {false, true}) {
        loop_network net;
        std::optional<engine> server(std::in_place, net.port("server"));
        std::optional<engine> client(std::in_place, net.port("client"));
        reading handler(*server);
        auto up = client->procedure<int(streaming<int>)>("slow").on(server->address()).open();
        int sent = 0;
        auto sender = client->spawn([&] {
            while (up.send(1))
                ++sent;
        });
        net.run_for(5ms);
        EXPECT_FALSE(sender.ready());
        (server_ends ? server : client)->stop();
        net.run_until_idle();
        EXPECT_TRUE(sender.ready()) << server_ends;
        if (!server_ends) {
            EXPECT_FALSE(up.send(1));
        }
        EXPECT_TRUE(up.result().ready());
        client.reset();
        server.reset();
        net.run_until_idle();
        EXPECT_FALSE(up.result().wait().ok());
    }
}

TEST(client_stream, a_large_value_is_released_whatever_ends_the_call_in_between) {
    for (int moment = 0; moment < 100; ++moment) {
        loop_network net;
        net.delay(10us);
        engine server{net.port("server")}, client{net.port("client")};
        server.define("lengths", [](stream_reader<std::string>& in, std::uint32_t) {
            std::vector<std::size_t> got;
            while (const auto each = in.next()) {
                got.push_back(each->size());
                this_task::sleep_for(30us);
            }
            return got;
        });
        const auto when = std::chrono::microseconds(4 * moment);
        auto call = client.procedure<lengths>("lengths").on(server.address());
        if (moment % 5 == 4) call = call.within(when);
        std::optional<client_stream<std::string, std::vector<std::size_t>>> up(call.open(0));
        auto sender = client.spawn([&] {
            for (int i = 0; up->send(std::string(i % 3 == 0 ? 5 : 200'000, 'l')); ++i) {
            }
        });
        net.run_for(when);
        if (moment % 5 == 0) net.kill("server");
        if (moment % 5 == 1) net.kill("client");
        if (moment % 5 == 2) up->cancel();
        if (moment % 5 == 3) server.stop();
        net.run_until_idle();
        EXPECT_TRUE(sender.ready()) << moment;
        EXPECT_TRUE(up->result().ready()) << moment;
        up.reset();
        net.run_until_idle();
        SCOPED_TRACE(moment);
        expect_nothing_left(client, server);
    }
}

TEST(client_stream, a_canceled_sender_says_so_and_another_goes_on) {
    loop_pair two;
    event go_on;
    two.server.define("sum", [&](stream_reader<int>& in, int start) {
        in.window(2);
        start += *in.next();
        go_on.wait();
        return add_up(in, start);
    });
    auto up = two.client.procedure<sum_of>("sum").on(two.there()).open(0);
    errc seen = errc::ok;
    ult sender = spawn(two.client.pool(), [&] {
        try {
            for (;;)
                up.send(1);
        } catch (const error& why) {
            seen = why.code().code;
        }
    });
    two.net.run_until_idle();
    sender.cancel();
    two.net.run_until_idle();
    EXPECT_EQ(seen, errc::canceled);
    go_on.set();
    two.in_client([&] {
        EXPECT_TRUE(up.send(10));
        EXPECT_EQ(up.get(), 13);  // Three had left.
    });
    sender.join();
    expect_quiet(two.server, two.client);
}

}  // namespace
}  // namespace amalgam

// fabric, loop: the mailboxes of two ports, and how a sender that found no room is told of it.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "fabric/transports/loop/port.hpp"
#include "model_check/checker/checker.hpp"

namespace amalgam {
namespace {

/// One end, and what its port has been told.
struct an_end {
    std::unique_ptr<detail::loop_port> port;
    model::wake_up wakes;
    std::uint64_t read = 0;
    bool may_send = true;
};

/// Of the program: by side. The handle of a port is a number that is no descriptor.
std::array<an_end*, 2> ends{};
constexpr int first_handle = 1'000'000;

an_end& end_of(const detail::frame_link& link) {
    return *ends[static_cast<const detail::loop_link&>(link).side()];
}

}  // namespace

// In place of the library's, for which peers would have to be known.
peer_id detail::framed_port::accepted(frame_link&, std::string) noexcept {
    return peer_id{1};
}
detail::delivery detail::framed_port::deliver(frame_link& link, const frame_header& header,
                                              const_bytes) noexcept {
    model::require(header.tag == ++end_of(link).read, "a frame is missing, or out of order");
    return delivery::taken;
}
void detail::framed_port::writable(frame_link& link) noexcept {
    end_of(link).may_send = true;
}

}  // namespace amalgam

extern "C" {

// In place of the C library's, by the linker's option --wrap.
int __wrap_eventfd_write(int handle, eventfd_t) {
    amalgam::ends[static_cast<std::size_t>(handle - amalgam::first_handle)]->wakes.strike();
    return 0;
}
int __wrap_eventfd_read(int, eventfd_t*) {
    return 0;
}

}  // extern "C"

namespace amalgam::model {
namespace {

using namespace detail;

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

/// Two ports with a connection, on which one frame has room.
struct a_pair {
    a_pair() {
        for (std::size_t i = 0; i < 2; ++i) {
            auto box = hub->open(i == 0 ? "sender" : "reader");
            box->handle_.reset(first_handle + static_cast<int>(i));
            each[i].port = std::make_unique<loop_port>(hub, box, port_options{}, i + 1, false);
            ends[i] = &each[i];
        }
        link = static_cast<loop_link*>(each[0].port->connect("loop://reader").value());
        each[1].port->move_frames(1);
    }
    ~a_pair() {
        for (an_end& one : each)
            static_cast<void>(one.port->box().handle_.release());
    }
    an_end& sender() { return each[0]; }
    an_end& reader() { return each[1]; }

    std::shared_ptr<loop_hub> hub = std::make_shared<loop_hub>(loop_options{.link_bytes = 1});
    std::array<an_end, 2> each;
    loop_link* link = nullptr;
};

/// Waits for something to happen.
void turn(an_end& one) {
    if (one.port->move_frames(1) == 0 && one.port->arm()) one.wakes.wait();
}

using fault = std::function<void(execution&, a_pair&)>;

/// Two frames pass: the second has no room until the first is read.
result of_room(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& pair = run.make<a_pair>();
        run.name(&pair.link->own().unread, "unread");
        run.name(&pair.link->own().wants_room, "wants room");
        run.name(&pair.sender().port->box().mutex_, "sender's mailbox");
        run.name(&pair.reader().port->box().mutex_, "reader's mailbox");
        if (weaken) weaken(run, pair);
        run.thread([&pair] {
            for (std::uint64_t tag = 1; tag <= 2;) {
                frame_header header;
                header.tag = tag;
                if (pair.link->send(header, {}, nullptr) == posted::done) {
                    ++tag;
                    continue;
                }
                pair.sender().may_send = false;
                while (!pair.sender().may_send)
                    turn(pair.sender());
            }
        });
        run.thread([&pair] {
            while (pair.reader().read < 2)
                turn(pair.reader());
        });
    });
}

TEST(loop_model, frames_arrive_in_order_and_nobody_sleeps_for_ever) {
    const result found = of_room();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(loop_model, weaker_orders_are_found) {
    const auto sleeps_for_ever = [](const fault& weaken) {
        EXPECT_EQ(of_room(weaken).failure, "all threads wait for ever");
    };
    sleeps_for_ever([](execution& run, a_pair& pair) {
        run.weaken(pair.link->own().unread, act::load, acquire);
    });
    sleeps_for_ever([](execution& run, a_pair& pair) {
        run.weaken(pair.link->own().unread, act::change, std::memory_order_acq_rel);
    });
    sleeps_for_ever([](execution& run, a_pair& pair) {
        run.weaken(pair.link->own().wants_room, act::load, acquire);
    });
    sleeps_for_ever([](execution& run, a_pair& pair) {
        run.weaken(pair.link->own().wants_room, act::store, release);
    });
    EXPECT_NE(of_room([](execution& run, a_pair& pair) {
                  run.weaken_at(&pair.reader().port->box().mutex_, act::change, relaxed);
              }).failure,
              "");
}

}  // namespace
}  // namespace amalgam::model

#include "fabric/packets/introduced_carrier.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/scripted_port.hpp"

namespace amalgam::detail {
namespace {

// As in docs/wire/packets.md.
constexpr std::uint64_t greeting_tag = 0x316f72746c616d41u;
constexpr std::uint64_t farewell_tag = greeting_tag + 1;

/// Paths that move nothing: the test says what came.
class carrier final : public introduced_carrier {
public:
    struct link final : introduced_link {
        posted send(packet&) noexcept override {
            count_sent();
            return posted::done;
        }
    };

    carrier(std::unique_ptr<port> inner, int& released)
        : introduced_carrier(std::move(inner), "test+tcp"), released_(released) {}
    ~carrier() { end_introductions(); }

    using introduced_carrier::arrived;

protected:
    const_bytes own_name() const noexcept override { return {}; }
    std::string explain_paths() const override { return "a test asked for it"; }
    std::unique_ptr<introduced_link> make_link() override { return std::make_unique<link>(); }
    status open_path(introduced_link&, const_bytes) noexcept override { return {}; }
    void close_path(introduced_link&, bool) noexcept override {}
    void release_path(std::unique_ptr<introduced_link>) noexcept override { ++released_; }
    std::size_t move_packets(std::size_t) noexcept override { return 0; }
    bool arm_paths() noexcept override { return true; }

private:
    int& released_;
};

/// What a port on the carrier would note.
struct events final : packet_events {
    bool accepted(packet_link& link, std::string address) noexcept override {
        link.user = this;
        links.push_back(static_cast<introduced_link*>(&link));
        addresses.push_back(std::move(address));
        return true;
    }
    void received(packet_link&, const_bytes) noexcept override { ++packets; }
    void room(packet_link&) noexcept override { ++rooms; }
    void down(packet_link&, status why) noexcept override { downs.push_back(why.code); }
    void returned(packet&) noexcept override {}
    void abandoned(packet&) noexcept override {}
    void due() noexcept override {}

    std::vector<introduced_link*> links;
    std::vector<std::string> addresses;
    std::vector<errc> downs;
    int packets = 0;
    int rooms = 0;
};

std::vector<std::byte> greeting(const std::string& scheme) {
    std::vector<std::byte> bytes(10 + scheme.size());
    store_le(bytes.data(), std::uint64_t{77});
    store_le(bytes.data() + 8, static_cast<std::uint16_t>(scheme.size()));
    std::memcpy(bytes.data() + 10, scheme.data(), scheme.size());
    return bytes;
}

std::vector<std::byte> farewell(std::uint64_t packets) {
    std::vector<std::byte> bytes(8);
    store_le(bytes.data(), packets);
    return bytes;
}

class introduced_carrier_test : public testing::Test {
protected:
    introduced_carrier_test() { here_->start(events_); }

    /// Somebody connects, says this scheme, and is connected if it is ours.
    scripted_link& come(const std::string& scheme = "test+tcp") {
        scripted_link& from = inner_->peer();
        say(from, greeting_tag, greeting(scheme));
        return from;
    }
    void say(scripted_link& from, std::uint64_t tag, const std::vector<std::byte>& bytes) {
        EXPECT_NE(inner_->deliver_bytes(from, frame_kind::unexpected, tag, bytes),
                  verdict::malformed);
    }
    void look(int rounds = 64) {
        for (int i = 0; i < rounds; ++i)
            here_->progress(64);
    }

    int released_ = 0;
    events events_;
    scripted_port* inner_ = new scripted_port;
    std::unique_ptr<carrier> here_ =
        std::make_unique<carrier>(std::unique_ptr<port>(inner_), released_);
};

TEST_F(introduced_carrier_test, who_greets_is_greeted_and_connected) {
    scripted_link& from = come();
    ASSERT_EQ(events_.links.size(), 1u);
    EXPECT_EQ(events_.addresses[0], "test+tcp://there");
    EXPECT_EQ(events_.rooms, 1);
    EXPECT_EQ(events_.links[0]->their_id(), 77u);
    ASSERT_EQ(from.out.size(), 1u);
    EXPECT_EQ(from.out[0].header.tag, greeting_tag);
}

TEST_F(introduced_carrier_test, one_of_another_kind_is_a_mismatch) {
    come("other+tcp");
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::mismatch});
}

TEST_F(introduced_carrier_test, announced_packets_are_waited_for_after_the_farewell) {
    scripted_link& from = come();
    say(from, farewell_tag, farewell(2));
    inner_->link_down(from, {errc::disconnected});
    look();
    EXPECT_TRUE(events_.downs.empty()) << "two packets were announced";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_TRUE(events_.downs.empty()) << "one of them is still on its way";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_EQ(events_.packets, 2);
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::disconnected});
}

TEST_F(introduced_carrier_test, nobody_sleeps_while_one_who_left_is_waited_for) {
    EXPECT_TRUE(here_->arm()) << "nothing is to be done";
    scripted_link& from = come();
    EXPECT_TRUE(here_->arm());
    say(from, farewell_tag, farewell(1));
    inner_->link_down(from, {errc::disconnected});
    look();
    EXPECT_FALSE(here_->arm()) << "no handle tells of the end of that time";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_TRUE(here_->arm());
}

TEST_F(introduced_carrier_test, a_link_stays_as_long_as_its_farewell_is_lent) {
    scripted_link& from = come();
    from.answer = posted::pending;
    events_.links[0]->close();
    ASSERT_EQ(from.out.size(), 2u);
    EXPECT_EQ(from.out[1].header.tag, farewell_tag);
    here_->release(*events_.links[0]);
    EXPECT_EQ(released_, 0);
    look();  // The port below has closed the connection, and gives its bytes back.
    EXPECT_EQ(from.shuts, 1);
    EXPECT_EQ(released_, 1);
}

TEST_F(introduced_carrier_test, farewells_to_several_that_nobody_takes_do_not_hold_up_the_end) {
    for (int i = 0; i < 3; ++i)
        come().answer = posted::pending;
    for (introduced_link* each : events_.links) {
        each->close();
        here_->release(*each);
    }
    here_.reset();
    EXPECT_EQ(released_, 3);
}

}  // namespace
}  // namespace amalgam::detail

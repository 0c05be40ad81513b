// Groups that break the protocol: one half of a pipeline cut in two runs in a child, and the test
// plays the other.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ff/dff.hpp>
#include <gtest/gtest.h>

#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/procedure.hpp>

#include "conformance/child_process.hpp"
#include "distributed/link.hpp"
#include "fastflow_group_process.hpp"
#include "temp_folder.hpp"

namespace {

namespace wire = ff::detail::wire;
using amalgam::const_bytes;
using amalgam::conformance::channel;
using amalgam::conformance::child_process;

constexpr std::uint64_t window = DEFAULT_MESSAGE_OTF;
constexpr std::uint64_t any_window = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t megabyte = std::size_t{1} << 20;
constexpr std::uint32_t item = 0;
constexpr std::uint32_t flush = 5;
constexpr std::uint32_t end_of_stream = 10;

struct large {
    explicit large(std::size_t size) : bytes(size, 'x') {}
    std::string bytes;
};
struct source : ff::ff_node {
    /// Frees an item when the test says so.
    explicit source(channel& test) {
        serializeF = [](void* what, ff::message2_t* to) {
            std::string& bytes = static_cast<large*>(what)->bytes;
            to->data = static_cast<char*>(std::calloc(bytes.size(), 1));
            to->size = bytes.size();
            to->cleanup = true;
            return true;
        };
        freetaskF = [&test](void* what) {
            delete static_cast<large*>(what);
            test.hear();
        };
    }
    void* svc(void*) override {
        for (int i = 0; i != 3; ++i)
            ff_send_out(new large(40 * megabyte));
        return EOS;
    }
};
/// Takes nothing before the test says so.
struct sink : ff::ff_node {
    explicit sink(channel& test) : line(test) {
        deserializeF = [](ff::message2_t* from, bool& copied, ff::ff_node*) -> void* {
            copied = false;
            return from->data;
        };
    }
    int svc_init() override {
        line.hear();
        return 0;
    }
    void* svc(void* what) override {
        std::free(what);
        return GO_ON;
    }
    channel& line;
};

int run_member(const std::string& group, const std::string& file, channel& test) {
    return ff::testing_groups::run_group(group, file, [&] {
        source first(test);
        sink last(test);
        ff::ff_pipeline whole;
        whole.add_stage(&first);
        whole.add_stage(&last);
        first.createGroup("G1");
        last.createGroup("G2");
        return whole.run_and_wait_end();
    });
}

/// A batch of the pipeline's one edge.
struct frames {
    frames& add(std::uint32_t mark, std::size_t size, std::size_t count = 1) {
        for (; count != 0; --count) {
            put(std::uint32_t{0});
            put(mark);
            put(std::uint64_t{size});
            bytes.resize(bytes.size() + size, std::byte{'x'});
        }
        return *this;
    }
    template <typename T>
    void put(T value) {
        for (std::size_t i = 0; i != sizeof value; ++i)
            bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
    }
    std::vector<std::byte> bytes;
};

class fastflow_liars : public testing::Test {
protected:
    // The victims first: the test has no threads then.
    fastflow_liars() {
        for (const char* which : {"1", "2"})
            victims_.push_back(std::make_unique<child_process>(
                [file = config(which), group = std::string("G") + which](channel& test) {
                    return run_member(group, file, test);
                }));
    }
    std::string at(const std::string& file, const std::string& group) const {
        return "shm://" + folder_.path().substr(folder_.path().rfind('/') + 1) + "-" + file + group;
    }
    std::string config(const std::string& which) const {
        return folder_.with(which + ".json",
                            R"({"groups": [{"name": "G1", "endpoint": ")" + at(which, "1") +
                                R"("}, {"name": "G2", "endpoint": ")" + at(which, "2") + R"("}]})");
    }
    child_process& victim(int group) { return *victims_[static_cast<std::size_t>(group - 1)]; }

    void open(const std::string& uri) {
        over_ = std::make_unique<amalgam::engine>(uri);
        over_->define("ff.failed", [this](std::string why) {
            const std::lock_guard guard(lock_);
            told_ = std::move(why);
            changed_.notify_all();
        });
        over_->define("ff.closed", [](std::uint32_t) {});
        over_->define("ff.credit", [](std::uint32_t, std::uint64_t, std::uint64_t) {});
    }
    /// Plays G2, with the calls that `define` adds; until G1 has joined.
    void be_joined(const std::function<void()>& define = [] {}) {
        open(at("1", "2"));
        define();
        over_->define("ff.join",
                      [this](std::string, std::uint64_t graph, std::vector<std::uint64_t> windows) {
                          const std::lock_guard guard(lock_);
                          graph_ = graph;
                          windows_ = std::move(windows);
                          to_ = amalgam::call_context::current().from();
                          changed_.notify_all();
                      });
        wait([this] { return graph_ != 0; });
    }
    /// Plays G1, which joins G2.
    void join(std::uint64_t with_window) {
        be_joined();  // G1 tells which graph it is.
        victim(1).kill();
        over_.reset();
        open("shm://");
        const auto ask = over_->procedure<wire::join>("ff.join");
        for (bool joined = false; !joined;) {
            const auto found = over_->try_lookup(at("2", "2"));
            if (!found) continue;
            to_ = *found;
            joined = static_cast<bool>(
                ask.on(to_).try_call("G1", graph_, std::vector<std::uint64_t>{with_window}));
        }
    }
    template <typename Ready>
    void wait(Ready ready) {
        std::unique_lock guard(lock_);
        changed_.wait(guard, ready);
    }
    void send(std::uint64_t number, const frames& what) {
        over_->procedure<wire::batch>("ff.batch")
            .on(to_)
            .post(number, const_bytes(what.bytes.data(), what.bytes.size()));
    }
    /// Ends G1's part. The answer says that all of it came.
    void end(std::uint64_t batches) {
        over_->procedure<wire::end>("ff.end").on(to_).call_then(
            [this](const amalgam::result<void>& answer) {
                const std::lock_guard guard(lock_);
                taken_ = static_cast<bool>(answer);
                answered_ = true;
                changed_.notify_all();
            },
            batches);
    }
    /// What G2 says to that. Empty: it took it.
    std::string said_of(const frames& what, std::uint64_t number = 0) {
        send(number, what);
        end(number + 1);
        wait([this] { return !told_.empty() || answered_; });
        return told_;
    }
    void expect_end(int group, int code) {
        victim(group).line().say("go");
        EXPECT_EQ(victim(group).join(), code);
    }

    amalgam::temp_folder folder_;
    std::vector<std::unique_ptr<child_process>> victims_;
    amalgam::peer to_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::uint64_t graph_ = 0;
    std::vector<std::uint64_t> windows_;
    std::string told_;
    bool answered_ = false;
    bool taken_ = false;
    std::unique_ptr<amalgam::engine> over_;  // ends before what its calls use
};

TEST_F(fastflow_liars, as_many_items_as_there_is_room_for_are_taken) {
    join(window);
    EXPECT_EQ(said_of(frames().add(item, 10, window - 1).add(end_of_stream, 0)), "");
    EXPECT_TRUE(taken_);
    expect_end(2, 0);
}
// As a group does that runs its part again before the others have ended.
TEST_F(fastflow_liars, who_has_ended_and_joins_again_is_asked_to_come_later) {
    join(window);
    EXPECT_EQ(said_of(frames().add(end_of_stream, 0)), "");
    const auto again = over_->procedure<wire::join>("ff.join").on(to_).try_call(
        "G1", graph_, std::vector<std::uint64_t>{window});
    ASSERT_FALSE(again);
    EXPECT_EQ(again.why().what.handler_code(), amalgam::errc::unavailable) << again.sentence();
    expect_end(2, 0);
}
TEST_F(fastflow_liars, one_item_more_than_there_is_room_for_ends_the_run_with_the_group_s_name) {
    join(window);
    EXPECT_EQ(said_of(frames().add(item, 10, window + 1)).find("group G1 at "), 0u) << told_;
    EXPECT_NE(told_.find("sent more than there was room for"), std::string::npos) << told_;
    expect_end(2, 1);
}
TEST_F(fastflow_liars, bytes_are_bounded_whatever_the_window) {
    join(any_window);
    EXPECT_NE(said_of(frames().add(item, megabyte, 34)).find("room for"), std::string::npos);
    expect_end(2, 1);
}
TEST_F(fastflow_liars, empty_items_are_bounded_whatever_the_window) {
    join(any_window);
    const std::size_t most = ff::detail::far_edge::most_bytes / wire::item_overhead;
    EXPECT_NE(said_of(frames().add(item, 0, most + 2)).find("room for"), std::string::npos);
    expect_end(2, 1);
}
TEST_F(fastflow_liars, batches_before_their_turn_take_room_too) {
    join(any_window);
    EXPECT_NE(said_of(frames().add(item, megabyte, 34), 1).find("room for"), std::string::npos);
    expect_end(2, 1);
}
TEST_F(fastflow_liars, marks_that_are_not_kept_take_room_before_their_turn) {
    join(window);
    EXPECT_NE(said_of(frames().add(flush, 0, window + 1), 1).find("more than there was room for"),
              std::string::npos);
    expect_end(2, 1);
}
TEST_F(fastflow_liars, marks_that_are_not_kept_take_no_room_after_their_turn) {
    join(window);
    for (std::uint64_t batch = 0; batch != 5; ++batch)
        send(batch, frames().add(flush, 0, window));
    EXPECT_EQ(said_of(frames().add(end_of_stream, 0), 5), "");
    EXPECT_TRUE(taken_);
    expect_end(2, 0);
}
TEST_F(fastflow_liars, a_mark_that_would_be_taken_for_an_item_ends_the_run) {
    join(window);
    EXPECT_NE(said_of(frames().add(7, 0)).find("no batch of items"), std::string::npos) << told_;
    expect_end(2, 1);
}
TEST_F(fastflow_liars, a_mark_with_bytes_ends_the_run) {
    join(window);
    EXPECT_NE(said_of(frames().add(end_of_stream, 1)).find("no batch of items"), std::string::npos)
        << told_;
    expect_end(2, 1);
}
TEST_F(fastflow_liars, who_ends_twice_ends_the_run) {
    join(window);
    end(5);
    end(5);
    wait([this] { return !told_.empty(); });
    EXPECT_NE(told_.find("ended twice"), std::string::npos) << told_;
    expect_end(2, 1);
}
TEST_F(fastflow_liars, a_group_that_ends_without_an_end_of_its_stream_is_named) {
    join(window);
    victim(2).line().say("go");
    send(0, frames().add(item, 10));
    end(1);
    wait([this] { return !told_.empty(); });
    EXPECT_EQ(told_.find("group G1 at "), 0u) << told_;
    EXPECT_NE(told_.find("end of the stream that was not sent"), std::string::npos) << told_;
    EXPECT_EQ(victim(2).join(), 1);
}
TEST_F(fastflow_liars, room_for_what_was_not_sent_ends_the_run_with_the_group_s_name) {
    be_joined();
    over_->procedure<wire::credit>("ff.credit")
        .on(to_)
        .post(std::uint32_t{0}, any_window, std::uint64_t{0});
    wait([this] { return !told_.empty(); });
    EXPECT_EQ(told_.find("group G2 at "), 0u) << told_;
    EXPECT_NE(told_.find("gave back room"), std::string::npos) << told_;
    for (int i = 0; i != 3; ++i)
        victim(1).line().say("go");
    EXPECT_EQ(victim(1).join(), 1);
}
// An item's room may be back before its sender has freed it.
TEST_F(fastflow_liars, room_that_comes_back_at_once_is_not_lost) {
    std::atomic<std::uint64_t> came{0};
    be_joined([&] {
        over_->define("ff.item", [&](std::uint64_t, std::uint32_t edge, const_bytes bytes) {
            over_->procedure<wire::credit>("ff.credit")
                .on(to_)
                .post(edge, std::uint64_t{1}, bytes.size() + wire::item_overhead);
            // Answered after the credit was taken.
            EXPECT_FALSE(over_->procedure<wire::end>("ff.end").on(to_).try_call(0));
            victim(1).line().say("go");
            ++came;
        });
        over_->define("ff.batch", [](std::uint64_t, const_bytes) {});
        over_->define("ff.end", [](std::uint64_t) {});
    });
    EXPECT_EQ(victim(1).join(), 0);
    EXPECT_EQ(came, 3u);
}

}  // namespace

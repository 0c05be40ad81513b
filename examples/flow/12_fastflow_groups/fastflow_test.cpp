#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fastflow.hpp>
#include <amalgam/tasks.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Its sender, its number, and any number of bytes.
struct item {
    std::uint32_t sender = 0;
    std::uint64_t number = 0;
    std::string filling;

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(sender, number, filling);
    }
};

struct make_items : ff::ff_node_t<item> {
    make_items(std::uint32_t who, std::uint64_t how_many, std::size_t bytes = 0)
        : sender(who), items(how_many), filling(bytes, 'x') {}
    item* svc(item*) override {
        for (std::uint64_t i = 0; i < items; ++i) {
            if (before_each) before_each(i);
            ff_send_out(new item{sender, i, filling});
        }
        return EOS;
    }
    std::function<void(std::uint64_t)> before_each;
    std::uint32_t sender;
    std::uint64_t items;
    std::string filling;
};

/// Counts each sender's items, and checks their order.
struct count_items : ff::ff_node_t<item> {
    item* svc(item* what) override {
        const std::unique_ptr<item> owned(what);
        if (count.size() <= what->sender) count.resize(what->sender + 1);
        if (last.size() <= what->sender) last.resize(what->sender + 1);
        if (count[what->sender]++ != 0 && what->number <= last[what->sender]) in_order = false;
        last[what->sender] = what->number;
        bytes += what->filling.size();
        if (on_item) on_item();
        return GO_ON;
    }
    void eosnotify(ssize_t) override { ++ends; }
    std::uint64_t all() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t n : count)
            sum += n;
        return sum;
    }

    std::vector<std::uint64_t> count, last;
    std::size_t bytes = 0;
    bool in_order = true;
    int ends = 0;
    std::function<void()> on_item;
};

/// Records the failure instead of ending the process.
struct kept_failure {
    fastflow_options options() {
        return {.on_failure = [this](const failure& why) {
            std::lock_guard hold(lock);
            sentences.push_back(why.sentence);
        }};
    }
    std::string sentence() {
        std::lock_guard hold(lock);
        return sentences.size() == 1 ? sentences.front()
                                     : std::to_string(sentences.size()) + " failures";
    }
    std::mutex lock;
    std::vector<std::string> sentences;
};

/// A pipeline that runs concurrently with the test.
template <typename... Nodes>
std::future<int> run(Nodes&... nodes) {
    return std::async(std::launch::async, [&] {
        ff::ff_Pipe<> pipe(nodes...);
        return pipe.run_and_wait_end();
    });
}

class fastflow : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(shm, fastflow, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, fastflow, testing::Values("tcp://127.0.0.1:0"));

TEST_P(fastflow, every_item_arrives_once_and_in_order) {
    constexpr std::uint64_t items = 200000;
    fastflow_receiver<item> from(GetParam());
    count_items sink;
    make_items source(0, items);
    fastflow_sender<item> to(from.addresses().front());
    auto there = run(from, sink);
    auto here = run(source, to);
    EXPECT_EQ(here.get(), 0);
    EXPECT_EQ(there.get(), 0);
    EXPECT_EQ(sink.all(), items);
    EXPECT_TRUE(sink.in_order);
    EXPECT_EQ(sink.ends, 1);
    EXPECT_FALSE(from.failed() || to.failed());
}

TEST_P(fastflow, items_of_any_size_arrive) {
    fastflow_receiver<item> from(GetParam());
    count_items sink;
    make_items source(0, 9, 5000000);
    fastflow_sender<item> to(from.addresses().front());
    auto there = run(from, sink);
    run(source, to).get();
    there.get();
    EXPECT_EQ(sink.bytes, 9u * 5000000);
    EXPECT_TRUE(sink.in_order);
}

TEST_P(fastflow, a_receiver_ends_when_all_of_its_senders_have) {
    fastflow_receiver<item> from(GetParam(), 3);
    count_items sink;
    auto there = run(from, sink);
    for (std::uint32_t i = 0; i < 3; ++i) {
        make_items source(i, 1000 * i);
        fastflow_sender<item> to(from.addresses().front());
        EXPECT_EQ(run(source, to).get(), 0);
    }
    there.get();
    EXPECT_EQ(sink.all(), 3000u);
    EXPECT_TRUE(sink.in_order);
    EXPECT_EQ(sink.ends, 1);
}

TEST_P(fastflow, several_receivers_share_the_items_and_each_ends) {
    fastflow_receiver<item> one(GetParam()), other(GetParam());
    count_items first, second;
    auto there = run(one, first), too = run(other, second);
    make_items source(0, 50000);
    fastflow_sender<item> to({one.addresses().front(), other.addresses().front()});
    run(source, to).get();
    there.get();
    too.get();
    EXPECT_EQ(first.all() + second.all(), 50000u);
    EXPECT_GT(first.all(), 0u);
    EXPECT_GT(second.all(), 0u);
    EXPECT_TRUE(first.in_order && second.in_order);
}

TEST_P(fastflow, a_route_says_who_gets_an_item) {
    fastflow_receiver<item> one(GetParam()), other(GetParam());
    count_items first, second;
    auto there = run(one, first), too = run(other, second);
    make_items source(0, 30000);
    fastflow_sender<item> to({one.addresses().front(), other.addresses().front()},
                             [](const item& what) { return what.number % 3 == 0 ? 1 : 0; });
    run(source, to).get();
    there.get();
    too.get();
    EXPECT_EQ(first.all(), 20000u);
    EXPECT_EQ(second.all(), 10000u);
}

TEST_P(fastflow, an_item_does_not_wait_for_the_next_one) {
    // Each item is made once the previous one has arrived.
    fastflow_receiver<item> from(GetParam());
    count_items sink;
    std::atomic<std::uint64_t> arrived{0};
    sink.on_item = [&] {
        ++arrived;
        arrived.notify_all();
    };
    make_items source(0, 100);
    source.before_each = [&](std::uint64_t number) {
        for (std::uint64_t seen = arrived; seen != number; seen = arrived)
            arrived.wait(seen);
    };
    fastflow_sender<item> to(from.addresses().front());
    auto there = run(from, sink);
    run(source, to).get();
    there.get();
    EXPECT_EQ(sink.all(), 100u);
}

TEST_P(fastflow, a_slow_receiver_holds_the_sender_back) {
    std::atomic<std::uint64_t> made{0}, arrived{0}, most{0};
    fastflow_receiver<item> from(GetParam());
    count_items sink;
    sink.on_item = [&] {
        most = std::max(most.load(), made.load() - ++arrived);
        std::this_thread::sleep_for(100us);
    };
    make_items source(0, 4000, 1000);
    source.before_each = [&](std::uint64_t number) { made = number + 1; };
    fastflow_sender<item> to(from.addresses().front(), {.batch_bytes = 4000});
    const auto bounded = [](auto& first, auto& second) {
        ff::ff_Pipe<> pipe(first, second);
        pipe.setXNodeInputQueueLength(16, true);
        pipe.setXNodeOutputQueueLength(16, true);
        return pipe.run_and_wait_end();
    };
    auto there = std::async(std::launch::async, [&] { return bounded(from, sink); });
    bounded(source, to);
    there.get();
    EXPECT_EQ(sink.all(), 4000u);
    // Five batches of four or five items, and two queues.
    EXPECT_LT(most, 200u);
}

TEST_P(fastflow, ends_of_different_types_are_refused_with_both_names) {
    kept_failure wrong;
    fastflow_receiver<float> from(GetParam());
    make_items source(0, 10);
    fastflow_sender<item> to(from.addresses().front(), wrong.options());
    EXPECT_EQ(run(source, to).get(), 0);
    EXPECT_NE(wrong.sentence().find("f32"), std::string::npos) << wrong.sentence();
}

/// The 700th cannot be deserialized.
struct broken : item {
    template <typename Archive>
    void serialize(Archive& archive) {
        item::serialize(archive);
        if (Archive::loading && number == 700) throw std::runtime_error("not this one");
    }
};

TEST_P(fastflow, an_item_that_cannot_be_read_fails_both_ends_with_its_words) {
    struct make_broken : ff::ff_node_t<broken> {
        broken* svc(broken*) override {
            for (std::uint64_t i = 0; i < 1000; ++i)
                ff_send_out(new broken{{0, i, ""}});
            return EOS;
        }
    } source;
    struct count_broken : ff::ff_node_t<broken> {
        broken* svc(broken* what) override {
            delete what;
            ++count;
            return GO_ON;
        }
        std::uint64_t count = 0;
    } sink;
    kept_failure here, there;
    fastflow_receiver<broken> from(GetParam(), 1, there.options());
    fastflow_sender<broken> to(from.addresses().front(), here.options());
    auto reading = run(from, sink);
    run(source, to).get();
    reading.get();
    EXPECT_EQ(sink.count, 700u);
    EXPECT_EQ(there.sentence(), "cannot decode an item: not this one");
    EXPECT_NE(here.sentence().find("failed: cannot decode an item"), std::string::npos)
        << here.sentence();
}

TEST_P(fastflow, who_is_not_there_in_time_is_named) {
    kept_failure wrong;
    fastflow_options options = wrong.options();
    options.join_limit = 50ms;
    std::string nobody;
    {
        fastflow_receiver<item> gone(GetParam());
        nobody = gone.addresses().front();
    }
    make_items source(0, 10);
    fastflow_sender<item> to(nobody, options);
    run(source, to).get();
    EXPECT_NE(wrong.sentence().find(nobody), std::string::npos) << wrong.sentence();
}

TEST_P(fastflow, a_receiver_that_no_sender_joins_says_how_many_are_missing) {
    kept_failure wrong;
    fastflow_options options = wrong.options();
    options.join_limit = 50ms;
    fastflow_receiver<item> from(GetParam(), 2, options);
    count_items sink;
    run(from, sink).get();
    EXPECT_EQ(wrong.sentence().find("0 of 2 senders joined"), 0u) << wrong.sentence();
    EXPECT_EQ(sink.ends, 1);
}

TEST_P(fastflow, a_failure_is_told_to_the_other_end_with_its_words) {
    kept_failure here, there;
    fastflow_receiver<item> from(GetParam(), 1, there.options());
    count_items sink;
    make_items source(0, 1000000);
    fastflow_sender<item> to(from.addresses().front(), here.options());
    sink.on_item = [&] {
        if (sink.all() == 1000) from.fail("the disk is full");
    };
    auto reading = run(from, sink);
    EXPECT_EQ(run(source, to).get(), 0);
    reading.get();
    EXPECT_EQ(there.sentence(), "the disk is full");
    EXPECT_NE(here.sentence().find("failed: the disk is full"), std::string::npos)
        << here.sentence();
}

TEST_P(fastflow, a_sender_that_ends_early_is_lost_to_its_receiver) {
    kept_failure wrong;
    fastflow_receiver<item> from(GetParam(), 1, wrong.options());
    count_items sink;
    auto there = run(from, sink);
    {
        // Never finishes, as in a process that exits early.
        fastflow_sender<item> to(from.addresses().front());
        to.svc_init();
        to.svc(new item);
    }
    there.get();
    EXPECT_NE(wrong.sentence().find("lost contact with"), std::string::npos) << wrong.sentence();
    EXPECT_EQ(sink.ends, 1);
}

TEST_P(fastflow, a_receiver_that_is_destroyed_early_refuses_what_had_come) {
    kept_failure wrong;
    std::optional<fastflow_receiver<item>> from(std::in_place, GetParam());
    fastflow_sender<item> to(from->addresses().front(), wrong.options());
    EXPECT_EQ(to.svc_init(), 0);
    to.svc(new item);
    from.reset();
    to.svc_end();
    EXPECT_NE(wrong.sentence().find("the receiver at"), std::string::npos) << wrong.sentence();
}

TEST_P(fastflow, a_failed_sender_takes_what_still_comes) {
    kept_failure here, there;
    fastflow_receiver<item> from(GetParam(), 1, there.options());
    count_items sink;
    make_items source(0, 100000, 100);
    fastflow_sender<item> to(from.addresses().front(), here.options());
    event some_came;
    sink.on_item = [&] { some_came.set(); };
    source.before_each = [&](std::uint64_t number) {
        if (number != 5000) return;
        some_came.wait();
        to.fail("no more of this");
    };
    auto reading = run(from, sink);
    EXPECT_EQ(run(source, to).get(), 0);
    reading.get();
    EXPECT_EQ(here.sentence(), "no more of this");
    EXPECT_NE(there.sentence().find("sender 1 of 1 failed: no more of this"), std::string::npos)
        << there.sentence();
    EXPECT_LT(sink.all(), 100000u);
}

TEST_P(fastflow, workers_of_an_all_to_all_may_be_ends) {
    fastflow_receiver<item> from(GetParam(), 2);
    count_items sink;
    auto there = run(from, sink);
    make_items left(0, 1000), right(1, 2000);
    fastflow_sender<item> one(from.addresses().front()), other(from.addresses().front());
    ff::ff_a2a both;
    both.add_firstset(std::vector<ff::ff_node*>{&left, &right});
    both.add_secondset(std::vector<ff::ff_node*>{&one, &other});
    EXPECT_EQ(both.run_and_wait_end(), 0);
    there.get();
    EXPECT_EQ(sink.all(), 3000u);
    EXPECT_EQ(sink.ends, 1);
}

TEST(fastflow_addresses, are_checked_at_once) {
    EXPECT_THROW(fastflow_sender<item>(std::vector<std::string>{}), error);
    EXPECT_THROW(fastflow_sender<item>("tcp://127.0.0.1:99999"), error);
    EXPECT_THROW(fastflow_receiver<item>("tcp://"), error);
}

}  // namespace
}  // namespace amalgam

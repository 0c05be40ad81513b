#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/extension/mail.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "directory/client/context_core.hpp"
#include "directory/protocol/procedures.hpp"

// Posted messages, which are mail and no calls.
namespace amalgam {
namespace {

using detail::at_context::mail_header;

const_bytes bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

struct mail_test : testing::Test {
    static context_options at(const engine& directory) {
        return {.directory = directory.address()};
    }
    static void send(engine& from, const std::string& to, const mail_header& head,
                     const std::string& text) {
        detail::post_mail(from.core(), from.lookup(to), {head.encode(), bytes_of(text)});
    }
};

TEST_F(mail_test, of_a_process_that_the_engine_does_not_allow_is_dropped) {
    engine host("shm://"), stranger("shm://");
    engine where("shm://", {.allow = allow_list{.uids = {::geteuid() + 1}}});
    const directory_server directory(host);
    context mine(where, at(host));
    const resource to = mine.add({{"type", "to"}});
    const auto denied = [&] {
        std::uint64_t all = 0;
        for (const auto& [name, value] : where.counters().snapshot())
            if (name == "rpc.denied") all = value;
        return all;
    };
    const auto before = denied();
    send(stranger, where.address(), {resource_id{77}, to.id(), 1}, "let me in");
    while (denied() == before)
        std::this_thread::yield();
    EXPECT_FALSE(to.try_receive());
}

TEST_F(mail_test, of_any_length_and_for_anybody_harms_nobody) {
    engine host("shm://"), stranger("shm://"), where("shm://");
    const directory_server directory(host);
    context mine(where, at(host));
    const resource to = mine.add({{"type", "to"}});
    const peer there = stranger.lookup(where.address());
    const std::string whole(40, '\xff');
    for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes)
        detail::post_mail(stranger.core(), there, {bytes_of(whole).first(bytes)});
    // Nobody takes the stranger's own.
    detail::post_mail(where.core(), where.lookup(stranger.address()), {bytes_of(whole)});
    send(stranger, where.address(), {resource_id{77}, to.id(), -3}, "well formed");
    const resource_message got = to.receive();
    EXPECT_EQ(got.from, resource_id{77});
    EXPECT_EQ(got.tag, -3);
    EXPECT_EQ(got.content.text(), "well formed");
    // A resource of this context can only write from here.
    send(stranger, where.address(), {to.id(), to.id(), 1}, "a lie");
    send(stranger, where.address(), {resource_id{77}, to.id(), 2}, "the end");
    EXPECT_EQ(to.receive().content.text(), "the end");
}

TEST_F(mail_test, keeps_its_order_between_two_resources_from_whatever_thread) {
    engine host("shm://");
    const directory_server directory(host);
    context one("shm://", at(host)), two("shm://", at(host));
    const resource to = one.add({{"type", "to"}}), from = two.add({{"type", "from"}});
    constexpr int all = 3000;
    std::thread([&] {
        for (int i = 0; i < all; ++i) {
            const std::string text(static_cast<std::size_t>(i) % 2000, 'x');
            // A sent one in between has those before it in front of it.
            i % 100 == 99 ? from.send(to.id(), i, text) : from.post(to.id(), i, text);
        }
    }).join();
    for (int i = 0; i < all; ++i) {
        const resource_message got = to.receive();
        ASSERT_EQ(got.tag, i);
        ASSERT_EQ(got.content.size(), static_cast<std::size_t>(i) % 2000);
    }
}

TEST_F(mail_test, has_a_checksum_where_messages_have_and_is_told_when_nobody_is_there) {
    for (const bool checked : {false, true}) {
        engine host("shm://", {.checksum = checked});
        const directory_server directory(host);
        engine here("shm://", {.checksum = checked}), there("shm://", {.checksum = checked});
        channel<undelivered_message> lost(8);
        context_options options = at(host);
        options.on_undelivered = [&](const undelivered_message& which) { lost.try_push(which); };
        context one(here, options), two(there, at(host));
        const resource from = one.add({{"type", "from"}});
        resource to = two.add({{"type", "to"}});
        from.post(to.id(), 1, "hello");
        EXPECT_EQ(to.receive().content.text(), "hello");
        const resource_id gone = to.id();
        to = resource();
        from.post(gone, 5, "hello?");
        const auto told = lost.pop();
        ASSERT_TRUE(told);
        EXPECT_EQ(told->to, gone);
        EXPECT_EQ(told->tag, 5);
        EXPECT_EQ(told->why, errc::not_found);
    }
}

TEST_F(mail_test, longer_than_a_message_may_be_comes_by_rendezvous) {
    engine host("shm://");
    const directory_server directory(host);
    context_options options = at(host);
    options.eager_bytes = std::size_t{8} << 20;
    context one("shm://", options), two("shm://", options);
    const resource to = one.add({{"type", "to"}}), from = two.add({{"type", "from"}});
    const std::string text(std::size_t{4} << 20, 'y');
    from.post(to.id(), 1, text);
    EXPECT_EQ(to.receive().content.text(), text);
}

TEST_F(mail_test, stays_in_order_while_its_receiver_stands_still) {
    engine host("shm://"), here("shm://");
    engine there("shm://", {.progress = {.by = progress_by::caller}});
    const directory_server directory(host);
    const auto run_there = [&](auto work) {
        future<void> done = there.spawn(work);
        while (!done.ready())
            there.progress();
        done.get();
    };
    context one(here, at(host));
    const resource from = one.add({{"type", "from"}});
    std::optional<context> two;
    std::optional<resource> to;
    run_there([&] {
        two.emplace(there, at(host));
        to.emplace(two->add({{"type", "to"}}));
        to->post(from.id(), 0, "so that both know each other");
    });
    const resource_id whom = from.receive().from;
    // More than a ring takes, so that some wait in the queue, and in the end the sender does.
    constexpr int all = 20000;
    const auto length = [](int i) { return static_cast<std::size_t>(i % 7 == 0 ? 100 : i % 9); };
    const future<void> sent = here.spawn([&] {
        for (int i = 0; i < all; ++i)
            from.post(whom, i, std::string(length(i), 'x'));
    });
    const auto waits = [] {
        const std::vector<ult_info> ults = list_ults();
        return std::any_of(ults.begin(), ults.end(), [](const ult_info& each) {
            return each.waits_for == "room in an rpc queue";
        });
    };
    while (!waits() && !sent.ready())
        std::this_thread::yield();
    EXPECT_FALSE(sent.ready()) << "it was to wait";
    for (int i = 0; i < all; ++i) {
        std::optional<resource_message> got;
        while (!(got = to->try_receive()))
            there.progress();
        ASSERT_EQ(got->tag, i);
        ASSERT_EQ(got->content.size(), length(i));
    }
    run_there([&] {
        to.reset();
        two.reset();
    });
}

/// Contexts that write to each other at random, with little room. Each message has a number, which
/// grows from one resource to another.
class crowd_of_writers {
public:
    explicit crowd_of_writers(std::uint64_t seed) : random_(seed) {
        for (std::size_t i = 0; i < contexts; ++i) {
            engines_.push_back(std::make_unique<engine>("shm://"));
            context_options options{.directory = host_.address()};
            options.store_bytes = 40 * 256;
            options.eager_bytes = 1000;
            options.on_undelivered = [this](const undelivered_message& which) {
                const std::lock_guard one(lock_);
                EXPECT_TRUE(lost_.emplace(which.from, which.to, which.tag).second) << which.tag;
            };
            contexts_.push_back(std::make_unique<context>(*engines_.back(), options));
            for (std::size_t each = 0; each < of_each; ++each)
                all_.push_back(contexts_.back()->add({{"type", "one"}}));
        }
        for (const resource& each : all_)
            ids_.push_back(each.id());
    }

    void run() {
        const bool closes = random_.chance(0.5);
        std::atomic<std::size_t> writing{all_.size()};
        std::vector<std::thread> writers, readers;
        std::vector<future<void>> ults;
        std::vector<std::thread> closers;
        for (std::size_t i = 0; i < all_.size(); ++i) {
            const auto write = [this, i, seed = random_(), &writing] {
                write_from(i, seed);
                --writing;
            };
            if (i % 2 == 0)
                writers.emplace_back(write);
            else
                ults.push_back(engines_[i / of_each]->spawn(write));
        }
        // Nobody reads before something found no room.
        while (undelivered_count() == 0 && writing != 0)
            std::this_thread::yield();
        for (std::size_t i = 0; i < all_.size(); ++i)
            readers.emplace_back([this, i] { read_at(i); });
        if (closes) closers.emplace_back([this] { close_one(); });
        for (std::thread& each : writers)
            each.join();
        for (future<void>& each : ults)
            each.get();
        for (std::thread& each : closers)
            each.join();
        while (!is_all_told())
            std::this_thread::yield();
        over_ = true;
        for (std::thread& each : readers)
            each.join();
        check();
    }

private:
    static constexpr std::size_t contexts = 3;
    static constexpr std::size_t of_each = 2;
    static constexpr int most = 200;
    using pair = std::pair<resource_id, resource_id>;
    using numbered = std::tuple<resource_id, resource_id, std::int32_t>;

    void write_from(std::size_t i, std::uint64_t seed) {
        seeded_random random(seed);
        std::map<std::size_t, std::int32_t> last;
        std::vector<future<void>> started;
        for (int step = 0; step < most; ++step) {
            const std::size_t to = random.below(all_.size());
            const std::int32_t number = ++last[to];
            const std::string text(random.below(random.chance(0.7) ? 12 : 900), 'x');
            const numbered one{ids_[i], ids_[to], number};
            // What ends well was stored; a post that did not throw was, or is told.
            try {
                const std::size_t kind = random.below(10);
                if (kind < 7) {
                    all_[i].post(ids_[to], number, text);
                    note(posted_, one);
                } else if (kind < 9 || step < most / 2) {
                    message_buffer content = contexts_[i / of_each]->take_buffer(text.size());
                    std::copy_n(bytes_of(text).data(), text.size(), content.data());
                    started.push_back(all_[i].start_send(ids_[to], number, std::move(content)));
                    // All that follow are behind it. Its outcome is looked at in the end.
                    note(may_come_, one);
                } else {
                    all_[i].send(ids_[to], number, text);
                    note(stored_, one);
                }
            } catch (const error& why) {
                note(may_come_, one);
                if (ids_[to] != closing_ && ids_[i] != closing_) {
                    EXPECT_EQ(why.code(), errc::overloaded) << why.what();
                }
            }
        }
        for (future<void>& each : started) {
            try {
                each.get();
            } catch (const error& why) {
                if (closing_ == resource_id::none) ADD_FAILURE() << why.what();
            }
        }
    }
    void read_at(std::size_t i) {
        while (!over_) {
            try {
                const auto got = all_[i].receive_within(std::chrono::milliseconds(1));
                if (!got) continue;
                const std::lock_guard one(lock_);
                std::int32_t& before = received_[{got->from, got->to}];
                EXPECT_LT(before, got->tag) << "twice, or in the wrong order";
                before = got->tag;
                came_.emplace(got->from, got->to, got->tag);
            } catch (const error& why) {
                EXPECT_EQ(ids_[i], closing_) << why.what();
                return;
            }
        }
    }
    /// Its messages go with it.
    void close_one() {
        while (undelivered_count() < 20 && !over_)
            std::this_thread::yield();
        closing_ = ids_.back();
        contexts_.back()->core().remove(ids_.back());
    }
    void note(std::set<numbered>& where, const numbered& which) {
        const std::lock_guard one(lock_);
        where.insert(which);
    }
    std::size_t undelivered_count() {
        const std::lock_guard one(lock_);
        return lost_.size();
    }
    bool is_all_told() {
        const std::lock_guard one(lock_);
        const auto is_over = [&](const numbered& each) {
            return std::get<1>(each) == closing_ || std::get<0>(each) == closing_ ||
                   came_.contains(each) || lost_.contains(each);
        };
        return std::all_of(posted_.begin(), posted_.end(), is_over) &&
               std::all_of(stored_.begin(), stored_.end(), is_over);
    }
    void check() {
        const std::lock_guard one(lock_);
        for (const numbered& each : lost_) {
            EXPECT_FALSE(came_.contains(each)) << "it came, and was told to be lost";
            EXPECT_FALSE(stored_.contains(each));
        }
        for (const numbered& each : came_)
            EXPECT_TRUE(posted_.contains(each) || stored_.contains(each) ||
                        may_come_.contains(each));
    }

    seeded_random random_;
    engine host_{"shm://"};
    directory_server directory_{host_};
    std::mutex lock_;
    std::map<pair, std::int32_t> received_;
    std::set<numbered> posted_, stored_, may_come_, lost_, came_;
    std::vector<std::unique_ptr<engine>> engines_;
    std::vector<std::unique_ptr<context>> contexts_;
    std::vector<resource> all_;
    std::vector<resource_id> ids_;
    std::atomic<resource_id> closing_{resource_id::none};
    std::atomic<bool> over_{false};
};

TEST_F(mail_test, of_many_at_once_with_little_room_comes_once_and_in_order_or_is_told) {
    for (std::uint64_t seed = 1; seed <= 6 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        crowd_of_writers(seed).run();
    }
}

TEST_F(mail_test, ends_with_its_context) {
    engine host("shm://"), where("shm://");
    const directory_server directory(host);
    context two("shm://", at(host));
    const resource from = two.add({{"type", "from"}});
    std::atomic<bool> over{false};
    std::atomic<resource_id> to{resource_id::none};
    std::thread sender([&] {
        while (!over) {
            try {
                from.post(to, 1, "x");
            } catch (const error&) {
                // There is none at times.
            }
        }
    });
    for (int i = 0; i < 30; ++i) {
        context mine(where, at(host));
        const resource here = mine.add({{"type", "to"}});
        to = here.id();
        (void)here.receive();
    }
    over = true;
    sender.join();
}

}  // namespace
}  // namespace amalgam

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/client/context_core.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Threads use a context's resource while another thread ends the context.
class context_end : public testing::Test {
protected:
    context_end()
        : eater_([this] {
              while (code_of([&] { (void)box_.receive(); }) == errc::ok) {
              }
          }) {}
    ~context_end() override {
        one_.reset();
        eater_.join();
    }

    context_options at() { return {.directory = host_.address()}; }
    std::unique_ptr<context> open() { return std::make_unique<context>("shm://", at()); }
    resource_id box() const { return box_.id(); }
    message_buffer take_buffer(std::size_t bytes) { return one_->take_buffer(bytes); }

    using use = std::function<void(const resource&, int)>;
    /// What ended a loop of `what`.
    static error end_of(const use& what, const resource& mine, std::atomic<int>& done) {
        std::optional<error> end;
        for (int i = 0; !end; ++i) {
            try {
                what(mine, i);
                ++done;
            } catch (const error& why) {
                end = why;
            }
            done.notify_all();
        }
        done = never;
        done.notify_all();
        return *end;
    }
    static void wait_for(const std::atomic<int>& done, int most) {
        for (int now = done; now < most; now = done)
            done.wait(now);
    }

    /// In each round a context ends a little later within such a loop, which ends with `closed`.
    void ends_as_closed(const use& what) {
        for (int round = 0; round < rounds; ++round) {
            auto mine = open();
            const std::weak_ptr<detail::context_core> core = mine->core().weak_from_this();
            std::optional<resource> used(mine->add({{"type", "used"}}));
            std::atomic<int> done = 0;
            std::optional<error> end;
            std::thread user([&] { end = end_of(what, *used, done); });
            wait_for(done, round % 7);
            mine.reset();
            user.join();
            ASSERT_EQ(end->code(), errc::closed) << end->what();
            ASSERT_STREQ(end->what(), "this context is closed; make a new one");
            used.reset();
            ASSERT_TRUE(core.expired()) << "something keeps its engine";
        }
    }

    static constexpr int rounds = 40;
    static constexpr int never = 1 << 30;
    const std::string long_text_ = std::string(200'000, 'x');

private:
    engine host_{"shm://", {.name = "directory"}};
    directory_server directory_{host_};
    std::unique_ptr<context> one_ = std::make_unique<context>("shm://", at());
    resource box_ = one_->add({{"type", "box"}});
    std::thread eater_;
};

TEST_F(context_end, during_a_send_it_is_closed) {
    ends_as_closed([&](const resource& mine, int) { mine.send(box(), 1, "x"); });
    ends_as_closed([&](const resource& mine, int) { mine.send(box(), 1, "x", 10s); });
}

TEST_F(context_end, during_a_long_send_it_is_closed) {
    ends_as_closed([&](const resource& mine, int) { mine.send(box(), 1, long_text_); });
    ends_as_closed([&](const resource& mine, int) { mine.send(box(), 1, long_text_, 10s); });
}

TEST_F(context_end, during_a_post_it_is_closed) {
    ends_as_closed([&](const resource& mine, int) { mine.post(box(), 1, "x"); });
    ends_as_closed([&](const resource& mine, int) { mine.post(box(), 1, long_text_); });
}

TEST_F(context_end, what_was_begun_is_closed) {
    ends_as_closed([&](const resource& mine, int) {
        std::vector<future<void>> begun;
        for (const std::size_t bytes : {10, 100, 50'000, 10})
            begun.push_back(mine.start_send(box(), 1, take_buffer(bytes)));
        for (auto& each : begun)
            each.get();
    });
}

TEST_F(context_end, during_a_receive_it_is_closed) {
    ends_as_closed([&](const resource& mine, int i) {
        if (i < 6) return;
        (void)mine.receive();
    });
    ends_as_closed([&](const resource& mine, int) { (void)mine.receive_within(1ns); });
    ends_as_closed([&](const resource& mine, int) { (void)mine.try_receive(); });
}

TEST_F(context_end, while_attributes_change_it_is_closed) {
    ends_as_closed([&](const resource& mine, int i) { mine.set({{"load", std::to_string(i)}}); });
}

TEST_F(context_end, in_a_ult_of_another_engine_it_is_closed) {
    engine other("shm://");
    for (int round = 0; round < rounds; ++round) {
        auto mine = open();
        resource used = mine->add({});
        std::atomic<int> done = 0;
        auto end = other.spawn([&] {
            const resource last = std::move(used);  // Its engine is freed here.
            const error why = end_of(
                [&](const resource& by, int i) { by.send(box(), i, long_text_); }, last, done);
            return std::pair(why.code().code, std::string(why.what()));
        });
        wait_for(done, round % 7);
        mine.reset();
        ASSERT_EQ(end.get(),
                  std::pair(errc::closed, std::string("this context is closed; make a new one")));
    }
}

TEST_F(context_end, on_an_engine_of_the_users_it_is_closed_too) {
    engine on("shm://");
    for (int round = 0; round < rounds; ++round) {
        auto mine = std::make_unique<context>(on, at());
        const resource used = mine->add({});
        std::atomic<int> done = 0;
        std::optional<error> end;
        std::thread user([&] {
            const auto either = [&](const resource& by, int i) {
                i % 2 == 0 ? by.send(box(), i, "x") : by.post(box(), i, long_text_);
            };
            end = end_of(either, used, done);
        });
        wait_for(done, round % 7);
        mine.reset();
        user.join();
        ASSERT_EQ(end->code(), errc::closed) << end->what();
    }
}

TEST_F(context_end, in_its_own_ult_it_ends_what_others_do) {
    for (int round = 0; round < rounds; ++round) {
        auto mine = open();
        const resource used = mine->add({});
        std::atomic<int> done = 0;
        std::optional<error> end;
        std::thread user([&] {
            end = end_of([&](const resource& by, int i) { by.send(box(), i, long_text_); }, used,
                         done);
        });
        wait_for(done, round % 7);
        engine& on = mine->where();
        post(on.pool(), [last = std::move(mine)]() mutable { last.reset(); });
        user.join();
        ASSERT_EQ(end->code(), errc::closed) << end->what();
    }
}

// A ULT that its engine's end would cancel must not keep that engine from ending.
TEST_F(context_end, ends_a_ult_that_holds_its_resource_and_waits) {
    auto mine = open();
    event never_set;
    auto waits = mine->where().spawn([&, used = mine->add({})] {
        try {
            never_set.wait();
        } catch (const error& why) {
            EXPECT_EQ(why.code(), errc::canceled);
            EXPECT_EQ(code_of([&] { used.send(box(), 1, "x"); }), errc::closed);
            throw;
        }
    });
    mine.reset();
    EXPECT_NE(waits.wait().code, errc::ok);
}

TEST_F(context_end, resources_searches_and_watches_may_end_beside_it) {
    for (int round = 0; round < rounds; ++round) {
        auto mine = open();
        std::vector<resource> all;
        for (int i = 0; i < 8; ++i)
            all.push_back(mine->add({{"type", "one"}}));
        std::atomic<int> searched = 0, removed = 0, unwatched = 0;
        std::optional<error> end;
        auto search = mine->search({{"type", "one"}});
        std::vector<resource_watch> watches;
        for (int i = 0; i < 8; ++i)
            watches.push_back(mine->watch({{"type", "one"}}, [](const resource_change&) {}));
        std::thread seeks([&] {
            try {
                while (search.next())
                    ++searched;
            } catch (const error& why) {
                end = why;
            }
        });
        const auto drop = [](auto& those, std::atomic<int>& count) {
            while (!those.empty()) {
                those.pop_back();
                ++count;
                count.notify_all();
            }
        };
        std::thread removes([&] { drop(all, removed); });
        std::thread unwatches([&] { drop(watches, unwatched); });
        wait_for(removed, round % 7);
        mine.reset();
        for (std::thread* each : {&seeks, &removes, &unwatches})
            each->join();
        if (end) {
            ASSERT_EQ(end->code(), errc::closed) << end->what();
        }
    }
}

}  // namespace
}  // namespace amalgam

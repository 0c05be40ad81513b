#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>

namespace amalgam {
namespace {

TEST(ult_local, is_each_ults_own_across_yields) {
    execution_stream stream(execution_stream_options{.driven = true});
    ult_local<int> mine;
    for (int i = 0; i < 20; ++i) {
        post(stream, [&, i] {
            EXPECT_EQ(*mine, 0);  // even on a reused stack
            *mine = i;
            this_task::yield();
            EXPECT_EQ(*mine, i);
        });
        if (i % 5 == 4) stream.run_ready();
    }
    EXPECT_EQ(*mine, 0);
}

TEST(ult_local, moves_with_its_ult_and_keeps_its_address) {
    execution_stream left, right;
    ult_local<std::string> mine([] { return std::string("new"); });
    spawn(left, [&] {
        std::string* const before = &*mine;
        *mine += " and changed";
        this_task::migrate(right.main_pool());
        EXPECT_EQ(&*mine, before);
        EXPECT_EQ(mine->size(), 15u);
    }).join();
    spawn(left, [&] { EXPECT_EQ(*mine, "new"); }).join();
}

TEST(ult_local, is_destroyed_when_its_ult_ends_youngest_first) {
    execution_stream stream(execution_stream_options{.driven = true});
    std::string order;
    struct notice {
        std::string* order;
        char name;
        event* wait_for;
        notice(std::string* to, char c, event* until) : order(to), name(c), wait_for(until) {}
        notice(notice&& other) noexcept
            : order(std::exchange(other.order, nullptr)),
              name(other.name),
              wait_for(other.wait_for) {}
        ~notice() {
            if (order == nullptr) return;
            if (wait_for != nullptr) wait_for->wait();  // still in the ULT
            *order += name;
        }
    };
    event go;
    ult_local<notice> first([&] { return notice(&order, 'a', nullptr); });
    auto second = std::make_unique<ult_local<notice>>([&] { return notice(&order, 'b', &go); });
    ult task = spawn(stream, [&] {
        first.get();
        second->get();
        throw std::runtime_error("values go all the same");
    });
    stream.run_ready();
    second.reset();  // the variable may be destroyed before its values
    EXPECT_EQ(order, "");
    go.set();
    stream.run_ready();
    EXPECT_EQ(order, "ba");
    EXPECT_THROW(task.join(), std::runtime_error);
}

TEST(ult_local, made_by_a_destructor_of_another_is_destroyed_too) {
    execution_stream stream;
    ult_local<std::shared_ptr<int>> late;
    const auto shared = std::make_shared<int>(1);
    struct uses_another {
        ult_local<std::shared_ptr<int>>* other = nullptr;
        std::shared_ptr<int> value;
        uses_another() = default;
        uses_another(uses_another&&) = default;
        ~uses_another() {
            if (other != nullptr) **other = value;
        }
    };
    ult_local<uses_another> first;
    spawn(stream, [&] {
        first->other = &late;
        first->value = shared;
    }).join();
    EXPECT_EQ(shared.use_count(), 1);
    spawn(stream, [&] { EXPECT_EQ(*late, nullptr); }).join();
}

TEST(ult_local, has_a_value_for_each_plain_thread_and_for_a_streams_tasklets) {
    ult_local<int> mine;
    *mine = 1;
    std::thread([&] { EXPECT_EQ((*mine)++, 0); }).join();
    execution_stream stream;
    spawn_tasklet(stream, [&] { EXPECT_EQ((*mine)++, 0); }).join();
    spawn_tasklet(stream, [&] { EXPECT_EQ(*mine, 1); }).join();
    EXPECT_EQ(*mine, 1);
}

TEST(ult_local, is_that_of_the_streams_thread_in_timer_callbacks_and_pollers) {
    execution_stream stream(execution_stream_options{.driven = true});
    ult_local<int> mine;
    *mine = 1;  // This thread drives the stream.
    struct alarm final : timer {
        alarm(execution_stream& where, ult_local<int>& what)
            : timer(where, [](timer& self) noexcept { *static_cast<alarm&>(self).mine += 10; }),
              mine(what) {}
        ult_local<int>& mine;
    } rings(stream, mine);
    struct source final : poller {
        explicit source(ult_local<int>& what) : mine(what) {}
        std::size_t poll() noexcept override {
            if (std::exchange(polled, true)) return 0;
            *mine += 100;
            return 1;
        }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }
        ult_local<int>& mine;
        bool polled = false;
    } polled(mine);
    int of_ult = 1;
    post(stream, [&] { of_ult = *mine; });
    rings.arm(stream.now());
    stream.add_poller(polled);
    stream.run_ready();
    stream.remove_poller(polled);
    EXPECT_EQ(*mine, 111);
    EXPECT_EQ(of_ult, 0);
}

TEST(ult_local, that_could_not_be_made_is_tried_again) {
    execution_stream stream;
    int tries = 0;
    ult_local<int> mine([&] {
        if (++tries == 1) throw std::runtime_error("not yet");
        return 7;
    });
    spawn(stream, [&] {
        EXPECT_THROW(mine.get(), std::runtime_error);
        EXPECT_EQ(*mine, 7);
    }).join();
}

}  // namespace
}  // namespace amalgam

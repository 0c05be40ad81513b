#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/shared_mutex.hpp>

#include "tasks/streams/stream_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct shared_mutex_in_turn : driven_stream_test {
    /// A reader that logs its entry and stays until the next round but one of the stream.
    void post_reader(char name) {
        run([this, name] {
            const std::shared_lock hold(guard);
            seen += name;
            stay.wait();
        });
    }
    void post_writer(char name) {
        run([this, name] {
            const std::lock_guard hold(guard);
            seen += name;
            stay.wait();
        });
    }
    void let_out() {
        stay.set();
        stay.reset();
        run();
    }
    shared_mutex guard;
    event stay;
};

TEST_F(shared_mutex_in_turn, readers_share_it_and_a_writer_has_it_alone) {
    post_reader('r');
    post_reader('s');
    post_writer('W');
    EXPECT_EQ(news(), "rs");
    EXPECT_FALSE(guard.try_lock());
    let_out();
    EXPECT_EQ(news(), "W");
    EXPECT_FALSE(guard.try_lock());
    EXPECT_FALSE(guard.try_lock_shared());
    let_out();
    EXPECT_TRUE(guard.try_lock_shared());
    EXPECT_TRUE(guard.try_lock_shared());
    EXPECT_FALSE(guard.try_lock());
    guard.unlock_shared();
    guard.unlock_shared();
    EXPECT_TRUE(guard.try_lock());
    guard.unlock();
}

TEST_F(shared_mutex_in_turn, neither_readers_nor_writers_pass_who_waits) {
    post_reader('a');
    post_writer('B');
    post_reader('c');
    post_reader('d');
    post_writer('E');
    post_reader('f');
    EXPECT_EQ(news(), "a");
    EXPECT_FALSE(guard.try_lock_shared());  // B came before
    for (const char* next : {"B", "cd", "E", "f"}) {
        let_out();
        EXPECT_EQ(news(), next);
    }
    let_out();
}

TEST_F(shared_mutex_in_turn, a_writer_that_gives_up_lets_the_readers_behind_it_in) {
    post_reader('a');
    run([&] { seen += guard.try_lock_for(10ms) ? "B" : "late "; });
    post_reader('c');
    advance(9ms);
    EXPECT_EQ(news(), "a");
    advance(1ms);
    EXPECT_EQ(news(), "late c");
    let_out();
    EXPECT_TRUE(guard.try_lock());
    guard.unlock();
}

TEST_F(shared_mutex_in_turn, a_reader_gives_up_at_its_deadline_too) {
    post_writer('A');
    run([&] {
        const std::shared_lock hold(guard, time.now() + 10ms);
        seen += hold.owns_lock() ? "b" : "late ";
    });
    run([&] { seen += guard.try_lock_shared_for(20ms) ? "c" : "late "; });
    advance(10ms);
    EXPECT_EQ(news(), "Alate ");
    let_out();
    EXPECT_EQ(news(), "c");
    guard.unlock_shared();
}

detached_coroutine enter(shared_mutex& guard, bool writes, std::string& seen) {
    if (writes) {
        co_await guard.start_lock();
        seen += 'W';
        guard.unlock();
    } else {
        co_await guard.start_lock_shared();
        seen += 'r';
        guard.unlock_shared();
    }
}

TEST_F(shared_mutex_in_turn, coroutines_wait_in_the_same_line) {
    post_writer('A');
    run([&] { enter(guard, false, seen); });
    run([&] { enter(guard, true, seen); });
    run([&] { enter(guard, false, seen); });
    EXPECT_EQ(news(), "A");
    let_out();
    EXPECT_EQ(news(), "rWr");
}

TEST(shared_mutex, keeps_writers_apart_from_everybody) {
    execution_stream left, right;
    shared_mutex guard;
    long first = 0, second = 0;
    const auto work = [&](int who) {
        for (int i = 0; i < 2000; ++i) {
            if ((i + who) % 4 == 0) {
                const std::lock_guard hold(guard);
                ++first;
                if (i % 64 == 0) this_task::yield();
                ++second;
            } else {
                const std::shared_lock hold(guard);
                const long before = first;
                if (i % 64 == 1) this_task::yield();
                EXPECT_EQ(before, second);
            }
        }
    };
    std::vector<ult> ults;
    for (int i = 0; i < 2; ++i) {
        ults.push_back(spawn(left, [&, i] { work(i); }));
        ults.push_back(spawn(right, [&, i] { work(i + 2); }));
    }
    work(4);
    ults.clear();
    EXPECT_EQ(first, 5 * 500);
    EXPECT_EQ(second, first);
}

TEST(shared_mutex, may_die_with_the_last_who_locked_it) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        auto guard = std::make_unique<shared_mutex>();
        std::atomic<int> users = 2;
        const auto leave = [&users, at = guard.get()](bool writes) {
            writes ? at->lock() : at->lock_shared();
            const bool last = --users == 0;
            writes ? at->unlock() : at->unlock_shared();
            return last;
        };
        // A writer last: two readers may both be inside, with the other not out yet.
        ult other = spawn(stream, [&] { leave(false); });
        while (users == 2)
            this_task::yield();
        ASSERT_TRUE(leave(true));
        guard.reset();
        other.join();
    }
}

}  // namespace
}  // namespace amalgam

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/bulk/memory_kind.hpp>
#include <amalgam/bulk/remote_copy.hpp>

#include "bulk/bulk_testing.hpp"
#include "rpc/without_waiting.hpp"

// Engines that end during transfers.

namespace amalgam {
namespace {

TEST(bulk_ends, on_progress_may_stop_or_destroy_the_engine) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "what this test shares with its handlers goes through sockets and shared "
                    "memory, which ThreadSanitizer does not follow";
#endif
    for (const bool destroys : {false, true}) {
        for (const char* uri : {"loop://", "shm://", "tcp://127.0.0.1:0"}) {
            SCOPED_TRACE(uri);
            auto server = std::make_unique<engine>(one_more(uri));
            engine client(one_more(uri));
            std::vector<std::byte> memory = pattern(3 << 20);
            std::vector<std::byte> mine(memory.size());
            const exposed shown = expose(client, memory, access::read_write);
            auto token = std::make_shared<int>(1);
            const std::weak_ptr<int> alive = token;
            std::atomic<bool> ended{false};
            server->define("take", [&, token](const bulk& what) {
                engine* const raw = server.get();
                const auto why = what.try_pull(mine, {.on_progress = [&](std::uint64_t) {
                                                   if (ended.exchange(true)) return;
                                                   destroys ? server.reset() : raw->stop();
                                               }});
                EXPECT_TRUE(why.ok() || why.code() == errc::closed) << name(why.code().code);
            });
            token.reset();
            EXPECT_FALSE(
                client.procedure<void(bulk)>("take").on(server->address()).try_call(shown).ok());
            if (!destroys) server.reset();
            while (!alive.expired())
                std::this_thread::yield();
            EXPECT_TRUE(ended);
        }
    }
}

/// An engine pulls its own memory in its own ULT, where pieces are copied and reported at once.
void pull_own_memory(engine& mine, const std::function<void(std::uint64_t)>& on_progress) {
    std::vector<std::byte> memory = pattern(100'000);
    const exposed shown = expose(mine, memory, access::read);
    mine.run([&] {
        std::vector<std::byte> copy(memory.size());
        shown.descriptor().pull(copy, {.on_progress = on_progress});
        EXPECT_EQ(copy, memory);
    });
}

TEST(bulk_ends, on_progress_in_a_ult_may_stop_or_destroy_another_engine_without_waiting_for_it) {
    for (const bool destroys : {false, true}) {
        engine mine(one_more("loop://"));
        auto other = std::make_unique<engine>(one_more("loop://"));
        engine* const raw = other.get();
        bool told = false, went_on = false;
        future<void> next;
        pull_own_memory(mine, [&](std::uint64_t) {
            told = true;
            next = mine.spawn([&] { went_on = true; });
            destroys ? other.reset() : raw->stop();
            EXPECT_FALSE(went_on) << "it waited, with its own engine in the middle of something";
        });
        EXPECT_TRUE(told);
        next.get();
        if (other) {
            other->stop();  // Returns when everything started inside has ended.
            EXPECT_EQ(error_of([&] { other->run([] {}); }).code(), errc::closed);
        }
    }
}

TEST(bulk_ends, services_end_where_nobody_can_wait) {
    other_engines others;
    for (const cannot_wait where : {cannot_wait::in_call_then, cannot_wait::in_an_inline_handler,
                                    cannot_wait::in_a_tasklet}) {
        engine own{"shm://"};
        auto copies = std::make_unique<copy_service>(own);
        auto memories = std::make_unique<memory_server>(own);
        std::vector<std::byte> bytes(10);
        served_memory open =
            memories->serve({&host_memory(), bytes.data(), 0, bytes.size()}, access::read);
        others.run(where, [&] {
            copies.reset();
            memories.reset();
        });
        EXPECT_FALSE(open.descriptor().try_pull(bytes));
        await_stream(own);
        const copy_service other_copies(own);
        const memory_server other_memories(own);
    }
}

}  // namespace
}  // namespace amalgam

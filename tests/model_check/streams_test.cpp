// tasks: pollers that are removed while threads take turns to use their stream, and hooks that end
// while they are told.
#include <gtest/gtest.h>

#include <amalgam/tasks/task_hook.hpp>

#include "model_check/checker/checker.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/streams/poller_set.hpp"
#include "tasks/streams/stream_loop.hpp"

namespace amalgam {

// In place of the library's: the stream that would wake up is a thread of the program.
void detail::stream_loop::wake() noexcept {}

namespace model {
namespace {

constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

struct a_poller final : poller {
    std::size_t poll() noexcept override { return ++polls; }
    int wait_handle() const noexcept override { return -1; }
    bool prepare_to_sleep() noexcept override { return true; }
    std::size_t polls = 0;
};

struct polled {
    polled() {
        pollers.add(*one);
        use();
    }
    /// As drive(), with what poller_set::poll() does.
    void use() {
        if (!pollers.begin_use()) return;
        if (poller* const only = pollers.only()) {
            only->poll();
        } else {
            if (pollers.has_changed()) pollers.renew();
            for (poller* each : pollers.current_)
                if (each != nullptr) each->poll();
        }
        pollers.end_use();
    }
    /// Only looked at for who drives it: nobody whom it knows.
    detail::stream_loop& loop() { return *reinterpret_cast<detail::stream_loop*>(zeros.data()); }

    detail::poller_set pollers;
    alignas(detail::stream_loop) std::array<std::byte, sizeof(detail::stream_loop)> zeros{};
    a_poller* one = new a_poller;
};

/// One thread or two use the stream, while another removes its poller and frees it.
result of_pollers(int users,
                  const std::function<void(execution&, detail::poller_set&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& stream = run.make<polled>();
        run.name(&stream.pollers.used_, "used");
        run.name(&stream.pollers.only_, "only one");
        run.name(&stream.pollers.version_, "version");
        run.name(&stream.pollers.current_version_, "version of the copy");
        run.name(&stream.pollers.lock_, "lock");
        if (weaken) weaken(run, stream.pollers);
        for (int i = 0; i < users; ++i)
            run.thread([&stream] { stream.use(); });
        run.thread([&stream] {
            require(stream.pollers.remove(*stream.one, stream.loop()), "it is not found");
            delete stream.one;
        });
    });
}

TEST(poller_set_model, a_poller_is_not_polled_once_it_is_removed_and_nobody_waits_for_ever) {
    for (const int users : {1, 2}) {
        const result found = of_pollers(users);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

TEST(poller_set_model, weaker_orders_are_found) {
    const auto weaker = [](auto member, act what, std::memory_order order) {
        return of_pollers(1, [=](execution& run,
                                 detail::poller_set& set) { run.weaken(set.*member, what, order); })
            .failure;
    };
    EXPECT_NE(weaker(&detail::poller_set::used_, act::load, acquire), "");
    EXPECT_NE(weaker(&detail::poller_set::used_, act::change, std::memory_order_acq_rel), "");
    EXPECT_NE(weaker(&detail::poller_set::only_, act::load, acquire), "");
    EXPECT_NE(weaker(&detail::poller_set::only_, act::store, release), "");
}

/// A hook is told something while it ends.
result of_hook(const std::function<void(execution&, detail::hook_slot&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        using detail::hooks;
        struct told {
            std::unique_ptr<int> events = std::make_unique<int>(0);
            task_hook::function tell{[this](const task_event_info&) { ++*events; }};
        };
        auto& hook = run.make<told>();
        detail::hook_slot& slot = hooks::slots_[0];
        slot.calls.store(0);
        slot.tell.store(&hook.tell);
        hooks::used_.store(1);
        run.name(&slot.tell, "tell");
        run.name(&slot.calls, "calls");
        if (weaken) weaken(run, slot);
        run.thread([] {
            if (hooks::any()) hooks::tell_ended(unit_kind::tasklet, nullptr);
        });
        run.thread([&hook] {
            require(hooks::remove(0), "it is being told by the same thread");
            hook.events.reset();
        });
    });
}

TEST(hooks_model, a_hook_is_not_told_once_it_has_ended) {
    const result found = of_hook();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(hooks_model, weaker_orders_are_found) {
    const auto weaker = [](auto member, act what, std::memory_order order) {
        return of_hook([=](execution& run, detail::hook_slot& slot) {
                   run.weaken(slot.*member, what, order);
               })
            .failure;
    };
    EXPECT_NE(weaker(&detail::hook_slot::tell, act::load, acquire), "");
    EXPECT_NE(weaker(&detail::hook_slot::tell, act::store, release), "");
    EXPECT_NE(weaker(&detail::hook_slot::calls, act::load, acquire), "");
    EXPECT_NE(weaker(&detail::hook_slot::calls, act::change, std::memory_order_acq_rel), "");
}

}  // namespace
}  // namespace model
}  // namespace amalgam
